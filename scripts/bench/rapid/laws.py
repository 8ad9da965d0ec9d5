"""The shift's effect on a token's law, position by position: acceptance, and distances between laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.augmentation import augmented
from common.sampling.rejection import acceptance
from common.sampling.truncation import Distribution, renormalised


@dataclass(frozen=True, slots=True)
class Laws:
    """One position: the drafter's q, the verifier's p, p̂ of one strength, and the law of the published residual."""

    accepted: float  # probability that a token of q holds against p̂
    moved: float  # total variation of p̂ from p
    from_target: float  # of the published law from p̂
    from_verifier: float  # of the published law from p


def laws(verifier: torch.Tensor, drafter: torch.Tensor, eta: float) -> Laws:
    """For distributions [vocab]."""
    p, q = _distribution(verifier), _distribution(drafter)
    target = augmented(p, q, eta)
    ids = np.arange(len(verifier))
    own, moved, proposed = p.at(ids), target.at(ids), q.at(ids)
    published = paper_law(own, moved, proposed)
    return Laws(
        acceptance(target, q),
        _distance(moved, own),
        _distance(published, moved),
        _distance(published, own),
    )


def paper_law(p: NDArray[np.float64], target: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """The law of a token by the published residual: min(q, p̂) + (1 - Σ min(q, p̂)) norm(max(p - p̂, p - q, 0))."""
    kept = np.minimum(q, target)
    residual = np.maximum(0.0, np.maximum(p - target, p - q))
    total = float(residual.sum())
    law: NDArray[np.float64] = kept + (1.0 - kept.sum()) * (residual / total if total else p)
    return law


def mean(found: Sequence[Laws]) -> Laws:
    """The means of all positions."""
    columns = np.asarray([[each.accepted, each.moved, each.from_target, each.from_verifier] for each in found])
    accepted, moved, from_target, from_verifier = columns.mean(axis=0).tolist()
    return Laws(accepted, moved, from_target, from_verifier)


def _distribution(probabilities: torch.Tensor) -> Distribution:
    return renormalised(np.arange(len(probabilities)), probabilities.cpu().numpy().astype(np.float64))


def _distance(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Total variation."""
    return float(0.5 * np.abs(one - other).sum())
