"""The profiler thread: turns measurements into estimates (DRAGON §5.2, runtime)."""

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
    """One object per kind and method, for any thread."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, object] = {}
        self._lock = threading.Lock()

    def of(self, kind: type[T], name: str, make: Callable[[], T]) -> T:
        """The object of `kind` for method `name`, created on first use."""
        with self._lock:
            known = self._kept.get((kind, name))
            if not isinstance(known, kind):
                known = self._kept[kind, name] = make()
            return known


# --- link_meter

KEPT = 256  # for charts: 0.5 to 2 minutes of use
USED = 10.0  # seconds after an answer's latest sign


class LinkMeter:
    """Probes a connection in-band and estimates its round trip. For any thread."""

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
        """Expected seconds of the next trip; None before the first sample."""
        with self._lock:
            return self._round_trip.estimate

    @property
    def longest(self) -> float | None:
        """Seldom exceeded seconds; None before the first sample."""
        with self._lock:
            return self._round_trip.upper()

    @property
    def usual(self) -> float | None:
        """Usual seconds; None before the first sample."""
        with self._lock:
            return self._round_trip.usual

    @property
    def changes(self) -> int:
        """Changes of the path."""
        with self._lock:
            return self._round_trip.changes

    @property
    def clock(self) -> ClockOffset | None:
        """The other clock's lead; None before the first sample."""
        with self._lock:
            return self._clocks.offset

    @property
    def recent(self) -> list[RoundTrip]:
        with self._lock:
            return list(self._recent)

    def probe(self, now: float) -> None:
        """Send the next probe when due (monotonic seconds)."""
        with self._lock:
            idle = now - self._used > USED
            if not self._pace.due(now, self._round_trip.settled, self._trips.outstanding, idle):
                return
            probe = self._trips.probe(_microseconds())
        self._send(probe)

    def use(self) -> None:
        """Note an answer on the link."""
        self._used = time.monotonic()

    def spare(self, now: float) -> None:
        """Postpone the next probe: an answer's round has just measured the link."""
        with self._lock:
            self._pace.spare(now)

    def replied(self, reply: ProbeReply) -> None:
        with self._lock:
            trip = self._trips.reply(reply, _microseconds())
            if trip is not None:
                self._round_trip.observe(trip.rtt)
                self._clocks.observe(trip)
                self._recent.append(trip)


def _microseconds() -> int:
    return time.monotonic_ns() // 1000


# --- peer

log = logging.getLogger(__name__)

BACKLOG = 4096  # waiting measurements; older ones are dropped


class PeerEstimates:
    """One connection's round trip, remote decode time, and acceptance (DRAGON §5.2, runtime).

    Connections share nothing, as devices differ in speed and documents. Any thread may add measurements and read
    estimates; only the profiler calls `digest`.
    """

    def __init__(self, role: Side, own: DecodeDelay, remote: DecodeLine, send: Callable[[Probe], object]) -> None:
        """`own` and `remote` as in `PeerModel`; `send` sends probes."""
        self.meter = LinkMeter(send)
        self._model = PeerModel(role, own, remote)
        self._measured: deque[Callable[[], None]] = deque(maxlen=BACKLOG)  # calls that process a measurement
        self._allowance = Allowance()
        self._snapshot = self._model.estimates()
        self.histories = Histories()

    # --- measurements

    def decoded(self, context: int) -> None:
        """Note this side's step, `context` tokens in the longest row."""
        self._model.decoded(context)
        self.meter.use()

    def remote_decoded(self, seconds: float) -> None:
        """Note a reported step of the other side."""
        self._measured.append(partial(self._model.remote_decoded, seconds))

    def observe_acceptance(self, expected: tuple[float, float] | None, accepted: Mapping[Side, bool]) -> None:
        """Note known drafts' outcomes, and Eq. 5 of (device, cloud)."""
        self._measured.append(partial(self._model.observe_acceptance, expected, dict(accepted)))

    def digest(self) -> None:
        """Process new measurements."""
        while self._measured:
            try:
                self._measured.popleft()()
            except ValueError:
                log.warning("an impossible measurement was left out")
        self._snapshot = self._model.estimates()

    # --- estimates

    @property
    def estimates(self) -> Estimates:
        rtt = self.meter.rtt
        return self._snapshot if rtt is None else replace(self._snapshot, rtt=rtt)

    def waits(self, method: str) -> UsualWait:
        """Waits for the other side by `method`, on the scheduler's thread."""
        return self.histories.of(UsualWait, method, UsualWait)

    def run_ahead(self, maximum: int) -> int:
        """Drafts that keep this side busy during a verdict."""
        return self._model.run_ahead(self.meter.longest, maximum)

    def ahead(
        self, maximum: int, most: int, trips: float | None, row: float, room: int, now: float
    ) -> SpeculationLimits:
        """Limits of decoding ahead, within `maximum` drafts and `most` prefixes per step.

        `trips`: a rejection's round trips, 0 if drafts stay here, None if branches are useless. `row`: another prefix's
        cost in seconds. `room`: `SpeculationLimits.spare_tokens`.
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


class Profiler:
    """Updates this side's decode time and all connections' estimates on a thread; probes links."""

    def __init__(self, role: Side, line: DecodeLine, died: Died | None = None) -> None:
        self.role: Side = role
        self.line = line  # offline profile
        self._own = DecodeDelay(line)
        self.nobody = PeerEstimates(role, self._own, line, lambda probe: None)  # without a connection
        self._steps: deque[tuple[int, float]] = deque(maxlen=BACKLOG)
        self._peers: frozenset[PeerEstimates] = frozenset()
        self._peers_lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = vital_thread(self._run, "profiler", died)
        self._thread.start()

    def decoded(self, peer: PeerEstimates, context: int, seconds: float) -> None:
        """Note a step for `peer`, `context` tokens in the longest row. From any thread."""
        self._steps.append((context, seconds))
        peer.decoded(context)

    def watch(self, hello: Hello, send: Callable[[Probe], object]) -> PeerEstimates:
        """Start probing a new connection; `hello` is the other side's."""
        remote = DecodeLine.of(max(hello.decode_slope, 0.0), hello.decode_intercept, TYPICAL_CONTEXT)
        peer = PeerEstimates(self.role, self._own, remote, send)
        with self._peers_lock:
            self._peers |= {peer}
        return peer

    def forget(self, peer: PeerEstimates) -> None:
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
