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
from common.sampling.fastest import fastest
from common.sampling.logcode import quantise
from common.sampling.mixture import Mixture
from common.sampling.noise import VocabularyNoise, exponential
from common.sampling.paper import PaperSampler
from proto.logcode import decode
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
        codes = quantise(device), quantise(cloud)
        weights = eta / WHOLE, (WHOLE - eta) / WHOLE  # exact: WHOLE is a power of two

        def scores(ids: NDArray[np.int64]) -> NDArray[np.float64]:
            chosen = torch.from_numpy(ids).to(device.device)
            noise = 1.0 if self._noise is None else exponential(self._seed, position, ids)
            of_device, of_cloud = (decode(of_side[chosen].cpu().numpy()) / noise for of_side in codes)
            return np.asarray(weights[0] * of_device + weights[1] * of_cloud)

        mixture = (weights[0] * device + weights[1] * cloud).to(torch.float32)
        bounds = mixture if self._noise is None else self._noise.speed_bounds(mixture, self._seed, position)
        ids, _ = fastest(bounds, 1, scores)
        return int(ids[0])


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
