"""Distributions that drafter and verifier draw from: a mixture after temperature, top-k and top-p, in this order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.truncation import Distribution, nucleus_places, renormalised
from proto.logcode import decode, nearest

MOST_TOP_K: Final = 2**18


@dataclass(frozen=True, slots=True)
class Warp:
    """The options of one side. `top_k` 0 and `top_p` 1 keep all tokens; temperature 0 keeps the likeliest one."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0

    def __call__(self, mixture: torch.Tensor) -> Distribution:
        """The distribution drawn from for a mixture [vocab]; of equal tokens at an edge the lowest ids are kept.

        Raises `ValueError` for a mixture without a positive probability.
        """
        if self.temperature == 0:
            return Distribution(np.asarray([_likeliest(mixture)]), np.ones(1))
        ids, weights = _kept(mixture, self.top_k)
        if self.temperature != 1:
            weights = (weights / weights.max()) ** (1.0 / self.temperature)
        distribution = renormalised(ids, weights)
        if self.top_p >= 1:
            return distribution
        kept = nucleus_places(distribution.probabilities, self.top_p)
        return renormalised(distribution.ids[kept], distribution.probabilities[kept])


def rounded(distribution: Distribution) -> tuple[NDArray[np.uint32], NDArray[np.uint16], Distribution]:
    """The ids and 16-bit codes of a distribution as they travel, and the distribution that these stand for.

    Its owner uses that one for everything, too. What is rounded to 0 is dropped.
    """
    codes = nearest(distribution.probabilities)
    kept = codes > 0
    return distribution.ids[kept].astype(np.uint32), codes[kept], coded(distribution.ids[kept], codes[kept])


def coded(ids: NDArray[np.integer], codes: NDArray[np.uint16]) -> Distribution:
    """The distribution that codes stand for. Raises `ValueError` where none is positive."""
    return renormalised(ids, decode(codes))


def _likeliest(mixture: torch.Tensor) -> int:
    """The argmax, the lowest id of equals."""
    most = mixture.max()
    if not bool(most > 0):
        raise ValueError("a distribution needs a positive probability")
    return int((mixture == most).nonzero()[0])


def _kept(mixture: torch.Tensor, top_k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids, increasing, and probabilities of the `top_k` most probable tokens, of all with 0."""
    size = len(mixture)
    if not 0 < top_k < size:
        return np.arange(size), mixture.cpu().numpy().astype(np.float64)
    edge = mixture.topk(top_k).values[-1]
    places = (mixture >= edge).nonzero()[:, 0]
    ids = places.cpu().numpy()
    probabilities = mixture[places].cpu().numpy().astype(np.float64)
    if len(ids) > top_k:
        above = probabilities > float(edge)
        at_edge = np.flatnonzero(~above)[: top_k - int(above.sum())]
        chosen = np.sort(np.concatenate([np.flatnonzero(above), at_edge]))
        ids, probabilities = ids[chosen], probabilities[chosen]
    return ids, probabilities
