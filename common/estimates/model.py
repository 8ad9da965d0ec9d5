"""Estimates of both sides' speed and agreement over one connection, from one side's measurements (DRAGON §5.2).

The daemons and the simulator feed the same object, so that both decide by the same estimates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from common.estimates.ahead import Ahead, branches
from common.estimates.cost import Estimates
from common.estimates.estimators import Acceptance, DecodeDelay, DecodeLine
from common.estimates.policy import run_ahead
from proto.messages import Side

#

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
