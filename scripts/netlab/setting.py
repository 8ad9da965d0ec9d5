"""Settings of the emulated link."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

LONGEST = 60.0  # seconds of a round trip: a mistyped unit rather than a network
SLOWEST = 100.0  # bytes per second: a packet of full length takes 15 s


@dataclass(frozen=True, slots=True)
class LinkSetting:
    """Both directions alike. Raises `ValueError` with a sentence for the user.

    `rtt` is the round trip in seconds, half of it in each direction. `jitter` is a share: each packet's delay is drawn
    uniformly from `1 - jitter` to `1 + jitter` times that half. `rate` is in bytes per second, None for no limit.
    `loss` is the probability that a packet is dropped; 1 is an outage.
    """

    rtt: float = 0.0
    jitter: float = 0.0
    rate: float | None = None
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.rtt <= LONGEST:
            raise ValueError(f"the round trip must be 0 to {LONGEST * 1000:g} ms, not {self.rtt * 1000:g}")
        if not 0.0 <= self.jitter <= 1.0:
            raise ValueError(f"jitter is a share of the delay, 0 to 1, not {self.jitter:g}")
        if self.rate is not None and not SLOWEST <= self.rate < math.inf:
            raise ValueError(f"the rate must be at least {SLOWEST:g} bytes per second, not {self.rate:g}")
        if not 0.0 <= self.loss <= 1.0:
            raise ValueError(f"loss is a probability, 0 to 1, not {self.loss:g}")

    @property
    def delay(self) -> float:
        """Mean seconds from one side to the other."""
        return self.rtt / 2

    def round_trip_quantile(self, share: float, size: int = 0) -> float:
        """Seconds that this share of the round trips of lone packets of `size` bytes stays below.

        The sum of two independent uniform delays has a triangular distribution.
        """
        tail = math.sqrt(2 * min(share, 1 - share))
        deviation = self.jitter * (tail - 1 if share < 0.5 else 1 - tail)
        return self.rtt * (1 + deviation) + (2 * size / self.rate if self.rate else 0.0)

    def __str__(self) -> str:
        rate = "no limit of rate" if self.rate is None else f"{self.rate:g} bytes/s"
        return f"round trip {self.rtt * 1000:g} ms, jitter {self.jitter * 100:g} %, {rate}, loss {self.loss * 100:g} %"

    def packed(self) -> bytes:
        """Bytes that tell the process that forwards this setting."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def unpacked(cls, packed: bytes) -> LinkSetting:
        return cls(**json.loads(packed))
