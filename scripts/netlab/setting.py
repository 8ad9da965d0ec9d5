"""Settings of the emulated link."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from scripts.netlab.faulty_proxy import Direction, Line

LONGEST: Final = 60.0  # seconds of a round trip: a mistyped unit rather than a network
KILOBIT: Final = 125.0  # bytes
SLOWEST: Final = 100.0  # bytes per second: a packet of full length takes 15 s


@dataclass(frozen=True, slots=True)
class LinkSetting:
    """Both directions of the link. Raises `ValueError` with a sentence for the user.

    `rtt` is the round trip in seconds, half of it in each direction. `jitter` is a share: each packet's delay is drawn
    uniformly from `1 - jitter` to `1 + jitter` times that half. `uplink` (device to cloud) and `downlink` are in bytes
    per second, None for no limit. `loss` is the probability that a packet is dropped; 1 is an outage.
    """

    rtt: float = 0.0
    jitter: float = 0.0
    uplink: float | None = None
    downlink: float | None = None
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.rtt <= LONGEST:
            raise ValueError(f"the round trip must be 0 to {LONGEST * 1000:g} ms, not {self.rtt * 1000:g}")
        if not 0.0 <= self.jitter <= 1.0:
            raise ValueError(f"jitter is a share of the delay, 0 to 1, not {self.jitter:g}")
        for name, rate in (("uplink", self.uplink), ("downlink", self.downlink)):
            if rate is not None and not SLOWEST <= rate < math.inf:
                raise ValueError(f"the {name} must have at least {SLOWEST / KILOBIT:g} kb/s, not {rate / KILOBIT:g}")
        if not 0.0 <= self.loss <= 1.0:
            raise ValueError(f"loss is a probability, 0 to 1, not {self.loss:g}")

    def rate(self, direction: Direction) -> float | None:
        """Bytes per second of a direction."""
        return self.uplink if direction == "up" else self.downlink

    def line(self, direction: Direction) -> Line:
        """The conditions of one direction."""
        half = self.rtt / 2
        return Line(half * (1 - self.jitter), 2 * half * self.jitter, self.rate(direction), self.loss)

    def __str__(self) -> str:
        rates = f"uplink {rate_text(self.uplink)}, downlink {rate_text(self.downlink)}"
        return f"round trip {self.rtt * 1000:g} ms, jitter {self.jitter * 100:g} %, {rates}, loss {self.loss * 100:g} %"


def rate_text(rate: float | None) -> str:
    """A rate in bytes per second, for people."""
    return "no limit" if rate is None else f"{rate / KILOBIT:g} kb/s"
