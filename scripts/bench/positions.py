"""Both sides' distributions, position by position, for what is measured without a network.

Of the embedded model they are those that the running system sees: each position follows the tokens of the answer so
far. Synthetic ones have the vocabulary and the entropy that is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.certificate import WHOLE, eta_fixed
from common.sampling.mixture import mix, weigh
from common.sampling.noise import race_noise
from common.sampling.race import RaceSampler
from proto.logcode import decode, nearest
from scripts.bench.engine.pair import SIDES
from scripts.bench.workload import Workload

DISAGREEMENT = 0.6  # standard deviation of what one side's documents change in each logit: total variation 0.33
_STEEPEST = 8.0  # logits per e-fold of the rank: entropy next to 0
_HALVINGS = 16
_AVERAGED = 16


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """Both sides' mixtures at one position of an answer drawn with `seed`."""

    seed: int
    index: int
    temperature: float
    device: torch.Tensor  # float32 [vocab]
    cloud: torch.Tensor
    evidence: tuple[float, float]

    @property
    def eta_device(self) -> int:
        """Weight of the device in units of 2**-16."""
        return eta_fixed(*self.evidence)

    @property
    def total_variation(self) -> float:
        """Between both sides' mixtures, 0 to 1."""
        return 0.5 * float((self.device.to(torch.float64) - self.cloud.to(torch.float64)).abs().sum())

    @property
    def entropy(self) -> float:
        """Of the mixture at temperature 1, nats."""
        return nats(torch.from_numpy(self.mixture()))

    def mixture(self) -> NDArray[np.float64]:
        """Law of the target, [vocab]; Eq. 4."""
        share = self.eta_device / WHOLE
        both = share * self.device.to(torch.float64) + (1.0 - share) * self.cloud.to(torch.float64)
        exact: NDArray[np.float64] = both.numpy()
        return exact

    def target(self, rounded: bool = True) -> int:
        """The winner of the race, straight from its definition: every token's score.

        Not `rounded` is the race on the mixtures as the model gave them, before any codec.
        """
        sides = [decode(nearest(p.numpy())) if rounded else p.numpy().astype(np.float64) for p in self.both]
        return race_winner(self, *sides)

    @property
    def both(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.device, self.cloud


def race_winner(position: Position, device: NDArray[np.float64], cloud: NDArray[np.float64]) -> int:
    """Winner with these probabilities [vocab] on the position's noise; the lowest id of equals."""
    ids = np.arange(len(device))
    noise = race_noise(position.seed, position.index, ids, position.temperature).astype(np.float64)
    eta = position.eta_device
    return int((float(eta) * (device / noise) + float(WHOLE - eta) * (cloud / noise)).argmax())


def race_sampler(position: Position, entries: int) -> RaceSampler:
    """The sampler of both sides, for lists of so many entries."""
    return RaceSampler(position.seed, position.temperature, entries, len(position.device))


def follow(
    workload: Workload, question: str, documents: int, temperature: float, seed: int, tokens: int
) -> Iterator[Position]:
    """The positions of the model's answer, `tokens` at most; the last one's target may be the end."""
    sources = workload.sources(question, tokens, documents)
    eos = workload.decoder.eos
    path: list[int] = []
    while len(path) < tokens and not (path and path[-1] in eos):
        read = [sources[side].mixed(path) for side in SIDES]
        weights = [weigh(scores) for _, scores in read]
        (device, cloud), _ = mix(torch.cat([logits for logits, _ in read]), weights)
        evidence = (weights[0].evidence, weights[1].evidence)
        position = Position(seed, len(path), temperature, device, cloud, evidence)
        yield position
        path.append(position.target())


def synthetic(
    vocabulary: int, entropy: float, count: int, seed: int, disagreement: float = DISAGREEMENT
) -> Iterator[Position]:
    """`count` positions with Zipf-like mixtures of `entropy` nats.

    `disagreement` is the standard deviation of each side's own noise on the logits.
    """
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.log(torch.arange(1, vocabulary + 1, dtype=torch.float32))
    slope = _slope(ranks, entropy, disagreement)
    for index in range(count):
        common = -slope * ranks[torch.randperm(vocabulary, generator=generator)]
        device, cloud = (
            torch.softmax(common + disagreement * torch.randn(vocabulary, generator=generator), dim=-1) for _ in SIDES
        )
        evidence = torch.randn(2, generator=generator).tolist()
        yield Position(seed, index, 1.0, device, cloud, (evidence[0], evidence[1]))


def nats(probabilities: torch.Tensor) -> float:
    """Entropy."""
    return float(torch.special.entr(probabilities.to(torch.float64)).sum())


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
