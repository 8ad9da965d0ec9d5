"""The round trip of one connection, measured in-band."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from common.estimates.round_trip import Pace, RoundTripTime
from common.transport.probe import ClockDifference, ClockOffset, RoundTrip, RoundTrips
from proto.messages import Probe, ProbeReply

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
