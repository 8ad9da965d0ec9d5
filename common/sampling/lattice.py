"""Reznik's quantiser: a distribution rounded to counts of equal units, for quantize-sample-verify.

Y. A. Reznik, "An algorithm for quantization of discrete probability distributions", DCC 2011.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proto.limits import MOST_RESOLUTION

_LANES: Final = 2 * MOST_RESOLUTION  # more than tokens that can get a unit; twice as many bound them well
# Probabilities this near to each other, relatively, may become equal when they are divided and multiplied.
_ROUNDING: Final = 2.0**-50


def quantise(probabilities: NDArray[np.floating[Any]], resolution: int) -> NDArray[np.int64]:
    """Units of `resolution` that each of `probabilities` [n] gets, [n]; they sum to exactly `resolution`.

    With q the probabilities divided by their sum and l the resolution, k_i = floor(l q_i + 1/2). If these are too many,
    those with the largest k_i - l q_i lose a unit; if too few, those with the smallest gain one; of equal ones that
    with the lowest id. Raises `ValueError` for what has no positive finite sum, for NaN, for a negative number, and for
    a resolution that is not in [1, `MOST_RESOLUTION`].
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
    """Ids, increasing, of the `count` most probable tokens and of some others, among them all that are as probable.

    None but these get a unit: of two tokens the more probable one never ends with fewer. A vocabulary is only read
    here, since a copy of it takes longer than all the rest. The largest of each of many disjoint lanes bound the
    probabilities from below.
    """
    if len(probabilities) < 4 * _LANES:
        return np.arange(len(probabilities))
    rows = len(probabilities) // _LANES
    largest = probabilities[: rows * _LANES].reshape(rows, _LANES).max(axis=0)
    bound = np.partition(largest, _LANES - count)[_LANES - count]
    return np.flatnonzero(probabilities >= bound * (1 - _ROUNDING))


def _smallest(numbers: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Indices of the `count` smallest of `numbers` [n], the first of equal ones."""
    edge = np.partition(numbers, count - 1)[count - 1]
    below = np.flatnonzero(numbers < edge)
    return np.concatenate((below, np.flatnonzero(numbers == edge)[: count - len(below)]))
