"""Aggregation of two drafts per token, on the device."""

from __future__ import annotations

import time
from dataclasses import replace

from common.answer.driver import Observer, Preview
from common.answer.report import Attribution, MethodReport, SideReport, of_both_sides
from common.answer.request import AnswerFailed, RequestError
from common.daemon.handshake import changes
from common.daemon.model_runtime import PromptRows, Start
from common.estimates.ahead import Ahead
from common.methods.aggregate.drafts import ROOM
from common.methods.aggregate.driver import SessionDriver, open_session
from common.methods.aggregate.method import branches_of
from common.methods.interface import DeviceContext
from proto.messages import Close, Closed, Draft, Hello, Message, Open, Ready, Resolve, Resolved, Side, Sync, Target

# --- device_answer
# The device's half of an answer that a `Session` decides, alone or with the cloud; several methods share it.


class DeviceAnswer:
    """A session, its `SessionDriver`, and the figures of both. `away` is that of `DeviceHalf`."""

    def __init__(self, context: DeviceContext, participants: frozenset[Side], observer: Observer | None = None) -> None:
        """`observer` gets the session's tokens; None: `context` does, and shows them. Raises `RequestError`."""
        side, opening = context.side, context.opening
        try:
            parts = open_session("device", opening, side.decoder, lambda: context.cloud.peer.estimates, participants)
        except ValueError as error:
            raise RequestError(f"{error}.", "sampler") from None
        self.context = context
        self.drafting = parts.drafting
        recorder = context.trace(parts.session.aggregator, alone=participants == {"device"})
        watching, session = context if observer is None else observer, parts.session
        shown = observer is None and context.request.provisional
        self.answer = SessionDriver(
            parts.session,
            context.send,
            watching,
            context.cloud.observe_acceptance,
            side.decoding,
            recorder,
            context.cloud.waited,
            Preview(lambda: session.provisional, context.provisional) if shown else None,
            owner="cloud",
        )

    @property
    def away(self) -> bool:
        return self.answer.session.away

    def retrieved(self, retrieved: PromptRows) -> None:
        """Note the device's documents for the report."""
        retrieved.note(self.context.record)
        self.answer.rows = len(retrieved.prompt.parts)
        self.context.reread(retrieved.apart, self.answer.record)

    def figures(self, closed: Closed | None, attribution: Attribution, judged: bool = False) -> MethodReport:
        """This method's part of the report; `judged`: it compares both sides' drafts with targets."""
        counters, outcome = self.answer.session.counters, self.answer.record
        tokens = len(self.context.record.token_times)
        disagreements = counters.disagreements
        if closed is not None:
            # Where the device decided alone, the cloud may have decided for both, and neither computes wrongly.
            disagreements = min(tokens, max(0, closed.disagreements - len(counters.degraded)))
        accepted, rollbacks = self._judged(closed, tokens)
        return MethodReport(
            device=SideReport(
                drafted=counters.drafted,
                accepted=counters.accepted["device"] if judged else 0,
                rollbacks=counters.rollbacks["device"] if judged else 0,
                preempted=self.answer.part.preempted,
                stale=0 if closed is None else closed.stale,
                branches=counters.branches,
                used=counters.used,
                decode_ms=self.answer.part.step_ms,
            ),
            cloud=SideReport(
                drafted=0 if closed is None else closed.drafted,
                accepted=accepted if judged else 0,
                rollbacks=rollbacks if judged else 0,
                preempted=0 if closed is None else closed.preempted,
                stale=counters.stale,
                branches=0 if closed is None else closed.branches,
                used=0 if closed is None else closed.used,
                decode_ms=outcome.remote_decode_ms,
            ),
            switches=counters.switches,
            certificate_failures=counters.certificate_failures,
            disagreements=disagreements,
            degraded=tuple(counters.degraded),
            attribution=attribution.shares if outcome.apart else (),
            unattributed=attribution.unknown if outcome.apart else 0,
            accepted=tuple(outcome.accepted[:tokens]),
            expected=tuple(outcome.expected[:tokens]),
        )

    def _judged(self, closed: Closed | None, tokens: int) -> tuple[int, int]:
        """The cloud's drafts that became one of the `tokens`, and those that did not.

        The cloud's own count is taken where the device has not seen all of its drafts, as far as it can be true.
        """
        session = self.answer.session
        counters, config = session.counters, session.config
        accepted, rollbacks = counters.accepted["cloud"], counters.rollbacks["cloud"]
        decides = config.placement == "device" and "device" in config.participants
        # The cloud's session may have begun behind a lost connection.
        if closed is None or decides or closed.accepted + closed.rollbacks < accepted + rollbacks:
            return accepted, rollbacks
        # It judges one at a position, and decides no further ahead of the answer than this side has drafted.
        most = tokens + counters.drafted
        accepted = min(closed.accepted, most)
        return accepted, min(closed.rollbacks, most - accepted)


# --- device_half

CLOUD_PATIENCE = 15.0  # least seconds between two tokens of an answer from the cloud's documents alone
SILENT = "The cloud stopped answering, and only its documents were asked for."


class AggregateDevice:
    """Implements `DeviceHalf`. Tokens are shown as soon as they are decided."""

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._with_both = context.request.sources == "both"
        participants: frozenset[Side] = frozenset({"device", "cloud"})
        if context.request.sources != "both":
            participants = frozenset({context.request.sources})
        if not context.phase.open:
            participants = participants & {"device"}
        absent = not context.cloud.connected and not context.request.wait
        if not participants or (participants == {"cloud"} and absent):
            raise AnswerFailed(context.cloud.absence)
        self._own = DeviceAnswer(context, participants)
        self.answer = self._own.answer
        self._prompt_tokens = 0  # that the cloud says it reads
        request, most = context.request, context.side.settings.branches
        self._branches = min(most, branches_of(request)) if self._with_both else 1
        self._spare = ROOM if self._branches > 1 else 0
        self._opened_on: Hello | None = None  # the cloud that the session was last opened on
        self.answer.session.ahead = self._ahead(time.monotonic())

    @property
    def over(self) -> bool:
        return self.answer.over

    @property
    def away(self) -> bool:
        return self._own.away

    @property
    def waiting(self) -> bool:
        return self.answer.session.waiting

    def start(self, absence: str | None) -> None:
        context = self._context
        if context.phase.open and absence is None:
            self._opened_on = context.cloud.hello
            context.send(context.opening)
        elif absence is not None and context.request.sources != "device":
            context.note(absence, absence=True)
            if context.phase.open:
                self.answer.go_alone()
        if "device" in self.answer.session.config.participants:
            waited, drafter = context.record.waited, self._own.drafting
            part, opening, decoded = self.answer.part, context.opening, context.cloud.decoded
            start = Start(part, opening, drafter, decoded, self._retrieved, waited=waited, spare=self._spare)
            context.side.begin(start, self.retrieve)

    def receive(self, message: Message) -> None:
        context = self._context
        match message:
            case Draft():
                context.phase.join()
                context.cloud.peer.remote_decoded(message.decode_time / 1e6)
                self.answer.receive(message)
            case Target() | Resolve() | Resolved() | Sync():
                self.answer.receive(message)
            case Ready():
                self.answer.receive(message)
                self._prompt_tokens = message.prompt_tokens
                self._opened_on = context.cloud.hello  # it says so before, if it has changed since it was connected
                if not message.titles and self._with_both:
                    context.send(Close(message.session, 0))  # without documents the cloud has no part in the answer
                    context.phase.leave()

    def retrieve(self, request: Open) -> PromptRows:
        """This side's rows. On the retrieval thread."""
        return self._context.side.retrieve(request, self._context.scope)

    def without_cloud(self, sentence: str) -> None:
        if self._context.request.sources == "cloud":
            self.answer.end(AnswerFailed(sentence))
        else:
            self._context.note(sentence, absence=True)
            self.answer.go_alone()

    def reconnected(self) -> None:
        """Open the answer on the cloud again, with what it has so far."""
        context = self._context
        if self.answer.over:
            return
        context.phase.restart()
        before, now = self._opened_on, context.cloud.hello
        self._opened_on = now or before
        changed = changes(before, now) if before is not None and now is not None else []
        context.send(context.opening)
        position = self.answer.rejoined(bool(changed))
        for what in changed:
            context.note(f"From token {position} on the cloud is another one than before: its {what} has changed.")

    def tick(self, now: float) -> None:
        context = self._context
        if self.answer.over:
            return
        limits = context.cloud.limits(self.answer.session.stage.heard, self._prompt_tokens)
        only = context.request.sources == "cloud"
        if only:
            limits = replace(limits, patience=max(CLOUD_PATIENCE, limits.patience))
        if self.answer.poll(now, limits, self._ahead(now)) and only:
            self.answer.end(AnswerFailed(SILENT))

    def end(self, failure: Exception | None) -> None:
        self.answer.end(failure)

    def report(self, closed: Closed | None) -> MethodReport:
        shares = of_both_sides(self._context.record, self.answer.record, self.answer.session.counters.degraded, closed)
        return self._own.figures(closed, shares, judged=True)

    def _retrieved(self, retrieved: PromptRows) -> None:
        self._own.retrieved(retrieved)
        context = self._context
        self.answer.room = context.side.target.spare(context.opening, retrieved, self._spare)
        if retrieved.prompt.absent:
            self.answer.without_documents()

    def _ahead(self, now: float) -> Ahead:
        drafts, answer = self._context.opening.run_ahead, self.answer
        if drafts == 1:
            return Ahead()
        row = answer.rows * self._context.side.decoding.row_seconds
        return self._context.cloud.peer.ahead(drafts, self._branches, answer.trips, row, answer.room, now)
