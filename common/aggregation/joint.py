"""Both sides' mixtures in one process: the token that two sides with the same mixtures would agree on.

For a device that has fetched the cloud's documents (DRCG): the same rounding, noise and weights as between two
sides, so that the answer is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.certificate import WHOLE, eta_fixed
from common.sampling.logcode import dequantise, quantise
from common.sampling.mixture import Mixture
from common.sampling.noise import VocabularyNoise
from common.sampling.paper import PaperSampler
from proto.messages import Open


@dataclass(frozen=True, slots=True)
class JointToken:
    """The target, as a draft that is sure to be it."""

    token: int


@dataclass(frozen=True, slots=True, eq=False)
class JointMixture:
    """Where a joint token comes from: the documents of both sides, the device's first."""

    device: Mixture
    cloud: Mixture
    eta: float  # the device's weight

    def contributions(self, token: int) -> NDArray[np.float64]:
        """Each document's share of the token's probability, [device's docs + cloud's docs]."""
        of_device = self.eta * float(self.device.probabilities[token])
        of_cloud = (1.0 - self.eta) * float(self.cloud.probabilities[token])
        share = of_cloud / (of_device + of_cloud) if of_device + of_cloud > 0 else 0.0
        parts = (1.0 - share) * self.device.contributions(token), share * self.cloud.contributions(token)
        return np.concatenate(parts)


class JointSampler(Protocol):
    """Decides a position from both mixtures [vocab]; `eta` is the device's weight in units of 2**-16."""

    def decide(self, position: int, device: torch.Tensor, cloud: torch.Tensor, eta: int) -> int: ...


class JointRace:
    """The winner of the race that certificates prove: scores of all tokens, of equal ones the lowest id."""

    def __init__(self, seed: int, temperature: float, vocabulary: int, torch_device: str) -> None:
        self._seed = seed
        self._noise = VocabularyNoise(vocabulary, torch_device) if temperature > 0 else None

    def decide(self, position: int, device: torch.Tensor, cloud: torch.Tensor, eta: int) -> int:
        scores = self._speeds(position, device).mul_(float(eta))
        scores += self._speeds(position, cloud).mul_(float(WHOLE - eta))
        return int((scores == scores.max()).nonzero()[0])  # argmax leaves open which of equal ones it takes

    def _speeds(self, position: int, probabilities: torch.Tensor) -> torch.Tensor:
        speeds = dequantise(quantise(probabilities))
        return speeds if self._noise is None else self._noise.divide(speeds, self._seed, position)


class JointPaper:
    """Algorithm 1 on both drafts."""

    def __init__(self, sampler: PaperSampler) -> None:
        self._sampler = sampler

    def decide(self, position: int, device: torch.Tensor, cloud: torch.Tensor, eta: int) -> int:
        drafts = (
            self._sampler.draft("device", position, device),
            self._sampler.draft("cloud", position, cloud),
        )
        return self._sampler.aggregate(position, *drafts, eta / WHOLE).token


class Joint:
    """What a decoder needs of it: both mixtures and evidences in, token and attribution out."""

    def __init__(self, sampler: JointSampler) -> None:
        self._sampler = sampler

    def draft(
        self, position: int, device: Mixture, cloud: Mixture, evidence: tuple[float, float]
    ) -> tuple[JointToken, JointMixture]:
        """`evidence` is log h of (device, cloud), `NO_EVIDENCE` for a side without documents."""
        eta = eta_fixed(*evidence)
        token = self._sampler.decide(position, device.probabilities, cloud.probabilities, eta)
        return JointToken(token), JointMixture(device, cloud, eta / WHOLE)


def make_joint(request: Open, vocabulary: int, torch_device: str) -> Joint:
    """The sampler that `request` names, for both sides at once. Raises `ValueError` for what does not go together."""
    if request.sampler == "race":
        return Joint(JointRace(request.seed, request.temperature, vocabulary, torch_device))
    if request.codec == "race":
        raise ValueError("the paper's sampler sends codec 'top-p' or 'raw', not 'race'")
    return Joint(JointPaper(PaperSampler(request.seed, request.temperature, request.top_p, request.codec, vocabulary)))
