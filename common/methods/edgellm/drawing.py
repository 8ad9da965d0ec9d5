"""What the draft model tells of its distributions: the most probable tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.drafting import Race
from common.sampling.fastest import Found
from common.trees.tree import Candidate

MOST_CANDIDATES: Final = 64  # as many as a tree may have nodes


@dataclass(frozen=True, slots=True)
class Following:
    """The most probable tokens, likeliest first."""

    candidates: tuple[Candidate, ...]

    @property
    def token(self) -> int:
        return self.candidates[0].token

    @property
    def listed(self) -> NDArray[np.integer]:
        return np.asarray([self.token])


@dataclass(frozen=True, slots=True)
class Likeliest:
    """Implements `Drafter`. Probabilities are those before the temperature, at every temperature: at 0 all of them
    would be 0 or 1, and say nothing of how sure the model is.
    """

    count: int = MOST_CANDIDATES

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Following:
        """Raises `ValueError` for a mixture without a positive probability."""
        values, ids = probabilities.topk(min(self.count, len(probabilities)))
        pairs = zip(ids.tolist(), values.tolist(), strict=True)
        candidates = tuple(Candidate(token, probability) for token, probability in pairs if probability > 0)
        if not candidates:
            raise ValueError(f"the mixture at position {position} has no positive probability")
        return Following(candidates)
