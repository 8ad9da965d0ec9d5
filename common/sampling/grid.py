"""Scores and log-probabilities on a grid, on which two computations agree that differ in their last bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.sampling.certificate import WHOLE, Logprobs, RaceView
from proto.codes import decode_probabilities

GRID: Final = 2.0**-10
"""Scores are multiples of this. It changes a weight by less than a thousandth, and two computations of a score that
differ in their last bits nearly always agree on it."""


def on_grid(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest multiples of `GRID`."""
    rounded: NDArray[np.float64] = np.round(scores / GRID) * GRID
    return rounded


# --- logprobs
# Log-probabilities of tokens in the mixture of both sides, from what a session knows of it.

LEAST = 2.0**-33  # what code 0 stands for is below


def logprobs(device: RaceView | None, cloud: RaceView | None, eta_device: int, token: int, count: int) -> Logprobs:
    """Those of `token`, and of the `count` most probable tokens, in the mixture of two views.

    A view that is None has no weight, and `eta_device` is `eta_fixed`'s otherwise. What a view does not list counts as
    0: it is less probable there than any token that was listed for being probable.
    """
    mixture: dict[int, float] = {}
    for view, weight in ((device, eta_device if cloud else WHOLE), (cloud, WHOLE - eta_device if device else WHOLE)):
        if view is None:
            continue
        for name, probability in zip(
            view.entries.ids.tolist(), decode_probabilities(view.entries.codes).tolist(), strict=True
        ):
            mixture[name] = mixture.get(name, 0.0) + weight / WHOLE * probability
    return of_mixture(mixture, token, count)


def of_mixture(mixture: Mapping[int, float], token: int, count: int) -> Logprobs:
    """Those of `token`, and of the `count` most probable of the tokens in `mixture`; of equals the lowest id first."""
    ordered = sorted(mixture, key=lambda name: (-mixture[name], name))[:count]
    top = tuple((name, _log(mixture[name])) for name in ordered if mixture[name] > 0)
    return Logprobs(_log(mixture.get(token, 0.0)), top)


def _log(probability: float) -> float:
    return min(0.0, math.log(max(probability, LEAST)))
