"""The profiler thread: turns measurements into the estimates that the scheduler decides by (DRAGON §5.2)."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from common.estimates.estimators import DecodeDelay, DecodeLine
from common.estimates.model import DIGEST_PERIOD, TYPICAL_CONTEXT
from common.estimates.peer import BACKLOG, PeerEstimates
from common.process.threads import Died, vital_thread
from proto.messages import Hello, Probe, Side

log = logging.getLogger(__name__)


class Profiler:
    """Estimates of this side's decode time and of each connection, kept up to date by a thread; it also probes the
    links.
    """

    def __init__(self, role: Side, line: DecodeLine, died: Died | None = None) -> None:
        self.role: Side = role
        self.line = line  # this side's, as profiled offline
        self._own = DecodeDelay(line)
        self.nobody = PeerEstimates(role, self._own, line, lambda probe: None)  # while there is no connection
        self._steps: deque[tuple[int, float]] = deque(maxlen=BACKLOG)
        self._peers: frozenset[PeerEstimates] = frozenset()
        self._peers_lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = vital_thread(self._run, "profiler", died)
        self._thread.start()

    def decoded(self, peer: PeerEstimates, context: int, seconds: float) -> None:
        """Note a step of this side for an answer of `peer`, at `context` tokens in its longest row. From any thread."""
        self._steps.append((context, seconds))
        peer.decoded(context)

    def watch(self, hello: Hello, send: Callable[[Probe], object]) -> PeerEstimates:
        """Estimates of a new connection, probed from now on by means of `send`; `hello` is the other side's."""
        remote = DecodeLine.of(max(hello.decode_slope, 0.0), hello.decode_intercept, TYPICAL_CONTEXT)
        peer = PeerEstimates(self.role, self._own, remote, send)
        with self._peers_lock:
            self._peers |= {peer}
        return peer

    def forget(self, peer: PeerEstimates) -> None:
        """Stop probing a connection that is gone."""
        with self._peers_lock:
            self._peers -= {peer}

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(DIGEST_PERIOD):
            now = time.monotonic()
            while self._steps:
                context, seconds = self._steps.popleft()
                try:
                    self._own.observe(float(context), seconds)
                except ValueError:
                    log.warning("an impossible measurement was left out")
            for peer in self._peers:
                peer.meter.probe(now)
                peer.digest()
