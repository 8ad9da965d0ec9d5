"""Models of what a proposed token weighs on the link, and of the acceptance that coarse distributions cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from common.draft_policy.lattice_bits import bits_to_tell, fixed_index_bits, short_index_bits

_CONFIDENCES = 50  # confidences that tables are made for
_RANKS = 4096  # tokens that the model's distributions lie on: a lattice of 256 has no unit for later ones
_BISECTIONS = 40
_STEEPEST = 60.0


class Payload(Protocol):
    """Cost of one proposed token with its distribution."""

    def bits(self, resolution: int | None, confidence: float) -> int:
        """Bits on the uplink."""
        ...

    def kept(self, resolution: int | None, confidence: float) -> float:
        """Share of the acceptance that rounding the distribution leaves."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """So many bits for every token, and nothing lost: token identifiers, or a lattice of one resolution."""

    token_bits: int

    def bits(self, resolution: int | None, confidence: float) -> int:
        return self.token_bits

    def kept(self, resolution: int | None, confidence: float) -> float:
        return 1.0


@dataclass(frozen=True, slots=True)
class Lattice:
    """Lattice distributions of power laws: the token of rank r has the probability c / r^s.

    c is the confidence and s what makes the sum 1. Their number of tokens K and their total variation distance from the
    lattice are computed, by Reznik's rounding; the acceptance is taken to fall by that distance, relative to itself.
    The token costs ceil(log2 K) bits more (as in Eq. 7, ceil(log2 V), where `within` is false).
    """

    vocabulary: int
    index: Literal["fixed", "short"] = "fixed"
    within: bool = True

    def bits(self, resolution: int | None, confidence: float) -> int:
        resolution = _asked(resolution)
        support, _ = _rounded(resolution, _nearest(confidence))
        if self.index == "fixed":
            index = fixed_index_bits(resolution, self.vocabulary)
        else:
            index = short_index_bits(resolution, self.vocabulary, support)
        return index + bits_to_tell(support if self.within else self.vocabulary)

    def kept(self, resolution: int | None, confidence: float) -> float:
        _, distance = _rounded(_asked(resolution), _nearest(confidence))
        return 1.0 - distance


def _asked(resolution: int | None) -> int:
    if resolution is None:
        raise ValueError("lattice distributions need a resolution: plan one")
    return resolution


def _nearest(confidence: float) -> int:
    return min(_CONFIDENCES - 1, max(1, round(confidence * _CONFIDENCES)))


@lru_cache(maxsize=4096)
def _rounded(resolution: int, place: int) -> tuple[int, float]:
    """Tokens of the lattice distribution nearest to the power law of this confidence, and its distance from it."""
    law = _power_law(place / _CONFIDENCES)
    units = np.floor(resolution * law + 0.5)
    surplus = int(units.sum()) - resolution
    errors = units - resolution * law
    if surplus > 0:
        units[np.argsort(-errors, kind="stable")[:surplus]] -= 1
    elif surplus < 0:
        units[np.argsort(errors, kind="stable")[:-surplus]] += 1
    return int((units > 0).sum()), float(np.abs(units / resolution - law).sum() / 2)


def _power_law(confidence: float) -> NDArray[np.float64]:
    ranks = np.log(np.arange(1, _RANKS + 1))
    low, high = 0.0, _STEEPEST
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if 1.0 / np.exp(-middle * ranks).sum() < confidence else (low, middle)
    weights = np.exp(-high * ranks)
    law: NDArray[np.float64] = weights / weights.sum()
    return law
