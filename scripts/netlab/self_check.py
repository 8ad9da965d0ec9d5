"""The link as it is measured: UDP datagrams from the device's namespace to the cloud's and back."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from scripts.netlab.setting import LinkSetting

PROBE = struct.Struct("!Id48x")  # number and time of sending
HEADERS = 28  # IP and UDP, bytes
PROBE_BYTES = PROBE.size + HEADERS
SHORTEST_INTERVAL = 0.002  # seconds between two probes
GRACE = 0.5  # seconds beyond the longest round trip after which a probe counts as lost
TOLERANCE = 0.05  # share of the setting by which the median may be off
OVERHEAD = 0.001  # seconds that the emulation itself may take


@dataclass(frozen=True, slots=True)
class Check:
    """Round trips in seconds, as they came back, and how many of `sent` probes did not."""

    setting: LinkSetting
    sent: int
    samples: tuple[float, ...]

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
        """Whether the median is the setting's; without samples, whether none were to be expected."""
        if not self.samples:
            return self.setting.loss == 1.0
        return abs(self.quantile(0.5) - self.expected(0.5)) <= TOLERANCE * self.expected(0.5) + OVERHEAD


def measure(device: socket.socket, cloud: socket.socket, setting: LinkSetting, count: int) -> Check:
    """Send `count` probes so far apart that none has to wait for another one's delay.

    Both are UDP sockets; `device` is connected to `cloud`, which is sent back what it gets.
    """
    interval = max(SHORTEST_INTERVAL, 2.2 * setting.delay * setting.jitter)
    if setting.rate is not None:
        interval = max(interval, 2 * PROBE_BYTES / setting.rate)
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
            return Check(setting, count, tuple(samples))
        for ready in select.select([device, cloud], [], [], max(0.0, until - now))[0]:
            if ready is cloud:
                data, sender = cloud.recvfrom(PROBE.size)
                cloud.sendto(data, sender)
            else:
                _, at = PROBE.unpack(device.recv(PROBE.size))
                samples.append(time.monotonic() - at)


def report(check: Check) -> str:
    """Setting and measurement side by side, for people."""
    lines = [f"setting   {check.setting}", f"probes    {check.sent}, of which {check.lost} did not come back"]
    if check.samples:
        lines.append(f"expected  {_quantiles(check.expected)}")
        lines.append(f"measured  {_quantiles(check.quantile)}")
    lines.append("the link does what it was set to" if check.good else "THE LINK DOES NOT DO WHAT IT WAS SET TO")
    return "\n".join(lines)


def _quantiles(quantile: Callable[[float], float]) -> str:
    low, middle, high = (f"{quantile(share) * 1000:.2f}" for share in (0.05, 0.5, 0.95))
    return f"median {middle} ms, 5 % below {low} ms, 95 % below {high} ms"
