"""Draws by the race of which nothing but the winner is kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.drafting import Race
from common.sampling.fastest import Found


@dataclass(frozen=True, slots=True)
class RaceWinner:
    """The token that won a race."""

    token: int
    confidence: float = 0.0

    @property
    def listed(self) -> NDArray[np.integer]:
        return np.asarray([self.token])


@dataclass(frozen=True, slots=True)
class Racing:
    """Implements `Drafter`: the winner is all that is kept of a race."""

    seed: int
    temperature: float

    def race(self, position: int) -> Race:
        return Race(self.seed, position, self.temperature, 1)

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> RaceWinner:
        """Raises `ValueError` for a mixture without a positive probability."""
        if found is None or not len(found[0]):
            raise ValueError(f"the mixture at position {position} has no positive probability")
        return RaceWinner(int(found[0][0]), float(probabilities.max()))
