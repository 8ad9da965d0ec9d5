"""Flow control: what a connection is sent waits until the other side has taken in most of what came before.

ZeroMQ's input is never stopped, so TCP doesn't hold back a sender whose receiver is slow; what is under way would
fill the receiver's memory. A probe is answered by the receiver's link once everything before it was taken in.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from common.process.accounts import TokenBucket
from common.transport.limits import Limits
from common.transport.probe import SEQUENCES
from proto.messages import Probe, ProbeReply

_PROBES: Final = 8  # in a window
PATIENCE: Final = 1.0  # seconds until a probe without an answer is repeated: it may have been lost


class SendWindow:
    """One connection's. The caller brings a monotonic clock in seconds."""

    __slots__ = ("_confirmed", "_limit", "_pace", "_probed", "_probed_at", "_sent", "_sequence", "_waiting")

    def __init__(self, limits: Limits, now: float) -> None:
        self._limit = limits.window_bytes
        self._pace = TokenBucket(limits.bytes_per_second, limits.bytes_burst, now)
        self._sent = 0  # bytes
        self._confirmed = 0  # of these
        self._probed = 0  # of these, before the latest probe
        self._probed_at = now
        self._sequence = 0
        self._waiting: deque[tuple[int, int]] = deque(maxlen=2 * _PROBES)  # probes and the bytes sent before each

    def full(self, size: int) -> bool:
        """Whether `size` more bytes have to wait for a reply. One message may always be under way."""
        under_way = self._sent - self._confirmed
        return under_way > 0 and under_way + size > self._limit

    def allows(self, size: int, now: float) -> bool:
        """Whether `size` more bytes may be sent now."""
        return not self.full(size) and self._pace.allows(now, size)

    def note(self, size: int, now: float) -> None:
        """So many bytes were sent."""
        self._pace.take(now, size)
        self._sent += size

    @property
    def confirmed(self) -> bool:
        """Whether the other side has taken in all that was sent."""
        return self._confirmed == self._sent

    def probe(self, now: float) -> Probe | None:
        """A probe to be sent now, if it is time."""
        under_way = self._sent - self._confirmed
        overdue = 2 * under_way > self._limit and now - self._probed_at >= PATIENCE
        if _PROBES * (self._sent - self._probed) < self._limit and not overdue:
            return None
        return self.last_probe(now)

    def last_probe(self, now: float) -> Probe:
        """A probe to be sent behind all the rest."""
        self._sequence = (self._sequence + 1) % SEQUENCES
        self._probed, self._probed_at = self._sent, now
        self._waiting.append((SEQUENCES + self._sequence, self._sent))
        return Probe(SEQUENCES + self._sequence, int(1e6 * now))

    def replied(self, reply: ProbeReply) -> bool:
        """Take in the reply to a probe; whether it is one of these, and not for those who measure the link."""
        if reply.sequence < SEQUENCES:
            return False
        if any(sequence == reply.sequence for sequence, _ in self._waiting):
            while self._waiting:
                sequence, self._confirmed = self._waiting.popleft()
                if sequence == reply.sequence:
                    break
        return True
