"""Sequence-wise aggregation (DRDG/SW): the choice between two whole answers.

RAG-Sequence (Lewis et al. 2020) with "fast decoding": an answer y has the mass p(y) = Σ_s η^s Π_t p^s(y_t | y_<t), a
sum over the sides s that generated y themselves. η is computed from the question alone (Appendix A.1 before the first
token).
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    """One side's answer, the sum of its tokens' log-probabilities, and log h of that side's documents."""

    tokens: tuple[int, ...]
    log_probability: float
    evidence: float


@dataclass(frozen=True, slots=True)
class Chosen:
    """The chosen answer, and the cloud's share of its mass: 0 or 1 unless both sides generated the same answer."""

    tokens: tuple[int, ...]
    cloud_share: float


def choose(device: Candidate, cloud: Candidate) -> Chosen:
    """The answer with the larger log η + Σ log p, in a tie the device's. The masses of identical answers add up."""
    of_device = device.evidence + device.log_probability  # log η + Σ log p, up to a constant that both share
    of_cloud = cloud.evidence + cloud.log_probability
    if device.tokens == cloud.tokens:
        return Chosen(device.tokens, 1.0 / (1.0 + math.exp(min(of_device - of_cloud, 700.0))))
    if of_cloud > of_device:
        return Chosen(cloud.tokens, 1.0)
    return Chosen(device.tokens, 0.0)
