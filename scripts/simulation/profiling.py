"""Estimates of a simulated side: the daemons' estimators, fed by virtual measurements at the daemons' pace (§5.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from common.answer.values import Commit
from common.estimates.cost import Estimates
from common.estimates.estimators import DecodeDelay, DecodeLine
from common.estimates.peer import DIGEST_PERIOD, PeerModel
from common.estimates.round_trip import Pace, RoundTripTime
from proto.messages import Draft, Message, Side
from scripts.simulation.clock import Clock


class SimulatedProfiler:
    """Probes the link and digests measurements from time to time. Nothing of the simulation's truth gets in."""

    def __init__(
        self, clock: Clock, role: Side, own: DecodeLine, remote: DecodeLine, round_trip: Callable[[], float]
    ) -> None:
        """`own` and `remote` are the sides' offline profiles; `round_trip` gives the seconds that a probe takes now."""
        self.digested: Callable[[], None] = lambda: None  # called when there may be other estimates
        self._clock = clock
        self._own = DecodeDelay(own)
        self._model = PeerModel(role, self._own, remote)
        self._round_trip = round_trip
        self._link = RoundTripTime()
        self._pace = Pace()
        self._outstanding = 0
        self._measured: list[Callable[[], None]] = []
        self._snapshot = self._model.estimates()

    def start(self) -> None:
        """Runs for as long as the clock does."""
        if self._pace.due(self._clock.now, self._link.settled, self._outstanding):
            trip = self._round_trip()
            self._outstanding += 1
            self._clock.after(trip, lambda: self._returned(trip))
        for take_in in self._measured:
            take_in()
        self._measured.clear()
        self._snapshot = self._model.estimates()
        self.digested()
        self._clock.after(DIGEST_PERIOD, self.start)

    def estimates(self) -> Estimates:
        return replace(self._snapshot, rtt=self._link.estimate or 0.0)

    def run_ahead(self, maximum: int) -> int:
        return self._model.run_ahead(self._link.upper(), maximum)

    # --- measurements

    def decoded(self, context: int, seconds: float) -> None:
        self._model.decoded(context)
        self._measured.append(lambda: self._own.observe(float(context), seconds))

    def received(self, message: Message) -> None:
        if isinstance(message, Draft):
            seconds = message.decode_time / 1e6
            self._measured.append(lambda: self._model.remote_decoded(seconds))

    def observe_acceptance(self, commit: Commit) -> None:
        self._measured.append(lambda: self._model.observe_acceptance(commit.expected, commit.accepted))

    def judged_before(self, accepted: Mapping[Side, bool]) -> None:
        """Take in a verdict of an earlier answer, known from the start."""
        self._model.observe_acceptance(None, accepted)

    def _returned(self, trip: float) -> None:
        self._outstanding -= 1
        self._link.observe(trip)
