"""The profiler: its thread turns the measurements of each connection into estimates (DRAGON §5.2, runtime)."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import TypeVar

from common.estimates.estimators import (
    DIGEST_PERIOD,
    TYPICAL_CONTEXT,
    Allowance,
    ClockDifference,
    ClockOffset,
    DecodeDelay,
    DecodeLine,
    Pace,
    PeerModel,
    RoundTrip,
    RoundTrips,
    RoundTripTime,
    SpeculationLimits,
    UsualWait,
)
from common.estimates.policy import Estimates
from common.process.threads import Died, vital_thread
from proto.messages import Hello, Probe, ProbeReply, Side

T = TypeVar("T")


class Histories:
    """One object of each kind, made when it is first asked for. For any thread."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, object] = {}
        self._lock = threading.Lock()

    def of(self, kind: type[T], name: str, make: Callable[[], T]) -> T:
        """The object of `kind` for the method `name`."""
        with self._lock:
            known = self._kept.get((kind, name))
            if not isinstance(known, kind):
                known = self._kept[kind, name] = make()
            return known


# --- link_meter
# The round trip of one connection, measured in-band.

KEPT = 256  # latest round trips, for whoever draws them: half a minute to two, while answers use the link
USED = 10.0  # seconds that a link counts as used after the latest sign of an answer


class LinkMeter:
    """Probes one connection and estimates its round trip. Any thread may call it."""

    def __init__(self, send: Callable[[Probe], object]) -> None:
        self._send = send
        self._trips = RoundTrips()
        self._round_trip = RoundTripTime()
        self._pace = Pace()
        self._clocks = ClockDifference()
        self._recent: deque[RoundTrip] = deque(maxlen=KEPT)
        self._used = -USED
        self._lock = threading.Lock()

    @property
    def rtt(self) -> float | None:
        """Seconds the next round trip is expected to take; None before the first sample."""
        with self._lock:
            return self._round_trip.estimate

    @property
    def longest(self) -> float | None:
        """Seconds that a round trip seldom exceeds; None before the first sample."""
        with self._lock:
            return self._round_trip.upper()

    @property
    def usual(self) -> float | None:
        """Seconds of a usual round trip, by the latest few; None before the first sample."""
        with self._lock:
            return self._round_trip.usual

    @property
    def changes(self) -> int:
        """Times that the way has become another one."""
        with self._lock:
            return self._round_trip.changes

    @property
    def clock(self) -> ClockOffset | None:
        """Lead of the other side's clock over this one's; None before the first sample."""
        with self._lock:
            return self._clocks.offset

    @property
    def recent(self) -> list[RoundTrip]:
        """The latest round trips."""
        with self._lock:
            return list(self._recent)

    def probe(self, now: float) -> None:
        """Send the next probe if it is time; `now` is monotonic, in seconds."""
        with self._lock:
            idle = now - self._used > USED
            if not self._pace.due(now, self._round_trip.settled, self._trips.outstanding, idle):
                return
            probe = self._trips.probe(_microseconds())
        self._send(probe)

    def use(self) -> None:
        """Note a sign of an answer over the link, whose round trip counts from now on."""
        self._used = time.monotonic()

    def spare(self, now: float) -> None:
        """Send no probe for a while: a round of an answer has just shown what the link does. They share its rate."""
        with self._lock:
            self._pace.spare(now)

    def replied(self, reply: ProbeReply) -> None:
        """Take in the reply to a probe."""
        with self._lock:
            trip = self._trips.reply(reply, _microseconds())
            if trip is not None:
                self._round_trip.observe(trip.rtt)
                self._clocks.observe(trip)
                self._recent.append(trip)


def _microseconds() -> int:
    return time.monotonic_ns() // 1000


# --- peer
# Estimates of the other side and of the link to it, from one connection's measurements (DRAGON §5.2, runtime).

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

    def ahead(
        self, maximum: int, most: int, trips: float | None, row: float, room: int, now: float
    ) -> SpeculationLimits:
        """Bounds of decoding ahead for this side, at `now`: `maximum` drafts, `most` prefixes per step at most.

        `trips` are round trips that a rejection waits for, 0 where drafts don't travel, None where branches are of no
        use; `row` is what one prefix more adds to a step, in seconds; `room` as in `SpeculationLimits`.
        """
        rtt, usual = self.meter.rtt, self.meter.usual
        if rtt is None or usual is None:
            return SpeculationLimits(self.run_ahead(maximum))
        self._allowance.observe(now, rtt, usual, self.meter.changes)
        trip = None if trips is None else trips * rtt
        rate = self._allowance.rate if trips else inf
        found = self._model.ahead(self.meter.longest, maximum, trip, most, row, rate)
        return replace(found, spare_tokens=room)


# --- profiler
# The profiler thread: turns measurements into the estimates that the scheduler decides by (DRAGON §5.2).


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
