"""The random decisions of an algorithm, keyed by their purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from common.sampling.noise import Purpose, uniform
from proto.digest import extend


class Draws(Protocol):
    """The decision points of the algorithm; tests walk through all of them instead of drawing."""

    def happens(self, purpose: Purpose, probability: float) -> bool: ...

    def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
        """An index of `weights` [n], which are not negative and not all 0, in proportion to its weight."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a draw in an answer: behind `position` tokens, whose digest is `prefix`."""

    position: int
    prefix: int

    def behind(self, token: int) -> Place:
        """The place behind `token`, which stands at this one."""
        return Place(self.position + 1, extend(self.prefix, token))


@dataclass(frozen=True, slots=True)
class SeededDraws:
    """The draws of one position of a session, where they are the same behind every prefix; else behind `prefix`."""

    seed: int
    position: int
    prefix: int = 0

    def happens(self, purpose: Purpose, probability: float) -> bool:
        return self._uniform(purpose) < probability

    def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
        """Inverts the cumulative distribution, summed from left to right, alike on every machine.

        The uniform lies strictly between 0 and 1, so that an index of weight 0 is never hit.
        """
        cumulative = weights.cumsum()
        return int(cumulative.searchsorted(self._uniform(purpose) * cumulative[-1]))

    def _uniform(self, purpose: Purpose) -> float:
        return uniform(self.seed, self.position, purpose, self.prefix)


DrawsAt = Callable[[Place], Draws]  # the draws of a place


def seeded(seed: int) -> DrawsAt:
    """The draws of each place of an answer."""
    return lambda place: SeededDraws(seed, place.position, place.prefix)
