"""Both sides' synthetic distributions, of the vocabulary and the entropy that is asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

import torch

from scripts.bench.synthetic_model import nats

_STEEPEST = 8.0  # logits per e-fold of the rank: entropy next to 0
_HALVINGS = 16
_AVERAGED = 16


def synthetic(
    vocabulary: int, entropy: float, count: int, seed: int, disagreement: float
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yields `count` pairs (device, cloud) of Zipf-like distributions [vocab] of `entropy` nats.

    `disagreement` is the standard deviation of each side's own noise on the logits. Raises `ValueError` for an entropy
    that the vocabulary can't have.
    """
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.log(torch.arange(1, vocabulary + 1, dtype=torch.float32))
    slope = _slope(ranks, entropy, disagreement)
    for _ in range(count):
        common = -slope * ranks[torch.randperm(vocabulary, generator=generator)]
        device, cloud = (
            torch.softmax(common + disagreement * torch.randn(vocabulary, generator=generator), dim=-1)
            for _ in range(2)
        )
        yield device, cloud


def _slope(ranks: torch.Tensor, entropy: float, disagreement: float) -> float:
    """Slope by bisection: the steeper, the less entropy on the average over the noise."""
    if not 0.0 < entropy < math.log(len(ranks)):
        raise ValueError(f"{len(ranks)} tokens can't have an entropy of {entropy} nats")
    generator = torch.Generator().manual_seed(0)
    noises = [disagreement * torch.randn(len(ranks), generator=generator) for _ in range(_AVERAGED)]
    low, high = 0.0, _STEEPEST
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if fmean(nats(torch.softmax(noise - middle * ranks, dim=-1)) for noise in noises) > entropy:
            low = middle
        else:
            high = middle
    return high
