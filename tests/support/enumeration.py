"""The exact law of an algorithm, by walking through all of its decision points with their probabilities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from common.sampling.compiled import Draws, Purpose

EXACT = 1e-12
Result = TypeVar("Result", bound=Hashable)
Step = Callable[[Draws], Result]


@dataclass
class Walk:
    """Takes the branches of `path`, then the first of each further decision; remembers those not taken."""

    path: tuple[int, ...]
    probability: float = 1.0
    taken: list[int] = field(default_factory=list)
    untried: list[tuple[int, ...]] = field(default_factory=list)

    def happens(self, purpose: Purpose, probability: float) -> bool:
        return self._branch(np.array([1.0 - probability, probability])) == 1

    def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
        return self._branch(weights / weights.sum())

    def _branch(self, law: NDArray[np.float64]) -> int:
        possible = np.flatnonzero(law).tolist()
        depth = len(self.taken)
        if depth < len(self.path):
            chosen = self.path[depth]
        else:
            chosen = possible[0]
            self.untried.extend((*self.taken, other) for other in possible[1:])
        self.taken.append(chosen)
        self.probability *= float(law[chosen])
        return chosen


def law_of(step: Step[Result], walk: type[Walk] = Walk) -> dict[Result, float]:
    """The exact distribution of what `step` returns."""
    law: dict[Result, float] = defaultdict(float)
    paths: list[tuple[int, ...]] = [()]
    while paths:
        draws = walk(paths.pop())
        law[step(draws)] += draws.probability
        paths.extend(draws.untried)
    assert sum(law.values()) == pytest.approx(1.0, abs=EXACT)
    return law
