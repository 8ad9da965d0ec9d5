"""The random decisions of an algorithm, keyed by their purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from common.sampling.noise import Purpose, uniform


class Draws(Protocol):
    """The decision points of the algorithm; tests walk through all of them instead of drawing."""

    def happens(self, purpose: Purpose, probability: float) -> bool: ...

    def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
        """An index of `weights` [n], which are not negative and not all 0, in proportion to its weight."""
        ...


@dataclass(frozen=True, slots=True)
class SeededDraws:
    """The draws of one position of a session."""

    seed: int
    position: int

    def happens(self, purpose: Purpose, probability: float) -> bool:
        return uniform(self.seed, self.position, purpose) < probability

    def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
        """Inverts the cumulative distribution, summed from left to right, alike on every machine.

        The uniform lies strictly between 0 and 1, so that an index of weight 0 is never hit.
        """
        cumulative = weights.cumsum()
        return int(cumulative.searchsorted(uniform(self.seed, self.position, purpose) * cumulative[-1]))


DrawsAt = Callable[[int], Draws]  # the draws of a position
