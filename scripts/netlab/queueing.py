"""One direction of the emulated link, without a clock or a kernel: which packets leave it, and when."""

from __future__ import annotations

from collections import deque
from random import Random

from scripts.netlab.setting import OneWay

PACKET = 1500  # bytes of a full packet, the interfaces' MTU
MOST_PACKETS = 20_000  # waiting in one direction: 30 MB of full packets
MOST_BACKLOG = 1.0  # seconds of waiting for the rate; routers drop what does not fit into their buffer, too


class LinkQueue:
    """First in, first out, whatever the jitter: TCP segments of a connection arrive in the order they were sent.

    A packet is sent at `rate` when those before it are, then travels for its delay and overtakes nobody. So packets
    that follow each other more closely than the jitter is wide wait for the slowest before them, as in the kernel's
    sch_netem with a rate. A changed setting holds for packets that come from then on.
    """

    def __init__(self, setting: OneWay, random: Random) -> None:
        self.setting = setting
        self._random = random
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._sent = 0.0  # when the last packet is sent, the next one may be
        self._departure = 0.0  # of the last packet

    def offer(self, now: float, packet: bytes) -> float | None:
        """Take in a packet; the time (seconds, of the caller's clock) at which it leaves, None if it is dropped."""
        setting = self.setting
        if setting.loss and self._random.random() < setting.loss:
            return None
        if len(self._waiting) >= MOST_PACKETS:
            return None
        sent = now
        if setting.rate is not None:
            begun = max(now, self._sent)
            if begun - now > MOST_BACKLOG:
                return None
            self._sent = sent = begun + len(packet) / setting.rate
        delay = setting.delay
        if setting.jitter:
            delay *= 1 + setting.jitter * (2 * self._random.random() - 1)
        self._departure = max(sent + delay, self._departure)
        self._waiting.append((self._departure, packet))
        return self._departure

    def due(self, now: float) -> list[bytes]:
        """Take out what has left by `now`, in order."""
        packets = []
        while self._waiting and self._waiting[0][0] <= now:
            packets.append(self._waiting.popleft()[1])
        return packets

    @property
    def next(self) -> float | None:
        """Time at which the next packet leaves; None while nothing waits."""
        return self._waiting[0][0] if self._waiting else None
