"""Models of an answer's positions: how sure the drafter is, and how often the verifier agrees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

_BISECTIONS = 60
_NODES = 64  # of the integral over a normal law


@dataclass(frozen=True, slots=True)
class Positions:
    """Each position's confidence `[n]`, its acceptance `[n]` before any quantising, and a uniform number `[n]`.

    The token proposed at a position is accepted if its uniform number is less than the acceptance there. All that
    happens is a function of the position, so that every policy meets the same answer. `rounded` has the acceptances
    `[n]` at resolutions where they were measured.
    """

    confidences: NDArray[np.float64]
    acceptances: NDArray[np.float64]
    uniforms: NDArray[np.float64]
    rounded: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)


class ConfidenceModel(Protocol):
    """Source of answers."""

    def draw(self, tokens: int, seed: int) -> Positions:
        """An answer of `tokens` positions, the same for the same seed."""
        ...


@dataclass(frozen=True, slots=True)
class Steady:
    """Every position alike, independent of the others: accepted with probability `alpha`, which is its confidence."""

    alpha: float

    def __post_init__(self) -> None:
        _check_share(self.alpha)

    def draw(self, tokens: int, seed: int) -> Positions:
        everywhere = np.full(tokens, self.alpha)
        return Positions(everywhere, everywhere, np.random.default_rng((seed, 1)).random(tokens))


@dataclass(frozen=True, slots=True)
class Varying:
    """Stretches that both models find easy, and others; the drafter's confidence tells them apart in part.

    The log-odds of a position's acceptance are m + `spread` · z, where z is normal with correlation `persistence`
    from one position to the next and m makes the mean acceptance `alpha`. The log-odds of the confidence are the same
    with independent normal noise of standard deviation `noise`. In short: where the drafter is 95 % sure, it is right
    about that often, and it is wrong in bursts.
    """

    alpha: float
    spread: float = 1.5
    persistence: float = 0.6
    noise: float = 0.7

    def __post_init__(self) -> None:
        _check_share(self.alpha)
        if not (self.spread >= 0.0 and self.noise >= 0.0 and 0.0 <= self.persistence < 1.0):
            raise ValueError(f"spread and noise must not be negative and persistence in [0, 1), got {self}")

    def draw(self, tokens: int, seed: int) -> Positions:
        random = np.random.default_rng((seed, 2))
        uniforms = np.random.default_rng((seed, 1)).random(tokens)
        news, heard = random.standard_normal(tokens), random.standard_normal(tokens)
        ease = np.empty(tokens)
        for place, one in enumerate(news):
            kept = self.persistence if place else 0.0
            ease[place] = kept * ease[place - 1] + np.sqrt(1.0 - kept**2) * one if place else one
        odds = _middle(self.alpha, self.spread) + self.spread * ease
        return Positions(_logistic(odds + self.noise * heard), _logistic(odds), uniforms)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """Positions of two models' answers, one answer behind the other, [n]: an answer begins anywhere, and goes round.

    `acceptances` are those of whole distributions, `rounded` those at each resolution.
    """

    confidences: NDArray[np.float64]
    acceptances: NDArray[np.float64]
    rounded: Mapping[int, NDArray[np.float64]]

    @property
    def alpha(self) -> float:
        """The mean acceptance of whole distributions."""
        return float(self.acceptances.mean())

    def draw(self, tokens: int, seed: int) -> Positions:
        first = int(np.random.default_rng((seed, 2)).integers(len(self.confidences)))
        places = (first + np.arange(tokens)) % len(self.confidences)
        return Positions(
            self.confidences[places],
            self.acceptances[places],
            np.random.default_rng((seed, 1)).random(tokens),
            {resolution: shares[places] for resolution, shares in self.rounded.items()},
        )


@lru_cache(maxsize=256)
def _middle(alpha: float, spread: float) -> float:
    """m for which the mean acceptance is `alpha`, by bisection on Gauss and Hermite's quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    shares = weights / weights.sum()
    low, high = -50.0, 50.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if float(shares @ _logistic(middle + spread * nodes)) < alpha else (low, middle)
    return (low + high) / 2


def _logistic(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    shares: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-odds))
    return shares


def _check_share(alpha: float) -> None:
    if not 0.0 < alpha < 1.0:
        raise ValueError(f"the mean acceptance must be in (0, 1), got {alpha}")
