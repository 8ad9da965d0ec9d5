"""Limits on the cost of one peer: bounds of the link, and the token bucket that enforces a rate."""

from __future__ import annotations

from dataclasses import dataclass

from proto.framing import HEADER_LIMIT, LARGEST_PAYLOAD, PAYLOAD_LIMIT

_CURVE_OVERHEAD = 64  # bytes; an encrypted frame carries a command name, a nonce and a tag


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a link; seconds and bytes. `queue_*`, `messages_*` and `errors_*` are per peer."""

    payload_bytes: int = PAYLOAD_LIMIT  # both sides must allow what one of them sends
    queue_messages: int = 8192  # a whole run-ahead of drafts fits in
    queue_bytes: int = 2**23
    high_water_mark: int = 256  # messages inside ZeroMQ per peer and direction; the rest waits in our queue
    messages_per_second: float = 5000.0
    messages_burst: float = 10000.0
    errors_per_second: float = 5.0  # answers to malformed messages
    peers: int = 1024
    strangers: int = 512  # connections that have not sent a message yet; beyond, the oldest goes
    heartbeat_interval: float = 1.0
    heartbeat_timeout: float = 3.0
    connect_timeout: float = 5.0  # TCP connection and handshake together
    backoff_first: float = 0.02
    backoff_last: float = 2.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"Link limit {name} is {getattr(self, name)!r}; it must be above zero.")
        if self.payload_bytes > LARGEST_PAYLOAD:
            raise ValueError(f"Link limit payload_bytes must be at most {LARGEST_PAYLOAD}.")

    @property
    def frame_bytes(self) -> int:
        """Bytes of the longest frame that ZeroMQ accepts; a peer that sends a longer one is disconnected."""
        return HEADER_LIMIT + self.payload_bytes + _CURVE_OVERHEAD


DEFAULT_LIMITS = Limits()


class TokenBucket:
    """Allows `rate` events per second on average, `burst` at once. The caller brings the clock (seconds)."""

    __slots__ = ("_burst", "_level", "_rate", "_updated")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._updated = now

    def take(self, now: float) -> bool:
        """Whether one more event is allowed at `now`; a refused event costs nothing."""
        self._level = min(self._burst, self._level + max(0.0, now - self._updated) * self._rate)
        self._updated = now
        if self._level < 1.0:
            return False
        self._level -= 1.0
        return True

    def full(self, now: float) -> bool:
        """Whether a new bucket would behave the same, so that this one can be forgotten."""
        return self._level + (now - self._updated) * self._rate >= self._burst
