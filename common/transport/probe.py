"""Round-trip times measured in-band."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from proto.messages import Probe, ProbeReply

_SEQUENCES = 2**32


@dataclass(frozen=True, slots=True)
class RoundTrip:
    """One sample, in seconds."""

    rtt: float
    # How much longer the way took than the shortest so far. The clocks of two machines differ by an unknown
    # constant, so a one-way delay itself can't be known, but its changes can.
    outward_change: float
    return_change: float


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
        self._outward_least: int | None = None
        self._return_least: int | None = None

    @property
    def outstanding(self) -> int:
        """Probes without a reply; the oldest are given up beyond the bound."""
        return len(self._waiting)

    def probe(self, now: int) -> Probe:
        """The next probe, sent at `now`."""
        probe = Probe(self._next, now)
        self._next = (self._next + 1) % _SEQUENCES
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
        outward = reply.received - sent
        homeward = now - reply.received
        self._outward_least = _least(self._outward_least, outward)
        self._return_least = _least(self._return_least, homeward)
        return RoundTrip(
            rtt=(now - sent) / 1e6,
            outward_change=(outward - self._outward_least) / 1e6,
            return_change=(homeward - self._return_least) / 1e6,
        )


def answer(probe: Probe, now: int) -> ProbeReply:
    """The reply to a probe that arrived at `now` (microseconds of the replier's monotonic clock)."""
    return ProbeReply(probe.sequence, probe.sent, now)


def _least(known: int | None, value: int) -> int:
    return value if known is None else min(known, value)
