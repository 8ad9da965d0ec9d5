"""Estimates of the other side and of the link to it, from one connection's measurements (DRAGON §5.2, runtime)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from common.estimates.ahead import Ahead, Allowance, branches
from common.estimates.cost import Estimates
from common.estimates.estimators import Acceptance, DecodeDelay, DecodeLine, UsualWait
from common.estimates.histories import Histories
from common.estimates.link_meter import LinkMeter
from common.estimates.policy import run_ahead
from proto.messages import Probe, Side

# --- peer_model
# Estimates of both sides' speed and agreement over one connection, from one side's measurements (DRAGON §5.2).
#
# The daemons and the simulator feed the same object, so that both decide by the same estimates.

DIGEST_PERIOD: Final = 0.1  # seconds between two looks at what was measured
TYPICAL_CONTEXT: Final = 256.0  # tokens; where a line without a measured context is pinned

SIDES: Final[tuple[Side, Side]] = ("device", "cloud")


class PeerModel:
    """Decode times of both sides and acceptance rates of their drafts, as `role` sees them. One thread feeds it."""

    def __init__(self, role: Side, own: DecodeDelay, remote: DecodeLine) -> None:
        """`own` is this side's decode time, which all its connections share; `remote` the other side's profile."""
        self.role: Side = role
        self._own = own
        self._remote = DecodeDelay(remote)
        self._context = TYPICAL_CONTEXT
        self._acceptance = Acceptance()

    def decoded(self, context: int) -> None:
        """Note a decode step of this side for this connection, at `context` tokens in its longest row."""
        self._context = float(context)

    def remote_decoded(self, seconds: float) -> None:
        """Take in the step time that the other side reports. Raises `ValueError` for an impossible number."""
        # Its context is not told; the two sides' rows are about equally long.
        self._remote.observe(self._context, seconds)

    def observe_acceptance(self, expected: tuple[float, float] | None, accepted: Mapping[Side, bool]) -> None:
        """Take in a decided position: Eq. 5 of (device, cloud) if there is one, else outcomes of the known drafts."""
        alphas = accepted if expected is None else dict(zip(SIDES, expected, strict=True))
        for side, alpha in alphas.items():
            self._acceptance.observe(side, float(alpha))

    def estimates(self, rtt: float = 0.0) -> Estimates:
        """The current inputs of Eq. 7."""
        own, remote = self._own.predict(self._context), self._remote.predict(self._context)
        device, cloud = (own, remote) if self.role == "device" else (remote, own)
        return Estimates(device, cloud, rtt, self._acceptance.of("device"), self._acceptance.of("cloud"))

    def run_ahead(self, longest: float | None, maximum: int) -> int:
        """Drafts this side should hold beyond the committed prefix to be busy while a verdict is under way.

        `longest` is a round trip that is seldom exceeded, None as long as nothing is known of it.
        """
        own, other = self._own.predict(self._context), self._remote.predict(self._context)
        if longest is None or own <= 0.0:
            return maximum
        # The verdict on a draft comes no sooner than the slower side's draft for the same position.
        return run_ahead(longest + other, own, maximum, self._acceptance.at_most(self.role))

    def ahead(
        self, longest: float | None, maximum: int, trip: float | None, most: int, row: float, rate: float
    ) -> Ahead:
        """Bounds of decoding ahead for this side: `maximum` drafts and `most` prefixes per step at most.

        `trip` is how long a rejection waits for the network, None where branches are of no use; `row` what one prefix
        more adds to a step, both in seconds; `rate` are branches per second that the connection carries.
        """
        drafts = self.run_ahead(longest, maximum)
        if trip is None or longest is None:
            return Ahead(drafts)
        own, other = self._own.predict(self._context), self._remote.predict(self._context)
        carried = rate * own if own > 0.0 else 0.0  # of a step; a rate without a bound has no product with 0
        return branches(drafts, min(most, 1 + int(min(carried, most))), own, other, trip, row)


# --- peer_estimates

log = logging.getLogger(__name__)

BACKLOG = 4096  # measurements that wait at most; older ones are worth less than a stall


class PeerEstimates:
    """Round trip, the other side's decode time, and acceptance rates of both sides' drafts, of one connection.

    A cloud's devices differ in speed and in their documents, so their connections share none of this. Any thread may
    hand in measurements and read estimates; only the profiler's calls `digest`.
    """

    def __init__(self, role: Side, own: DecodeDelay, remote: DecodeLine, send: Callable[[Probe], object]) -> None:
        """`own` and `remote` as `PeerModel` has them; `send` takes the probes."""
        self.meter = LinkMeter(send)
        self._model = PeerModel(role, own, remote)
        self._measured: deque[Callable[[], None]] = deque(maxlen=BACKLOG)  # what takes in a measurement
        self._allowance = Allowance()
        self._snapshot = self._model.estimates()
        self.histories = Histories()

    # --- measurements

    def decoded(self, context: int) -> None:
        """Note a step of this side for an answer of this connection, at `context` tokens in its longest row."""
        self._model.decoded(context)
        self.meter.use()

    def remote_decoded(self, seconds: float) -> None:
        """Note the time that the other side reports for one of its decode steps."""
        self._measured.append(partial(self._model.remote_decoded, seconds))

    def observe_acceptance(self, expected: tuple[float, float] | None, accepted: Mapping[Side, bool]) -> None:
        """Note which of the drafts known at a position were accepted, and what Eq. 5 expects of (device, cloud)."""
        self._measured.append(partial(self._model.observe_acceptance, expected, dict(accepted)))

    def digest(self) -> None:
        """Take in what was measured since the last call."""
        while self._measured:
            try:
                self._measured.popleft()()
            except ValueError:
                log.warning("an impossible measurement was left out")
        self._snapshot = self._model.estimates()

    # --- estimates

    @property
    def estimates(self) -> Estimates:
        """The latest estimates."""
        rtt = self.meter.rtt
        return self._snapshot if rtt is None else replace(self._snapshot, rtt=rtt)

    def waits(self, method: str) -> UsualWait:
        """Waits of answers by `method` for the other side. For the scheduler's thread only."""
        return self.histories.of(UsualWait, method, UsualWait)

    def run_ahead(self, maximum: int) -> int:
        """Drafts this side should hold beyond the committed prefix to be busy while a verdict is under way."""
        return self._model.run_ahead(self.meter.longest, maximum)

    def ahead(self, maximum: int, most: int, trips: float | None, row: float, room: int, now: float) -> Ahead:
        """Bounds of decoding ahead for this side, at `now`: `maximum` drafts, `most` prefixes per step at most.

        `trips` are round trips that a rejection waits for, 0 where drafts don't travel, None where branches are of no
        use; `row` is what one prefix more adds to a step, in seconds; `room` as in `Ahead`.
        """
        rtt, usual = self.meter.rtt, self.meter.usual
        if rtt is None or usual is None:
            return Ahead(self.run_ahead(maximum))
        self._allowance.observe(now, rtt, usual, self.meter.changes)
        trip = None if trips is None else trips * rtt
        rate = self._allowance.rate if trips else inf
        found = self._model.ahead(self.meter.longest, maximum, trip, most, row, rate)
        return replace(found, room=room)
