"""Candidates that the draft model tells of its distributions: the tokens that the verifier probably draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.methods.trees.machine.tree import Candidate
from common.sampling.drafting import Race
from common.sampling.fastest import Found

MOST_CANDIDATES: Final = 64  # behind one node


@dataclass(frozen=True, slots=True)
class Following:
    """The first finishers, the fastest first."""

    candidates: tuple[Candidate, ...]

    @property
    def token(self) -> int:
        return self.candidates[0].token

    @property
    def listed(self) -> NDArray[np.integer]:
        return np.asarray([self.token])


@dataclass(frozen=True, slots=True)
class Finishers:
    """Implements `Drafter`: runs the verifier's race, with the same noise E, on the draft model's distribution q.

    The verifier draws argmax p_i / E_i^T, so it is not the most probable tokens that are likely but those with large
    q_i / E_i^T. A candidate's probability is its share of the sum of these speeds, in which tokens that are not listed
    count with E = 1; at temperature 0 that is q_i.
    """

    seed: int
    temperature: float
    count: int = MOST_CANDIDATES

    def race(self, position: int) -> Race:
        return Race(self.seed, position, self.temperature, self.count)

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Following:
        """Raises `ValueError` for a mixture without a positive probability."""
        if found is None or not len(found[0]):
            raise ValueError(f"the mixture at position {position} has no positive probability")
        ids, speeds = found
        order = np.argsort(-speeds, kind="stable")
        unlisted = max(0.0, 1.0 - float(probabilities[torch.from_numpy(ids).to(probabilities.device)].sum()))
        shares = speeds / (speeds.sum() + unlisted)
        pairs = zip(ids[order].tolist(), shares[order].tolist(), strict=True)
        return Following(tuple(Candidate(token, share) for token, share in pairs))
