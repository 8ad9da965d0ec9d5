"""Decisions from both sides' mixtures in one process, for a fetching device (DRCG).

Rounding, noise and weights are those of two sides, which would decide the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from common.methods.paper.sampler import PaperSampler
from common.sampling.certificate import WHOLE, JointToken, Logprobs, eta_fixed, of_mixture
from common.sampling.mixture import Attribution, Weights, attribute
from common.sampling.race import Race, RaceKernel, codes_in, fastest, noise_of
from proto.codes import decode_probabilities
from proto.messages import Open


@dataclass(frozen=True, slots=True, eq=False)
class JointAttribution:
    """Shares of the documents, the device's first."""

    device: Attribution
    cloud: Attribution
    masses: tuple[float, float]  # the token's probability per (device, cloud) mixture, times the weight

    def contributions(self, token: int) -> NDArray[np.float64]:
        """Shares in the token, [device docs + cloud docs + 1]. The last is no document's."""
        total = sum(self.masses)
        share = self.masses[1] / total if total > 0 else 0.0
        device, cloud = (1.0 - share) * self.device.contributions(token), share * self.cloud.contributions(token)
        return np.concatenate([device[:-1], cloud[:-1], device[-1:] + cloud[-1:]])


class JointSampler(Protocol):
    """Decides from both mixtures [vocab]; `eta`: the device's weight, times 2**16."""

    def decide(self, position: int, device: torch.Tensor, cloud: torch.Tensor, eta: int) -> int: ...


class JointRace:
    """The race over all tokens with a certified winner; the lowest id wins ties."""

    def __init__(self, seed: int, temperature: float, vocabulary: int, torch_device: str) -> None:
        self._seed = seed
        self._temperature = temperature
        self._kernel = RaceKernel(vocabulary, torch_device)

    def decide(self, position: int, device: torch.Tensor, cloud: torch.Tensor, eta: int) -> int:
        sides = torch.stack([device, cloud])
        weights = eta / WHOLE, (WHOLE - eta) / WHOLE  # exact: WHOLE is a power of two
        races = [Race(self._seed, position, self._temperature, 1)]

        def scores(which: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
            noise = noise_of(races, which, ids)
            of_device, of_cloud = (decode_probabilities(codes_in(sides, which + side, ids)) / noise for side in (0, 1))
            return np.asarray(weights[0] * of_device + weights[1] * of_cloud)

        mixture = (weights[0] * device + weights[1] * cloud).to(torch.float32)
        ((ids, _),) = fastest(self._kernel.bounds(mixture[None], races), [1], scores)
        return int(ids[0])


class JointPaper:
    """Algorithm 1 on a draft from each mixture."""

    def __init__(self, sampler: PaperSampler) -> None:
        self._sampler = sampler

    def decide(self, position: int, device: torch.Tensor, cloud: torch.Tensor, eta: int) -> int:
        drafts = (
            self._sampler.draft("device", position, device),
            self._sampler.draft("cloud", position, cloud),
        )
        return self._sampler.target(position, *drafts, eta / WHOLE).token


class JointDecision:
    """Implements `Joint`: decides by the request's rule, and attributes tokens."""

    def __init__(self, sampler: JointSampler, likeliest: int = 0) -> None:
        """`likeliest`: log-probabilities per token."""
        self._sampler = sampler
        self._likeliest = likeliest

    def draft(
        self,
        position: int,
        mixtures: torch.Tensor,
        rows: tuple[torch.Tensor, torch.Tensor],
        weights: tuple[Weights, Weights],
        evidence: tuple[float, float],
        without: torch.Tensor | None = None,
    ) -> tuple[JointToken, JointAttribution]:
        """The target and its attribution; see `Joint`."""
        eta = eta_fixed(*evidence)
        token = self._sampler.decide(position, mixtures[0], mixtures[1], eta)
        of_device, of_cloud = (float(mixtures[side, token]) for side in (0, 1))
        share = eta / WHOLE
        ids = np.asarray([token])
        device, cloud = (attribute(own, each, ids, without) for own, each in zip(rows, weights, strict=True))
        told = self._logprobs(share * mixtures[0] + (1.0 - share) * mixtures[1], token) if self._likeliest else None
        return JointToken(token, told), JointAttribution(device, cloud, (share * of_device, (1.0 - share) * of_cloud))

    def _logprobs(self, mixture: torch.Tensor, token: int) -> Logprobs:
        top = mixture.topk(min(self._likeliest, len(mixture)))
        listed = dict(zip(top.indices.tolist(), top.values.tolist(), strict=True))
        return of_mixture(listed | {token: float(mixture[token])}, token, self._likeliest)


def make_joint(request: Open, vocabulary: int, torch_device: str) -> JointDecision:
    """Make the request's joint sampler. Raises `ValueError` for incompatible options."""
    if request.sampler == "race":
        return JointDecision(JointRace(request.seed, request.temperature, vocabulary, torch_device), request.likeliest)
    if request.codec == "race":
        raise ValueError("the paper's sampler sends codec 'top-p' or 'raw', not 'race'")
    return JointDecision(
        JointPaper(PaperSampler(request.seed, request.temperature, request.top_p, request.codec, vocabulary))
    )
