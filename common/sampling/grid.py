"""Scores of documents on a grid, on which two computations agree that differ in their last bits."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

GRID: Final = 2.0**-10
"""Scores are multiples of this. It changes a weight by less than a thousandth, and two computations of a score that
differ in their last bits nearly always agree on it."""


def on_grid(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest multiples of `GRID`."""
    rounded: NDArray[np.float64] = np.round(scores / GRID) * GRID
    return rounded
