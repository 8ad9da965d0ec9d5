"""The device's half of an answer that a `Session` decides, alone or with the cloud; several methods share it."""

from __future__ import annotations

from common.answer.attribution import Attribution
from common.answer.driver import Observer, Preview
from common.answer.errors import RequestError
from common.answer.report import MethodReport, SideReport
from common.daemon.prompt_rows import PromptRows
from common.methods.aggregate.driver import SessionDriver
from common.methods.aggregate.setup import open_session
from common.methods.interface import DeviceContext
from proto.fields import Side
from proto.messages import Closed


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
