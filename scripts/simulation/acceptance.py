"""Acceptance of an answer's drafts, modelled (DRAGON §7.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True)
class Position:
    """One position: True for each side whose draft after the right prefix is the target."""

    device: bool
    cloud: bool


Answer = tuple[Position, ...]


class AcceptanceModel(Protocol):
    """Source of the acceptance of an answer's drafts."""

    def draw(self, tokens: int, seed: int) -> Answer:
        """An answer of at most `tokens` positions, the same for the same seed."""
        ...


@dataclass(frozen=True, slots=True)
class Rates:
    """Every position alike and independent of the others: alpha of each side, and how often both are accepted."""

    device: float
    cloud: float
    both: float

    def __post_init__(self) -> None:
        lowest, highest = self.device + self.cloud - 1.0, min(self.device, self.cloud)
        if not all(0.0 <= rate <= 1.0 for rate in (self.device, self.cloud, self.both)):
            raise ValueError(f"acceptance rates must be in [0, 1], got {self.device}, {self.cloud} and {self.both}")
        if not lowest - _ROUNDING <= self.both <= highest + _ROUNDING:
            raise ValueError(
                f"with rates {self.device} and {self.cloud}, both drafts are accepted in {max(lowest, 0.0):g} to "
                f"{highest:g} of the positions, not in {self.both:g}"
            )

    @classmethod
    def independent(cls, device: float, cloud: float) -> Rates:
        """Rates of two sides whose acceptance is independent."""
        return cls(device, cloud, device * cloud)

    def draw(self, tokens: int, seed: int) -> Answer:
        uniform = np.random.default_rng(seed).random(tokens)
        # [0, both) both, [both, device) the device's alone, [device, device + cloud - both) the cloud's alone
        only_cloud = (uniform >= self.device) & (uniform < self.device + self.cloud - self.both)
        return tuple(
            Position(bool(device), bool(both or cloud))
            for device, both, cloud in zip(uniform < self.device, uniform < self.both, only_cloud, strict=True)
        )
