"""Aggregation of two drafts per token, on the device."""

from __future__ import annotations

import time
from dataclasses import replace

from common.answer.driver import Observer, Preview
from common.answer.report import MethodReport, SideReport, SourceShares, attribute_to_both
from common.answer.request import AnswerFailed, RequestError
from common.daemon.model_runtime import PromptRows
from common.engine.jobs import DecodeRequest
from common.estimates.estimators import SpeculationLimits
from common.methods.aggregate.drafts import ROOM
from common.methods.aggregate.driver import AnswerSampler, MakeSampler, SessionDriver, open_session
from common.methods.aggregate.method import branches_of, draws_by_coins
from common.methods.halves import OpenedPart
from common.methods.interface import DeviceContext
from common.sampling.coins import CoinSampler
from proto.messages import Close, Closed, Draft, Message, Open, Ready, Resolve, Resolved, Side, Sync, Target


class DeviceAnswer(OpenedPart):
    """The device's half of a `Session`; a base for several methods."""

    answer: SessionDriver

    def __init__(
        self,
        context: DeviceContext,
        participants: frozenset[Side],
        paper: MakeSampler,
        observer: Observer | None = None,
    ) -> None:
        """`observer` gets the session's tokens; None: `context`. Raises `RequestError`."""
        super().__init__(context)
        side, opening, cloud = context.side, context.opening, context.cloud
        try:
            session, self.drafter = open_session(
                "device", opening, side.decoder, lambda: cloud.peer.estimates, participants, paper, self._sampler()
            )
        except ValueError as error:
            raise RequestError(f"{error}.", "sampler") from None
        recorder = context.trace(session.aggregator, alone=participants == {"device"})
        shown = observer is None and context.request.provisional
        self.answer = SessionDriver(
            session,
            self.send,
            context if observer is None else observer,
            cloud.observe_acceptance,
            side.decoding,
            recorder,
            cloud.waited,
            Preview(lambda: session.provisional, context.provisional) if shown else None,
            tenant="cloud",
        )

    @property
    def away(self) -> bool:
        return self.answer.session.away

    def _sampler(self) -> AnswerSampler | None:
        """None: the sampler that the request names."""
        return None

    def find(self, request: Open) -> PromptRows:
        """Runs on the retrieval thread."""
        return self.context.side.retrieve(request, self.context.scope)

    def retrieved(self, rows: PromptRows) -> None:
        rows.note(self.context.record)
        self.answer.rows = len(rows.prompt.parts)
        self.context.reread(rows.apart, self.answer.record)

    def figures(self, closed: Closed | None, attribution: SourceShares, judged: bool = False) -> MethodReport:
        """This method's report; `judged`: it compares both sides' drafts with targets."""
        counters, outcome = self.answer.session.counters, self.answer.record
        tokens = len(self.context.record.token_times)
        disagreements = counters.disagreements
        if closed is not None:
            # The cloud may have decided positions that the device decided alone; that is no error.
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
        """The cloud's accepted and rejected drafts.

        Uses the cloud's own counts, within bounds, if the device has not seen all drafts.
        """
        session = self.answer.session
        counters, config = session.counters, session.config
        accepted, rollbacks = counters.accepted["cloud"], counters.rollbacks["cloud"]
        decides = config.placement == "device" and "device" in config.participants
        # The cloud's session may have begun after a lost connection.
        if closed is None or decides or closed.accepted + closed.rollbacks < accepted + rollbacks:
            return accepted, rollbacks
        # The cloud judges one draft per position, and is never further ahead than this side's drafts.
        most = tokens + counters.drafted
        accepted = min(closed.accepted, most)
        return accepted, min(closed.rollbacks, most - accepted)


CLOUD_PATIENCE = 15.0  # least seconds between two tokens from the cloud's documents alone
SILENT = "The cloud stopped answering, and only its documents were asked for."


class AggregateDevice(DeviceAnswer):
    """Implements `DeviceHalf`. Tokens are shown as soon as they are decided."""

    def __init__(self, context: DeviceContext, paper: MakeSampler) -> None:
        request, absent = context.request, not context.cloud.connected and not context.request.wait
        self._with_both = request.sources == "both"
        participants: frozenset[Side] = frozenset({"device", "cloud"})
        if request.sources != "both":
            participants = frozenset({request.sources})
        if not context.phase.open:
            participants = participants & {"device"}
        if not participants or (participants == {"cloud"} and absent):
            raise AnswerFailed(context.cloud.absence)
        super().__init__(context, participants, paper)
        self._branches = min(context.side.settings.branches, branches_of(request)) if self._with_both else 1
        self._spare = ROOM if self._branches > 1 else 0
        self.answer.session.ahead = self._ahead(time.monotonic())

    def _sampler(self) -> AnswerSampler | None:
        context, request = self.context, self.context.request
        if not draws_by_coins(request):
            return None
        return CoinSampler(
            request.temperature, context.opening.entries, context.side.decoder.vocabulary, exact=request.exact
        )

    @property
    def waiting(self) -> bool:
        return self.answer.session.waiting

    def start(self, absence: str | None) -> None:
        context = self.context
        if context.phase.open and absence is None:
            self.open()
        elif absence is not None and context.request.sources != "device":
            context.note(absence, absence=True)
            if context.phase.open:
                self.answer.go_alone()
        if "device" in self.answer.session.config.participants:
            part, opening, decoded = self.answer.part, context.opening, context.cloud.decoded
            request = DecodeRequest(part, self.drafter, decoded, asker=context.record.asker)
            context.side.begin(request, opening, self.find, self.retrieved, self._spare)

    def receive(self, message: Message) -> None:
        context = self.context
        match message:
            case Draft():
                context.phase.join()
                context.cloud.peer.remote_decoded(message.decode_time / 1e6)
                self.answer.receive(message)
            case Target() | Resolve() | Resolved() | Sync():
                self.answer.receive(message)
            case Ready():
                self.answer.receive(message)
                self.ready(message)
                if not message.titles and self._with_both:
                    self.send(Close(message.session, 0))  # the cloud has no documents
                    context.phase.leave()

    def without_cloud(self, sentence: str) -> None:
        if self.context.request.sources == "cloud":
            self.end(AnswerFailed(sentence))
        else:
            self.context.note(sentence, absence=True)
            self.answer.go_alone()

    def reconnected(self) -> None:
        self.reopen(self.answer.rejoined)

    def tick(self, now: float) -> None:
        if self.over:
            return
        limits = self.context.cloud.limits(self.answer.session.heard, self.prompt_tokens or 0)
        only = self.context.request.sources == "cloud"
        if only:
            limits = replace(limits, patience=max(CLOUD_PATIENCE, limits.patience))
        if self.answer.poll(now, limits, self._ahead(now)) and only:
            self.end(AnswerFailed(SILENT))

    def report(self, closed: Closed | None) -> MethodReport:
        record, degraded = self.context.record, self.answer.session.counters.degraded
        return self.figures(closed, attribute_to_both(record, self.answer.record, degraded, closed), judged=True)

    def retrieved(self, rows: PromptRows) -> None:
        super().retrieved(rows)
        self.answer.room = self.context.side.target.spare(self.context.opening, rows, self._spare)
        if rows.prompt.absent:
            self.answer.without_documents()

    def _ahead(self, now: float) -> SpeculationLimits:
        drafts, answer = self.context.opening.run_ahead, self.answer
        if drafts == 1 or self.context.request.privacy == "secret":
            return SpeculationLimits()  # times of targets must not tell whether this side drafted them
        row = answer.rows * self.context.side.decoding.row_seconds
        return self.context.cloud.peer.ahead(drafts, self._branches, answer.trips, row, answer.room, now)
