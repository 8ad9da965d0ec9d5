"""The drafter: reads the cloud's passages, proposes tokens, shows accepted ones."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import replace
from statistics import median
from typing import ClassVar

from common.answer.driver import Driver, Preview
from common.answer.patience import WaitLimits, Watch
from common.answer.report import RECENT, MethodReport, SideReport, attribute_to_cloud
from common.answer.request import RequestError
from common.answer.values import Action, Commit
from common.daemon.model_runtime import PromptRows
from common.draft_policy.times import RoundTimes, ahead_seconds, eager_seconds, round_seconds, undrafted_seconds
from common.engine.jobs import DecodeRequest
from common.estimates.profiler import PeerEstimates
from common.methods.drafted.cloud import Passage, PassageReading
from common.methods.drafted.drafting import RoundsConfig, RoundsCounters
from common.methods.drafted.eager import make_drafting
from common.methods.drafted.lengths import PolicyLengths, RoundHistory, make_policy
from common.methods.drafted.method import DraftRequest, MakeRelief, Relief, Scheme
from common.methods.drafted.verifying import rounds_part
from common.methods.halves import OpenedPart
from common.methods.handing import LARGEST_TEXT, DocumentReceiver
from common.methods.interface import DeviceContext
from proto.errors import malformed
from proto.messages import Closed, Decided, Fetched, Message, Ready, Sync, Verdict

# --- prediction


def predicted_seconds(
    config: RoundsConfig, counters: RoundsCounters, tokens: int, times: RoundTimes, token_bytes: float
) -> float:
    """Predict seconds per token after the first, from rounds and the time formulas.

    The first round does not count, as its tokens come with the first one. A partial last round costs a whole one. 0 if
    nothing followed the first token.
    """
    alone = undrafted_seconds(times)
    judged = counters.accepted + counters.rejected
    acceptance = counters.accepted / judged if judged else 0.0
    length = max(1, round(counters.proposed / counters.rounds)) if counters.rounds else 1
    behind = tokens - 1
    if behind < 1:
        return 0.0
    if config.eager:
        return eager_seconds(times, acceptance, length, token_bytes) if judged else alone
    drafted = tokens - counters.deferred
    left = max(0, counters.deferred - (not counters.rounds))
    if not config.ahead:
        seconds = max(0, counters.rounds - 1) * round_seconds(times, acceptance, length, token_bytes)
    else:
        at_once = min(drafted, round(acceptance * min(length, drafted)) or 1)  # with the first verdict
        seconds = (drafted - at_once) * ahead_seconds(times, acceptance, length, token_bytes)
    return (seconds + left * alone) / behind


# --- the half

LATE = "The cloud took no part after {} tokens: it did not answer in time."
UNREAD = "From token {} on, the device drafted without the cloud's passages, which did not arrive in time."
READING_RESYNC = 5.0  # seconds between reminders while the verifier reads its prompt


class DraftingDevice(OpenedPart):
    """Implements `DeviceHalf`, and `Observer` of the decisions.

    Shown tokens are verified, or degraded: decided by the draft model.
    """

    verified_here: ClassVar[bool] = False  # the verifier is on this device

    def __init__(
        self, context: DeviceContext, scheme: Scheme, reading: PassageReading, relief: MakeRelief | None = None
    ) -> None:
        """`relief` replaces an absent cloud. Raises `RequestError` without a draft model or a cloud."""
        super().__init__(context)
        request, here = context.request, self.verified_here
        assert isinstance(request, DraftRequest)
        if context.side.drafter is None:
            raise RequestError(
                f"Method {request.method!r} needs a draft model, and this device has none: set draft_model.", "method"
            )
        if not (here or context.phase.open):
            raise RequestError(
                f"Method {request.method!r} needs a cloud that verifies, and this device has none: set cloud.", "method"
            )
        self.model = context.side.drafter
        self._scheme = scheme
        self._reading = reading
        self._history = RoundHistory.of(self.peer, request.method, self.model.decoding.times.step)
        policy = make_policy(request, scheme.token_bytes, scheme.config, self._history)
        lengths = PolicyLengths(policy, self._history, lambda: self.peer.meter.rtt)  # of the latest connection
        self.machine = make_drafting(scheme.config, scheme.drafts, lengths)
        recorder = context.trace("device" if here else "cloud", alone=here)
        preview = Preview(lambda: self.machine.provisional, context.provisional) if request.provisional else None
        self.answer = Driver("device", self.machine, [self.model.decoding], self.send, self, recorder, preview)
        self._part = rounds_part(self.answer, self.machine)
        self._receiver = DocumentReceiver(reading.most, LARGEST_TEXT)
        self._passages = True  # awaited
        self._given_up = False  # no longer awaited: drafts are made without them
        self._lock = threading.Lock()  # protects `_receiver`, `_passages` and `_given_up`
        self._steps: deque[float] = deque(maxlen=RECENT)  # seconds
        self._verifying: deque[float] = deque(maxlen=RECENT)
        self._watch = Watch(context.cloud.waited)
        self._opened = 0  # times
        self._has_read = False  # the verifier has judged since the last opening
        self._rows: PromptRows | None = None  # of the draft model
        self._relief: Relief | None = None
        if relief is not None:
            self._relief = relief(context, self.model, self.machine, self.answer, self._part, scheme.cut)

    @property
    def peer(self) -> PeerEstimates:
        """Estimates of the verifier."""
        return self.context.cloud.peer

    # --- DeviceHalf

    @property
    def waiting(self) -> bool:
        with self.answer.lock:
            return self._passages or self.machine.waiting

    @property
    def reading(self) -> bool:
        return self._passages

    @property
    def away(self) -> bool:
        return self.machine.alone

    @property
    def progress(self) -> int:
        """Count of the cloud's contributions."""
        verified = self.machine.position - len(self.machine.degraded)
        return verified + self._receiver.progress + (not self._passages)

    @property
    def stage(self) -> tuple[int, bool, bool]:
        """Changes with each hopeful sign."""
        return self._opened, self.prompt_tokens is not None, self._has_read

    def start(self, absence: str | None) -> None:
        if absence is None:
            self.open()
        else:
            self.without_cloud(absence)

    def receive(self, message: Message) -> None:
        now = time.monotonic()
        self._watch.heard(now)
        match message:
            case Fetched():
                self._take(message)
            case Ready():
                self.ready(message)
                self.answer.apply(self.machine.begin)
            case Verdict() | Decided() | Sync():
                self.context.phase.join()
                if self.answer.recorder is not None:
                    self.answer.recorder.message("receive", message)
                if not isinstance(message, Sync):
                    if message.verify_time > 0:  # a repetition took none
                        self._verifying.append(message.verify_time / 1e6)
                    self.peer.meter.spare(now)
                    self.answer.apply(lambda: self._judged(message))
                if self.machine.alone:  # a slow cloud is back
                    self._rejoin(changed=False)

    def without_cloud(self, sentence: str) -> None:
        self.context.note(sentence, absence=True)
        with self._lock:
            awaited, self._passages = self._passages, False
            self._given_up |= awaited
        if awaited:
            self._later_read([])
        relieved = self._relief is not None and self._relief.possible
        self.answer.apply(lambda: self.machine.out_of_patience(relieved))
        self.context.side.on_retrieval_thread(self._relieve, self.end)

    def tick(self, now: float) -> None:
        """Ask again after silence; later continue alone."""
        if self.over:
            return
        machine = self.machine
        again, late = self._watch.look(now, self, self._limits())
        if late:
            self.without_cloud(LATE.format(machine.position))
        elif again and not self._passages and self.context.cloud.connected:
            self.answer.apply(machine.asking if machine.alone else machine.reminded)

    def end(self, failure: Exception | None) -> None:
        super().end(failure)
        if self._relief is not None:
            self._relief.end()

    def report(self, closed: Closed | None) -> MethodReport:
        counters, degraded = self.machine.counters, tuple(self.machine.degraded)
        attribution = attribute_to_cloud(self.context.record, frozenset(degraded), closed)
        rounds = max(counters.rounds, 1)
        return MethodReport(
            device=SideReport(
                drafted=counters.drafted,
                accepted=counters.accepted,
                rollbacks=counters.rejected,
                preempted=self._part.preempted,
                stale=0 if closed is None else closed.stale,
                decode_ms=1e3 * median(self._steps) if self._steps else 0.0,
            ),
            cloud=SideReport(
                stale=counters.stale,
                preempted=0 if closed is None else closed.preempted,
                decode_ms=1e3 * median(self._verifying) if self._verifying else 0.0,
            ),
            degraded=degraded,
            attribution=attribution.shares,
            unattributed=attribution.unknown,
            figures={
                "rounds": float(counters.rounds),
                "proposals": float(counters.sent),
                "proposed_per_round": counters.proposed / rounds,
                "accepted_per_round": counters.accepted / rounds,
                "undrafted": float(counters.bonus),
                "predicted_ms": 1e3 * self._predicted(),
            },
        )

    def _predicted(self) -> float:
        machine, scheme = self.machine, self._scheme
        with self._history.lock:
            times = self._history.estimates.times()
            size = self._history.sizes_of(scheme.token_bytes).of(next(iter(scheme.token_bytes)))
        return predicted_seconds(scheme.config, machine.counters, machine.position, times, size)

    def _limits(self) -> WaitLimits:
        """At least a pass, so that reminders do not fill a slow link."""
        cloud, step = self.context.cloud, median(self._verifying) if self._verifying else None
        if self._has_read:
            return cloud.limits(True, step=step)
        limits = cloud.limits(False, self.prompt_tokens or 0, step=step)  # the first pass follows a prompt
        return replace(limits, resync=max(limits.resync, READING_RESYNC))

    def _judged(self, message: Verdict | Decided) -> list[Action]:
        machine, before = self.machine, self.machine.counters.stale
        actions = machine.judged(message) if isinstance(message, Verdict) else machine.decided_by_verifier(message)
        self._has_read |= machine.counters.stale == before
        return actions

    # --- the cloud's passages

    def open(self) -> list[str]:
        self._watch.heard(time.monotonic())
        self._opened += 1
        self.prompt_tokens, self._has_read = None, False  # the verifier reads the prompt again
        with self._lock:
            if self._passages:
                self._receiver.restart()
        return super().open()

    def _take(self, message: Fetched) -> None:
        with self._lock:
            if not self._passages:
                return
            self._receiver.add(message)
            if not self._receiver.complete:
                return
            bodies = self._receiver.bodies()
            try:
                passages = [Passage(body.title, body.similarity, body.whole.decode()) for body in bodies]
            except UnicodeDecodeError:  # still awaited
                raise malformed("the text of a fetched document must be UTF-8") from None
            self._passages = False
        self._later_read(passages)

    def _later_read(self, passages: list[Passage]) -> None:
        self.context.side.on_retrieval_thread(lambda: self._read(passages), self.end)

    def _read(self, passages: list[Passage]) -> None:
        """Start drafting from the passages, on the retrieval thread."""
        if self.over:
            return
        opening, model, record = self.context.opening, self.model, self.context.record
        rows = self.rows(passages)
        record.device_prompt_tokens = rows.tokens
        self._rows = rows

        def measured(context: int, seconds: float) -> None:
            self._steps.append(seconds)

        request = DecodeRequest(self._part, self._scheme.drafter, measured, asker=record.asker)
        model.decode(request, opening, rows, model.processor(opening))
        self._relieve()

    def rows(self, passages: list[Passage]) -> PromptRows:
        return self._reading.rows(self.model, self.context.opening, passages)

    # --- Observer, under the driver's lock

    def committed(self, commit: Commit) -> bool:
        return self.context.committed(commit)

    def withdrawn(self, position: int) -> None:
        self.context.withdrawn(position)

    def ended(self, failure: Exception | None) -> None:
        if failure is None:
            self.answer.carry_out(self.machine.closing())
        self.context.ended(failure)

    # --- without the cloud

    def reconnected(self) -> None:
        self.reopen(self._rejoin)

    def _rejoin(self, changed: bool) -> int:
        with self._lock:
            given_up, self._given_up = self._given_up, False
        if given_up:
            self.context.note(UNREAD.format(self.machine.position))
        self.answer.apply(self.machine.rejoined)
        if self._relief is not None:
            self._relief.end()
        return self.machine.position

    def _relieve(self) -> None:
        if self._rows is not None and self._relief is not None:
            self._relief.begin(self._rows)
