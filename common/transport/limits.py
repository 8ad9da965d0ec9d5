"""Limits on the cost of one peer: bounds of the link, and the token bucket that enforces a rate."""

from __future__ import annotations

from dataclasses import dataclass

from common.process.accounts import TokenBucket
from proto.framing import HEADER_LIMIT, LARGEST_PAYLOAD, PAYLOAD_LIMIT

_RAW_TOKEN = 4  # bytes of a token in codec `raw`
_RAW_HEADER = 64  # bytes, generously
_CURVE_OVERHEAD = 64  # bytes; an encrypted frame carries a command name, a nonce and a tag


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a link; seconds and bytes. All are per peer, but `peers`, `strangers` and those that are times."""

    payload_bytes: int = PAYLOAD_LIMIT  # both sides must allow what one of them sends
    queue_messages: int = 8192  # a whole run-ahead of drafts fits in
    queue_bytes: int = 2**23
    window_bytes: int = 2**23  # under way to a peer; who has twice as many under way to this side is cut
    high_water_mark: int = 256  # messages on their way out inside ZeroMQ per peer; the rest waits in our queue
    messages_per_second: float = 5000.0
    messages_burst: float = 10000.0
    bytes_per_second: float = 2.0**28  # that are sent; twice as many may come
    bytes_burst: float = 2.0**27
    refused_per_second: float = 100.0  # messages above these rates, which are dropped; above this one the peer is cut
    refused_burst: float = 2000.0
    errors_per_second: float = 5.0  # answers to malformed messages
    work_per_second: float = 0.5  # seconds of a cloud's link thread, for messages of one device
    work_burst: float = 1.0
    peers: int = 1024
    strangers: int = 512  # connections that have not sent a message yet; beyond, the oldest goes
    heartbeat_interval: float = 1.0
    heartbeat_timeout: float = 3.0  # without a byte, beside the time that the handshake took
    connect_timeout: float = 5.0  # without a byte, at the first attempt; doubled after each in vain
    connect_timeout_last: float = 20.0  # with more, whoever is back would be found late: TCP asks ever more seldom
    handshake_timeout: float = 60.0  # in all
    backoff_first: float = 0.02
    backoff_last: float = 2.0
    pause_first: float = 1.0  # for a peer that was cut for what it sent; doubled each time
    pause_last: float = 60.0

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


def largest_payload(vocabulary: int) -> int:
    """Bytes of a payload that daemons with so many tokens take: a whole distribution in codec `raw`."""
    return max(PAYLOAD_LIMIT, min(_RAW_TOKEN * vocabulary + _RAW_HEADER, LARGEST_PAYLOAD))


class Quota:
    """Messages and bytes that a peer may send, and how much more is forgiven."""

    __slots__ = ("_bytes", "_messages", "_refused")

    def __init__(self, limits: Limits, now: float) -> None:
        self._messages = TokenBucket(limits.messages_per_second, limits.messages_burst, now)
        # What was sent at the rate allowed may arrive at once, where the network stood still.
        self._bytes = TokenBucket(2 * limits.bytes_per_second, 2 * limits.bytes_burst, now)
        self._refused = TokenBucket(limits.refused_per_second, limits.refused_burst, now)

    def take(self, now: float, size: int) -> bool:
        """Whether one more message, of `size` bytes, is allowed."""
        return self._bytes.allows(now, size) and self._messages.take(now) and self._bytes.take(now, size)

    def forgives(self, now: float) -> bool:
        """Whether a refused message is to be left at that; False if the peer goes too far."""
        return self._refused.take(now)

    def full(self, now: float) -> bool:
        """Whether a new one would behave the same."""
        return all(bucket.full(now) for bucket in (self._messages, self._bytes, self._refused))


class Pauses:
    """Exclusion of those who went too far, by name: each time twice as long, until all is forgiven."""

    def __init__(self, first: float, last: float) -> None:
        self._first = first
        self._last = last
        self._pauses: dict[str, tuple[float, float]] = {}  # name -> when it began, seconds

    def begin(self, name: str, now: float) -> float:
        """Begin a pause; its length in seconds."""
        self._pauses = {each: pause for each, pause in self._pauses.items() if not self._forgiven(pause, now)}
        before = self._pauses.get(name)
        seconds = self._first if before is None else min(2 * before[1], self._last)
        self._pauses[name] = now, seconds
        return seconds

    def lasts(self, name: str, now: float) -> bool:
        began, seconds = self._pauses.get(name, (0.0, 0.0))
        return now < began + seconds

    def _forgiven(self, pause: tuple[float, float], now: float) -> bool:
        began, seconds = pause
        return now > began + seconds + self._last
