"""Round-trip times measured in-band, and what they tell about the other side's clock."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass

from proto.messages import Probe, ProbeReply

SEQUENCES = 2**31  # of probes that measure; those from here to 2^32 are the link's own, for flow control
# Latest round trips of which the shortest tells the clocks apart, and microseconds for which they do: clocks drift.
_BEST_OF, _LATEST = 32, 16_000_000


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One sample. Times are microseconds of this side's monotonic clock, `received` of the other's."""

    sent: int
    received: int  # when the other side saw the probe
    back: int

    @property
    def rtt(self) -> float:
        """Round-trip time, seconds."""
        return (self.back - self.sent) / 1e6


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """Offset of the other side's monotonic clock: `ahead` of this one's, nanoseconds.

    Exact when both directions took equally long; else wrong by half of the difference, which is at most
    `uncertainty`: half of the round trip.
    """

    ahead: int
    uncertainty: int


class ClockDifference:
    """The offset of the other side's clock, from the shortest of the recent round trips.

    That one had least time in queues, so the least that the two directions can differ by.
    """

    def __init__(self) -> None:
        self._recent: deque[RoundTrip] = deque(maxlen=_BEST_OF)

    def observe(self, trip: RoundTrip) -> None:
        self._recent.append(trip)
        while self._recent[0].sent < trip.sent - _LATEST:
            self._recent.popleft()

    @property
    def offset(self) -> ClockOffset | None:
        """The offset; None before the first sample."""
        best = min(self._recent, key=lambda trip: trip.back - trip.sent, default=None)
        if best is None:
            return None
        # Half microseconds are 500 ns.
        return ClockOffset(500 * (2 * best.received - best.sent - best.back), 500 * (best.back - best.sent))


class RoundTrips:
    """Makes probes and reads their replies; the caller brings a monotonic clock in microseconds.

    One object per connection: a new peer's clock starts elsewhere.
    """

    def __init__(self, outstanding: int = 16) -> None:
        if outstanding < 1:
            raise ValueError(f"outstanding must be at least 1, not {outstanding}.")
        self._limit = outstanding
        self._waiting: OrderedDict[int, int] = OrderedDict()  # sequence -> sent
        self._next = 0
        self._latest = -1  # when the latest probe was sent that came back

    @property
    def outstanding(self) -> int:
        """Probes under way; those before one that came back are taken to be lost, though late replies count."""
        return sum(sent > self._latest for sent in self._waiting.values())

    def probe(self, now: int) -> Probe:
        """The next probe, sent at `now`."""
        probe = Probe(self._next, now)
        self._next = (self._next + 1) % SEQUENCES
        self._waiting[probe.sequence] = now
        if len(self._waiting) > self._limit:
            self._waiting.popitem(last=False)
        return probe

    def reply(self, reply: ProbeReply, now: int) -> RoundTrip | None:
        """The sample of a reply that arrived at `now`; None if it was not asked for, or seen before."""
        sent = self._waiting.get(reply.sequence)
        if sent is None or sent != reply.sent or now < sent:
            return None
        del self._waiting[reply.sequence]
        self._latest = max(self._latest, sent)
        return RoundTrip(sent, reply.received, now)


def reply_to_probe(probe: Probe, now: int) -> ProbeReply:
    """The reply to a probe that arrived at `now` (microseconds of the replier's monotonic clock)."""
    return ProbeReply(probe.sequence, probe.sent, now)
