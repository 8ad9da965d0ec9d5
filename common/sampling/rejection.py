"""Speculative sampling, and its warped and quantised distributions.

A token x drawn from q is accepted with probability min(1, p(x) / q(x)), else drawn again from norm(max(0, p - q)). The
result follows the verifier's p for any q, if q is exactly what x was drawn from: after temperature, truncation and
rounding. (DSSD prints the ratio inverted; the result would be as far from p as q is.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.compiled import Draws, Purpose
from common.sampling.truncation import Distribution, nucleus_places, renormalised
from proto.codes import decode_probabilities, nearest
from proto.messages import MOST_RESOLUTION


def propose(drafter: Distribution, draws: Draws) -> int:
    return int(drafter.ids[draws.pick(Purpose.PROPOSE, drafter.probabilities)])


def accepts(token: int, proposed: float, verifier: Distribution, draws: Draws) -> bool:
    """Whether to accept a token drawn with probability `proposed` = q(x) > 0."""
    return draws.happens(Purpose.ACCEPT, min(1.0, verifier.of(token) / proposed))


def replacement(verifier: Distribution, drafter: Distribution, draws: Draws) -> int:
    """A token from norm(max(0, p - q)) in place of a rejected one."""
    return int(verifier.ids[draws.pick(Purpose.RESIDUAL, _residual(verifier, drafter))])


def bonus(verifier: Distribution, draws: Draws) -> int:
    """A token from p after a whole proposal."""
    return int(verifier.ids[draws.pick(Purpose.BONUS, verifier.probabilities)])


def acceptance(verifier: Distribution, drafter: Distribution) -> float:
    """The probability of accepting a token from q: 1 - TV(p, q)."""
    return float(np.minimum(verifier.at(drafter.ids), drafter.probabilities).sum())


def _residual(verifier: Distribution, drafter: Distribution) -> NDArray[np.float64]:
    weights = np.maximum(0.0, verifier.probabilities - drafter.at(verifier.ids))
    return weights if weights.any() else verifier.probabilities  # p and q differ by rounding only


# --- warping
# Distributions to draw from: a mixture after temperature, top-k and top-p, in this order.

MOST_TOP_K: Final = 2**18


@dataclass(frozen=True, slots=True)
class Warp:
    """One side's options. `top_k` 0 and `top_p` 1 keep all tokens; temperature 0 the likeliest."""

    temperature: float
    top_k: int = 0
    top_p: float = 1.0

    def __call__(self, mixture: torch.Tensor) -> Distribution:
        """The distribution of a mixture [vocab]; ties at an edge keep the lowest ids.

        Raises `ValueError` without a positive probability.
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
    """Ids and 16-bit codes of a distribution, and the decoded distribution.

    Its owner uses the decoded one, too. Tokens rounded to 0 are dropped.
    """
    codes = nearest(distribution.probabilities)
    kept = codes > 0
    return distribution.ids[kept].astype(np.uint32), codes[kept], coded(distribution.ids[kept], codes[kept])


def coded(ids: NDArray[np.integer], codes: NDArray[np.uint16]) -> Distribution:
    """Raises `ValueError` if no code is positive."""
    return renormalised(ids, decode_probabilities(codes))


def _likeliest(mixture: torch.Tensor) -> int:
    """The lowest id of ties."""
    most = mixture.max()
    if not bool(most > 0):
        raise ValueError("a distribution needs a positive probability")
    return int((mixture == most).nonzero()[0])


def _kept(mixture: torch.Tensor, top_k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Increasing ids and probabilities of the `top_k` most probable tokens; 0 keeps all."""
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


# --- lattice
# Reznik's quantiser rounds a distribution to counts of equal units, for quantize-sample-verify.
#
# Y. A. Reznik, "An algorithm for quantization of discrete probability distributions", DCC 2011.

_LANES: Final = 2 * MOST_RESOLUTION  # more than the tokens with a unit; twice as many give a good bound
# Relative difference below which rounding may make probabilities equal.
_ROUNDING: Final = 2.0**-50


def quantise(probabilities: NDArray[np.floating[Any]], resolution: int) -> NDArray[np.int64]:
    """Units of `resolution` for each of `probabilities` [n], as [n] with sum `resolution`.

    With q the normalised probabilities and l the resolution, k_i = floor(l q_i + 1/2). For a sum above l, the largest
    k_i - l q_i lose a unit each; below, the smallest gain one. Ties go to the lowest id. Raises `ValueError` for a sum
    that is not positive and finite, for NaN, negative numbers, and a resolution outside of [1, `MOST_RESOLUTION`].
    """
    if not 1 <= resolution <= MOST_RESOLUTION:
        raise ValueError(f"the resolution of a lattice must be 1 to {MOST_RESOLUTION}, not {resolution}")
    exact = np.ascontiguousarray(probabilities, dtype=np.float64)
    if not len(exact) or not exact.min() >= 0:  # NaN fails the comparison
        raise ValueError("probabilities to quantise must be numbers and not negative, at least one of them")
    with np.errstate(over="ignore"):
        total = float(exact.sum())
    if not 0 < total < np.inf:
        raise ValueError("probabilities to quantise must have a finite sum above 0")
    ids = _most_probable(exact, resolution)
    shares = exact[ids] / total * resolution
    counts = np.floor(shares + 0.5).astype(np.int64)
    excess = int(counts.sum()) - resolution
    errors = counts - shares
    if excess > 0:
        counts[_smallest(-errors, excess)] -= 1
    elif excess < 0:
        counts[_smallest(errors, -excess)] += 1
    quantised = np.zeros(len(exact), dtype=np.int64)
    quantised[ids] = counts
    return quantised


def _most_probable(probabilities: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Increasing ids of the `count` most probable tokens, all ties, and some others.

    No other token gets a unit: the more probable of two never gets fewer. The vocabulary is only read; a copy would
    dominate the cost. The maxima of disjoint lanes bound the probabilities from below.
    """
    if len(probabilities) < 4 * _LANES:
        return np.arange(len(probabilities))
    rows = len(probabilities) // _LANES
    largest = probabilities[: rows * _LANES].reshape(rows, _LANES).max(axis=0)
    bound = np.partition(largest, _LANES - count)[_LANES - count]
    return np.flatnonzero(probabilities >= bound * (1 - _ROUNDING))


def _smallest(numbers: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Ties go to the first."""
    edge = np.partition(numbers, count - 1)[count - 1]
    below = np.flatnonzero(numbers < edge)
    return np.concatenate((below, np.flatnonzero(numbers == edge)[: count - len(below)]))


# --- augmentation
# The verifier's distribution moved towards the drafter's (RAPID, Eqs. 6 and 8), and the paper's residual (Eq. 10).
#
# p̂ is the softmax of z / T + eta m (q - p), p = softmax(z / T). So p̂_i ∝ p_i exp(eta m_i (q_i - p_i)). The mask m is
# from the authors' program: 0 where q is less than a tenth of its largest. (Eq. 9 instead restores p where p̂ is small,
# which leaves a mass other than 1.)

LEAST: Final = 0.1  # share of the drafter's largest probability, below which nothing moves


def augmented(verifier: Distribution, drafter: Distribution, eta: float) -> Distribution:
    """p̂ on the tokens of p; p itself for `eta` 0."""
    if eta == 0:
        return verifier
    trusted = drafter.probabilities >= LEAST * drafter.probabilities.max()
    ids, wanted = drafter.ids[trusted], drafter.probabilities[trusted]
    places = verifier.ids.searchsorted(ids)
    places[places == len(verifier.ids)] = 0
    there = verifier.ids[places] == ids
    shift = np.zeros(len(verifier.ids))
    shift[places[there]] = eta * (wanted[there] - verifier.probabilities[places[there]])
    return renormalised(verifier.ids, verifier.probabilities * np.exp(shift - shift.max()))


def likeliest(distribution: Distribution) -> Distribution:
    """All mass on the most probable token, the lowest id of ties."""
    place = int(distribution.probabilities.argmax())
    return Distribution(distribution.ids[place : place + 1], np.ones(1))


def paper_replacement(verifier: Distribution, target: Distribution, drafter: Distribution, draws: Draws) -> int:
    """A token from norm(max(p - p̂, p - q, 0)) after rejection by p̂, the `target`.

    The result follows neither p nor p̂: where both q and p̂ exceed p, nothing removes the surplus.
    """
    probabilities = verifier.probabilities
    weights = np.maximum(probabilities - target.at(verifier.ids), probabilities - drafter.at(verifier.ids))
    weights = np.maximum(weights, 0.0)
    return int(verifier.ids[draws.pick(Purpose.RESIDUAL, weights if weights.any() else probabilities)])
