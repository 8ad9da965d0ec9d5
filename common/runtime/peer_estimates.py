"""What one connection has shown of the other side, and of the way to it (DRAGON §5.2, runtime stage)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from common.runtime.link_meter import LinkMeter
from common.runtime.notes import Judged, Measurement, RemoteDecoded
from common.scheduling.estimators import Acceptance, DecodeDelay, DecodeLine
from common.scheduling.policy import Estimates, run_ahead
from common.speculation.values import OTHER, Commit
from proto.messages import Probe, Side

log = logging.getLogger(__name__)

BACKLOG = 4096  # measurements that wait at most; older ones are worth less than a stall
TYPICAL_CONTEXT = 256.0  # tokens; where a line without a measured context is pinned


class PeerEstimates:
    """The round trip, the other side's decode time, and whose drafts become targets, of one connection.

    One cloud has devices of different speed and with different documents: none of this may be shared between them.
    Measurements come from any thread, `digest` is called by the profiler's, estimates are for any thread.
    """

    def __init__(self, role: Side, own: DecodeDelay, remote: DecodeLine, send: Callable[[Probe], object]) -> None:
        """`own` is this side's decode time, which all its connections share; `remote` the other side's profile."""
        self.meter = LinkMeter(send)
        self._role: Side = role
        self._own = own
        self._remote = DecodeDelay(remote)
        self._acceptance = Acceptance()
        self._context = TYPICAL_CONTEXT
        self._measured: deque[Measurement] = deque(maxlen=BACKLOG)
        self._snapshot = self._estimate()

    # --- measurements

    def decoded(self, context: int) -> None:
        """This side made a step for an answer of this connection, at `context` tokens in its longest row."""
        self._context = float(context)

    def remote_decoded(self, seconds: float) -> None:
        """The other side says how long its step took."""
        self._measured.append(RemoteDecoded(seconds))

    def judged(self, commit: Commit) -> None:
        """A position was decided; of the drafts known here, it is known which was right."""
        self._measured.append(Judged(commit.expected, dict(commit.accepted)))

    def digest(self) -> None:
        """Take in what was measured since the last call."""
        while self._measured:
            try:
                self._take(self._measured.popleft())
            except ValueError:
                log.warning("an impossible measurement was left out")
        self._snapshot = self._estimate()

    # --- estimates

    @property
    def estimates(self) -> Estimates:
        """The latest of everything."""
        rtt = self.meter.rtt
        return self._snapshot if rtt is None else replace(self._snapshot, rtt=rtt)

    def run_ahead(self, maximum: int) -> int:
        """Drafts this side should hold beyond the committed prefix to be busy while a verdict is under way."""
        longest = self.meter.longest
        own, other = self._snapshot.device_decode, self._snapshot.cloud_decode
        if self._role == "cloud":
            own, other = other, own
        if longest is None or own <= 0.0:
            return maximum
        # The verdict on a draft comes no sooner than the slower side's draft for the same position.
        return run_ahead(longest + other, own, maximum, self._acceptance.at_most(self._role))

    def _take(self, measurement: Measurement) -> None:
        match measurement:
            case RemoteDecoded(seconds):
                # Its context is not told; the two sides' rows are about equally long.
                self._remote.observe(self._context, seconds)
            case Judged(expected, accepted):
                alphas = {"device": expected[0], "cloud": expected[1]} if expected else accepted
                for side in OTHER:
                    if side in alphas:
                        self._acceptance.observe(side, float(alphas[side]))

    def _estimate(self) -> Estimates:
        delays = {self._role: self._own, OTHER[self._role]: self._remote}
        return Estimates(
            delays["device"].predict(self._context),
            delays["cloud"].predict(self._context),
            0.0,  # the meter has it
            self._acceptance.of("device"),
            self._acceptance.of("cloud"),
        )
