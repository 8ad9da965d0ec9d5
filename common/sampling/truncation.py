"""Distributions over a few tokens, and the nucleus of a distribution."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

_FIRST_LOOK: Final = 64  # most probable tokens examined first; a nucleus is seldom larger
_WIDER: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Tokens of positive probability: int64 ids [n], strictly increasing, float64 [n] with sum 1."""

    ids: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def at(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """The probability of each of `ids` [m], 0 for unlisted ones, float64 [m]."""
        places = self.ids.searchsorted(ids)
        places[places == len(self.ids)] = 0
        return np.where(self.ids[places] == ids, self.probabilities[places], 0.0)

    def of(self, token: int) -> float:
        place = int(self.ids.searchsorted(token))
        found = place < len(self.ids) and int(self.ids[place]) == token
        return float(self.probabilities[place]) if found else 0.0


def renormalised(ids: NDArray[np.integer], weights: NDArray[np.floating[Any]]) -> Distribution:
    """The distribution proportional to `weights` [n].

    Sums from left to right, for equal bits on every machine. Raises `ValueError` without a positive weight.
    """
    kept, tokens = weights.astype(np.float64, copy=False), ids.astype(np.int64, copy=False)
    positive = kept > 0
    if not positive.all():  # copying a whole vocabulary takes long
        kept, tokens = kept[positive], tokens[positive]
    if not len(kept):
        raise ValueError("a distribution needs a positive probability")
    return Distribution(tokens, kept / kept.cumsum()[-1])


def nucleus(probabilities: torch.Tensor, top_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The fewest most probable tokens of a distribution [vocab] with mass `top_p` or more.

    Returns decreasing probabilities [n] and ids [n]. The choice among ties at the edge is undefined.
    """
    for count in _looks(len(probabilities)):
        top, indices = torch.topk(probabilities, count)
        mass = np.cumsum(top.to(torch.float64).cpu().numpy())
        if mass[-1] >= top_p:
            break
    kept = min(int(np.searchsorted(mass, top_p)) + 1, count)
    return top[:kept], indices[:kept]


def nucleus_places(probabilities: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """As `nucleus`, faster, for a distribution [n] in main memory: increasing indices [kept].

    Ties at the edge keep the first tokens.
    """
    size = len(probabilities)
    for count in _looks(size):
        top = probabilities if count == size else np.partition(probabilities, -count)[-count:]
        top = np.sort(top)[::-1]
        mass = top.cumsum()
        if mass[-1] >= top_p:
            break
    kept = min(int(mass.searchsorted(top_p)) + 1, count)
    edge = top[kept - 1]
    places = np.flatnonzero(probabilities >= edge)
    if len(places) > kept:
        equal = np.flatnonzero(probabilities[places] == edge)
        places = np.delete(places, equal[kept - len(places) :])
    return places


def _looks(size: int) -> Iterator[int]:
    """Increasing numbers of tokens to examine, up to all."""
    count = min(_FIRST_LOOK, size)
    while count < size:
        yield count
        count = min(count * _WIDER, size)
    yield size
