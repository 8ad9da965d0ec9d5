"""The link as it is measured: UDP datagrams from the device's namespace to the cloud's and back.

Round trips are those of lone packets. The rate of a direction is that at which a train of packets arrives, which were
sent at once and fit into the link's buffer.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scripts.netlab.queueing import MOST_BACKLOG, PACKET
from scripts.netlab.setting import KILOBIT, Direction, LinkSetting, rate_text

PROBE: Final = struct.Struct("!Id48x")  # number and time of sending
HEADERS: Final = 28  # IP and UDP, bytes
PROBE_BYTES: Final = PROBE.size + HEADERS
SHORTEST_INTERVAL: Final = 0.002  # seconds between two probes
GRACE: Final = 0.5  # seconds beyond the longest round trip after which a packet counts as lost
TOLERANCE: Final = 0.05  # share of the setting by which the median, and the time a train takes, may be off
OVERHEAD: Final = 0.001  # seconds that the emulation itself may take

TRAIN: Final = 0.8 * MOST_BACKLOG  # seconds that a train takes at the rate, at most
FEWEST, MOST = 10, 100  # its packets, if it can have as many in that time
SHORTEST: Final = 64  # bytes of one
UNLIMITED: Final = 1e6  # bytes per second that a direction without a limit has at least; how many more is the machine's


@dataclass(frozen=True, slots=True)
class Train:
    """A train of packets of one direction: seconds between the arrival of the first and the last, and bytes of the IP
    packets behind the first; none if less than two arrived."""

    direction: Direction
    seconds: float
    bytes: int

    @property
    def rate(self) -> float | None:
        """Bytes per second; None if nothing can be told."""
        return self.bytes / self.seconds if self.bytes and self.seconds > 0 else None

    def good(self, setting: LinkSetting) -> bool:
        """Whether it took as long as the setting wants, but for what jitter does to its ends."""
        way = setting.one_way(self.direction)
        if not self.bytes:
            return way.loss > 0
        tolerated = OVERHEAD + 2 * way.jitter * way.delay
        if way.rate is None:
            return self.seconds <= self.bytes / UNLIMITED + tolerated
        expected = self.bytes / way.rate
        return abs(self.seconds - expected) <= TOLERANCE * expected + tolerated


@dataclass(frozen=True, slots=True)
class Check:
    """Round trips in seconds, as they came back, how many of `sent` probes did not, and a train of each direction."""

    setting: LinkSetting
    sent: int
    samples: tuple[float, ...]
    trains: tuple[Train, Train]

    @property
    def lost(self) -> int:
        return self.sent - len(self.samples)

    def quantile(self, share: float) -> float:
        """Seconds. Raises `ValueError` when nothing came back."""
        if not self.samples:
            raise ValueError("no probe came back")
        ordered = sorted(self.samples)
        return ordered[round(share * (len(ordered) - 1))]

    def expected(self, share: float) -> float:
        """The value that `quantile` should have by the setting."""
        return self.setting.round_trip_quantile(share, PROBE_BYTES)

    @property
    def good(self) -> bool:
        """Whether the median and both rates are the setting's; without samples, whether none were to be expected."""
        if not self.samples:
            return self.setting.loss == 1.0
        deviation = abs(self.quantile(0.5) - self.expected(0.5))
        return deviation <= TOLERANCE * self.expected(0.5) + OVERHEAD and all(
            train.good(self.setting) for train in self.trains
        )


def measure(device: socket.socket, cloud: socket.socket, setting: LinkSetting, count: int) -> Check:
    """Send `count` probes so far apart that none has to wait for another one's delay, then a train each way.

    Both are UDP sockets, connected to each other.
    """
    interval = max(SHORTEST_INTERVAL, 2.2 * setting.rtt / 2 * setting.jitter)
    for rate in (setting.uplink, setting.downlink):
        if rate is not None:
            interval = max(interval, 2 * PROBE_BYTES / rate)
    longest = setting.round_trip_quantile(1.0, PROBE_BYTES) + GRACE
    begun = time.monotonic()
    samples: list[float] = []
    sent = 0
    while True:
        now = time.monotonic()
        if sent < count and now >= begun + sent * interval:
            device.send(PROBE.pack(sent, now))
            sent += 1
        until = begun + sent * interval if sent < count else begun + (count - 1) * interval + longest
        if len(samples) == count or (sent == count and now >= until):
            break
        for ready in select.select([device, cloud], [], [], max(0.0, until - now))[0]:
            if ready is cloud:
                cloud.send(cloud.recv(PROBE.size))
            else:
                _, at = PROBE.unpack(device.recv(PROBE.size))
                samples.append(time.monotonic() - at)
    trains = _train("uplink", device, cloud, setting), _train("downlink", cloud, device, setting)
    return Check(setting, count, tuple(samples), trains)


def train_of(rate: float | None) -> tuple[int, int]:
    """Number of packets of a train, and bytes of each: at low rates short ones, so that there are enough."""
    if rate is None:
        return MOST, PACKET
    size = round(min(max(TRAIN * rate / FEWEST, SHORTEST), PACKET))
    return min(max(int(TRAIN * rate / size), 2), MOST), size


def _train(direction: Direction, source: socket.socket, target: socket.socket, setting: LinkSetting) -> Train:
    way = setting.one_way(direction)
    count, size = train_of(way.rate)
    longest = way.delay * (1 + way.jitter) + (count * size / way.rate if way.rate else 0.0) + GRACE
    arrivals: list[float] = []
    sent = 0
    until = time.monotonic() + longest
    while len(arrivals) < count and (now := time.monotonic()) < until:
        if sent < count:
            source.send(bytes(size - HEADERS))
            sent += 1
            until = now + longest
        # What has arrived is taken out while sending: the socket's buffer may hold less than a train.
        while select.select([target], [], [], 0.0 if sent < count else max(0.0, until - time.monotonic()))[0]:
            target.recv(PACKET)
            arrivals.append(time.monotonic())
            if len(arrivals) == count:
                break
    if len(arrivals) < 2:
        return Train(direction, 0.0, 0)
    return Train(direction, arrivals[-1] - arrivals[0], (len(arrivals) - 1) * size)


def report(check: Check) -> str:
    """Setting and measurement side by side, for people."""
    lines = [f"setting   {check.setting}", f"probes    {check.sent}, of which {check.lost} did not come back"]
    if check.samples:
        lines.append(f"expected  {_quantiles(check.expected)}")
        lines.append(f"measured  {_quantiles(check.quantile)}")
    for train in check.trains:
        rate = "not measured" if train.rate is None else f"{train.rate / KILOBIT:,.1f} kb/s measured"
        lines.append(f"{train.direction:9} {rate}, {rate_text(check.setting.one_way(train.direction).rate)} set")
    lines.append("the link does what it was set to" if check.good else "THE LINK DOES NOT DO WHAT IT WAS SET TO")
    return "\n".join(lines)


def _quantiles(quantile: Callable[[float], float]) -> str:
    low, middle, high = (f"{quantile(share) * 1000:.2f}" for share in (0.05, 0.5, 0.95))
    return f"median {middle} ms, 5 % below {low} ms, 95 % below {high} ms"
