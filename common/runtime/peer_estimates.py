"""What one connection has shown of the other side, and of the way to it (DRAGON §5.2, runtime stage)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from common.runtime.link_meter import LinkMeter
from common.runtime.notes import Judged, Measurement, RemoteDecoded
from common.scheduling.estimators import DecodeDelay, DecodeLine
from common.scheduling.knowledge import Knowledge
from common.scheduling.policy import Estimates
from common.speculation.values import Commit
from proto.messages import Probe, Side

log = logging.getLogger(__name__)

BACKLOG = 4096  # measurements that wait at most; older ones are worth less than a stall


class PeerEstimates:
    """The round trip, the other side's decode time, and whose drafts become targets, of one connection.

    One cloud has devices of different speed and with different documents: none of this may be shared between them.
    Measurements come from any thread, `digest` is called by the profiler's, estimates are for any thread.
    """

    def __init__(self, role: Side, own: DecodeDelay, remote: DecodeLine, send: Callable[[Probe], object]) -> None:
        """`own` and `remote` as `Knowledge` has them; `send` takes the probes."""
        self.meter = LinkMeter(send)
        self._knowledge = Knowledge(role, own, remote)
        self._measured: deque[Measurement] = deque(maxlen=BACKLOG)
        self._snapshot = self._knowledge.estimates()

    # --- measurements

    def decoded(self, context: int) -> None:
        """This side made a step for an answer of this connection, at `context` tokens in its longest row."""
        self._knowledge.decoded(context)

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
                match self._measured.popleft():
                    case RemoteDecoded(seconds):
                        self._knowledge.remote_decoded(seconds)
                    case Judged(expected, accepted):
                        self._knowledge.judged(expected, accepted)
            except ValueError:
                log.warning("an impossible measurement was left out")
        self._snapshot = self._knowledge.estimates()

    # --- estimates

    @property
    def estimates(self) -> Estimates:
        """The latest of everything."""
        rtt = self.meter.rtt
        return self._snapshot if rtt is None else replace(self._snapshot, rtt=rtt)

    def run_ahead(self, maximum: int) -> int:
        """Drafts this side should hold beyond the committed prefix to be busy while a verdict is under way."""
        return self._knowledge.run_ahead(self.meter.longest, maximum)
