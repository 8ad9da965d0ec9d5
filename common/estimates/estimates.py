"""Measured times, round trip and acceptance of both sides, as placement rules take them."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimates:
    """Inputs of Eq. 7 at one moment. Times are seconds."""

    device_decode: float
    cloud_decode: float
    rtt: float
    device_acceptance: float
    cloud_acceptance: float

    def __post_init__(self) -> None:
        if not all(0.0 <= seconds < math.inf for seconds in (self.device_decode, self.cloud_decode, self.rtt)):
            raise ValueError(f"times must be finite and not negative: {self}")
        if not all(0.0 <= share <= 1.0 for share in (self.device_acceptance, self.cloud_acceptance)):
            raise ValueError(f"acceptance rates must be in [0, 1]: {self}")
