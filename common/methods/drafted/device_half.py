"""The drafter: reads the cloud's passages, proposes tokens, and shows those that hold."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import replace
from statistics import median

from common.answer.attribution import of_cloud
from common.answer.driver import Driver, Preview
from common.answer.errors import RequestError
from common.answer.record import RECENT
from common.answer.report import MethodReport, SideReport
from common.answer.values import Action, Commit
from common.answer.watch import Patience, Silence
from common.daemon.handshake import changes
from common.daemon.model_runtime import Start
from common.daemon.prompt_rows import PromptRows
from common.methods.drafted.history import RoundHistory
from common.methods.drafted.lengths import PolicyLengths, make_policy
from common.methods.drafted.machine.eager import make_drafting
from common.methods.drafted.method import Scheme
from common.methods.drafted.part import rounds_part
from common.methods.drafted.prediction import predicted_seconds
from common.methods.drafted.reading import Passage, Reading
from common.methods.drafted.relief import Relief
from common.methods.drafted.request import DraftRequest
from common.methods.interface import DeviceContext
from common.methods.passages.receiver import LARGEST_TEXT, DocumentReceiver, WantedBytes
from proto.errors import malformed
from proto.messages import Closed, Fetched, Hello, Message, Ready, Sync
from proto.rounds import Decided, Verdict

LATE = "The cloud took no part after {} tokens: it did not answer in time."
UNREAD = "From token {} on the cloud judged drafts made without its passages, which had not come in time."
READING_RESYNC = 5.0  # seconds until a verifier that reads its prompt is asked again


class DraftingDevice:
    """Implements `DeviceHalf`, and `Observer` of what is decided.

    A shown token was verified, or is degraded: decided by the draft model alone.
    """

    def __init__(self, context: DeviceContext, scheme: Scheme, reading: Reading) -> None:
        """Raises `RequestError` without a draft model or a cloud."""
        request = context.request
        assert isinstance(request, DraftRequest)
        if context.side.drafter is None:
            raise RequestError(
                f"Method {request.method!r} needs a draft model, and this device has none: set draft_model.", "method"
            )
        if not context.phase.open:
            raise RequestError(
                f"Method {request.method!r} needs a cloud that verifies, and this device has none: set cloud.", "method"
            )
        self._context = context
        self._scheme = scheme
        self._reading = reading
        self._model = context.side.drafter
        cloud = context.cloud
        history = RoundHistory.of(cloud.peer, request.method, self._model.decoding.times.step)
        policy = make_policy(request, scheme.token_bytes, scheme.config, history)
        self._history = history
        lengths = PolicyLengths(policy, history, lambda: cloud.peer.meter.rtt)  # of the latest connection
        self._machine = make_drafting(scheme.config, scheme.drafts, lengths)
        recorder = context.trace("cloud", alone=False)
        preview = Preview(lambda: self._machine.provisional, context.provisional) if request.provisional else None
        engines = [self._model.decoding]
        self._driver = Driver("device", self._machine, engines, context.send, self, recorder, preview)
        self._part = rounds_part(self._driver, self._machine)
        self._receiver = self._empty()
        self._passages = True  # they are awaited
        self._given_up = False  # they have been: drafts are made without them
        self._lock = threading.Lock()  # of the three
        self._steps: deque[float] = deque(maxlen=RECENT)  # seconds
        self._verifying: deque[float] = deque(maxlen=RECENT)
        self._silence = Silence(context.cloud.waited)
        self._wanted = WantedBytes()  # of the passages
        self._asked = time.monotonic()  # when the cloud was last heard, or asked again
        self._opened = 0  # times
        self._prompt_tokens: int | None = None  # that the verifier says it reads, since it was opened last
        self._has_read = False  # it has judged since then
        self._opened_on: Hello | None = None
        self._rows: PromptRows | None = None  # that the draft model reads
        self._relief = Relief(context, self._model, self._machine, self._driver, self._part, scheme.cut)

    # --- DeviceHalf

    @property
    def over(self) -> bool:
        return self._driver.over

    @property
    def waiting(self) -> bool:
        with self._driver.lock:
            return self._passages or self._machine.waiting

    @property
    def reading(self) -> bool:
        """Whether the passages have yet to come."""
        return self._passages

    @property
    def away(self) -> bool:
        return self._machine.alone

    def start(self, absence: str | None) -> None:
        if absence is None:
            self._open()
        else:
            self.without_cloud(absence)

    def receive(self, message: Message) -> None:
        self._asked = time.monotonic()
        match message:
            case Fetched():
                self._take(message)
            case Ready():
                self._prompt_tokens = message.prompt_tokens
                self._opened_on = self._context.cloud.hello  # it says so before, if it has changed since
                self._driver.apply(self._machine.begin)
            case Verdict() | Decided() | Sync():
                self._context.phase.join()
                if self._driver.recorder is not None:
                    self._driver.recorder.message("receive", message)
                if not isinstance(message, Sync):
                    if message.verify_time > 0:  # what is told again took none
                        self._verifying.append(message.verify_time / 1e6)
                    self._context.cloud.peer.meter.spare(self._asked)
                    self._driver.apply(lambda: self._judged(message))
                if self._machine.alone:  # it was slow, and is there again
                    self._rejoin()

    def without_cloud(self, sentence: str) -> None:
        self._context.note(sentence, absence=True)
        with self._lock:
            awaited, self._passages = self._passages, False
            self._given_up |= awaited
        if awaited:
            self._later_read([])
        self._driver.apply(lambda: self._machine.out_of_patience(self._relief.possible))
        self._context.side.later(self._relieve, self.end)

    def reconnected(self) -> None:
        if self._driver.over:
            return
        before, now = self._opened_on, self._context.cloud.hello
        self._open()
        if before is not None and now is not None:
            for what in changes(before, now):
                position = self._machine.position
                self._context.note(
                    f"From token {position} on the cloud is another one than before: its {what} has changed."
                )
        self._rejoin()

    def tick(self, now: float) -> None:
        """Ask again after silence, and go on alone after more of it."""
        if self._driver.over:
            return
        cloud, machine = self._context.cloud, self._machine
        limits, waiting = self._limits(), self.waiting
        brought = machine.position - len(machine.degraded) + self._wanted.progress + (not self._passages)
        stage = self._opened, self._prompt_tokens is not None, self._has_read
        if self._silence.over(now, brought, stage, waiting, machine.alone, limits):
            self.without_cloud(LATE.format(machine.position))
        elif not waiting and not machine.alone:
            self._asked = now
        elif not self._passages and cloud.connected and now - self._asked > limits.resync:
            self._asked = now
            self._driver.apply(machine.asking if machine.alone else machine.reminded)

    def end(self, failure: Exception | None) -> None:
        self._driver.end(failure)
        self._relief.end()

    def report(self, closed: Closed | None) -> MethodReport:
        counters, degraded = self._machine.counters, tuple(self._machine.degraded)
        attribution = of_cloud(self._context.record, frozenset(degraded), closed)
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
        """Seconds per token that the formulas give for rounds like this answer's, by the estimates of the times."""
        machine, scheme = self._machine, self._scheme
        with self._history.lock:
            times = self._history.estimates.times()
            size = self._history.sizes_of(scheme.token_bytes).of(next(iter(scheme.token_bytes)))
        return predicted_seconds(scheme.config, machine.counters, machine.position, times, size)

    def _limits(self) -> Patience:
        """Limits on the wait for a verdict: no shorter than passes take here, or questions would fill a slow link."""
        cloud, step = self._context.cloud, median(self._verifying) if self._verifying else None
        if self._has_read:
            return cloud.limits(True, step=step)
        limits = cloud.limits(False, self._prompt_tokens or 0, step=step)  # its first pass follows a prompt
        return replace(limits, resync=max(limits.resync, READING_RESYNC))

    def _judged(self, message: Verdict | Decided) -> list[Action]:
        machine, before = self._machine, self._machine.counters.stale
        actions = machine.judged(message) if isinstance(message, Verdict) else machine.decided_by_verifier(message)
        self._has_read |= machine.counters.stale == before
        return actions

    # --- the cloud's passages

    def _open(self) -> None:
        self._opened_on = self._context.cloud.hello
        self._asked = time.monotonic()
        self._opened += 1
        self._prompt_tokens, self._has_read = None, False  # another verifier, or one that has forgotten: it reads again
        with self._lock:
            if self._passages:
                self._receiver = self._empty()
        self._context.send(self._context.opening)

    def _empty(self) -> DocumentReceiver:
        return DocumentReceiver(self._reading.most, LARGEST_TEXT)

    def _take(self, message: Fetched) -> None:
        with self._lock:
            if not self._passages:
                return
            self._receiver.add(message)
            self._wanted.arrived(self._receiver.size)
            if not self._receiver.complete:
                return
            bodies = self._receiver.bodies()
            try:
                passages = [Passage(body.title, body.similarity, body.whole.decode()) for body in bodies]
            except UnicodeDecodeError:  # they are still awaited
                raise malformed("the text of a fetched document must be UTF-8") from None
            self._passages = False
        self._later_read(passages)

    def _later_read(self, passages: list[Passage]) -> None:
        self._context.side.later(lambda: self._read(passages), self.end)

    def _read(self, passages: list[Passage]) -> None:
        """Make rows of the passages and begin to draft, on the retrieval thread."""
        if self._driver.over:
            return
        opening, model = self._context.opening, self._model
        found = self._rows_of(passages)
        self._context.record.device_prompt_tokens = found.tokens
        self._rows = found
        processor, waited = model.processor(opening), self._context.record.waited
        start = Start(self._part, opening, self._scheme.drafter, self._measured, waited=waited)
        model.decode(start, found, processor)
        self._relieve()

    def _rows_of(self, passages: list[Passage]) -> PromptRows:
        """Rows that the draft model reads."""
        return self._reading.rows(self._model, self._context.opening, passages)

    def _measured(self, context: int, seconds: float) -> None:
        self._steps.append(seconds)

    # --- Observer, under the driver's lock

    def committed(self, commit: Commit) -> bool:
        return self._context.committed(commit)

    def withdrawn(self, position: int) -> None:
        self._context.withdrawn(position)

    def ended(self, failure: Exception | None) -> None:
        if failure is None:
            self._driver.carry_out(self._machine.closing())
        self._context.ended(failure)

    # --- without the cloud

    def _rejoin(self) -> None:
        with self._lock:
            given_up, self._given_up = self._given_up, False
        if given_up:
            self._context.note(UNREAD.format(self._machine.position))
        self._driver.apply(self._machine.rejoined)
        self._relief.end()

    def _relieve(self) -> None:
        if self._rows is not None:
            self._relief.begin(self._rows)
