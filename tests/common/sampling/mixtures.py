"""Mixtures with few and many tokens, equal ones and impossible ones; and what is kept of them, by the definition."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

SIZES: Final = st.sampled_from([1, 2, 3, 24, 63, 64, 65, 1_000, 1_023, 1_025, 5_000])  # around those looked at first
MASSES: Final = st.one_of(st.sampled_from([1e-9, 0.5, 0.9, 1 - 2.0**-53, 1.0]), st.floats(0.001, 1.0))


def mixture(seed: int, size: int, kind: int) -> torch.Tensor:
    """A distribution, float32 [size]: peaked or flat, with few values, all equal, with zeros, decreasing."""
    generator = np.random.default_rng(seed)
    spread = generator.uniform(0.0, 6.0)
    logits: NDArray[np.floating[Any]]
    match kind:
        case 0:
            logits = spread * generator.normal(size=size)
        case 1:
            logits = spread * generator.integers(0, 5, size) / 4
        case 2:
            logits = np.zeros(size)
        case 3:
            logits = generator.integers(0, 3, size).astype(np.float64)
            logits[generator.random(size) < 0.5] = -np.inf
            logits[generator.integers(size)] = 0.0
        case _:
            logits = -spread / 60 * np.arange(size)
    return torch.softmax(torch.from_numpy(logits), 0).float()


def sorted_nucleus(probabilities: NDArray[np.float64], top_p: float) -> NDArray[np.int64]:
    """Places, increasing, of the fewest most probable tokens that hold `top_p`, the lowest ones of equals."""
    order = np.argsort(-probabilities, kind="stable")
    mass = np.cumsum(probabilities[order])
    return np.sort(order[: int(np.searchsorted(mass, top_p)) + 1])
