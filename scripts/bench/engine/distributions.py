"""Logits of synthetic models: both sides' documents agree on most of the mass, as those on one question do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from proto.messages import Side

Shape = Literal["peaked", "flat"]

# Logits fall with the logarithm of a token's rank, as words do (Zipf). Flat keeps thousands of tokens possible;
# peaked is a model that copies from a document: one token has nearly everything.
SLOPES: dict[Shape, float] = {"peaked": 3.0, "flat": 1.1}
DOCUMENT_NOISE = 0.3  # standard deviation of what a document changes in each logit
FRESH = 8  # distributions made; later positions use them again


@dataclass(frozen=True, slots=True)
class Logits:
    """`[docs, vocab]` logits of one side at every position."""

    pool: tuple[torch.Tensor, ...]

    @classmethod
    def draw(cls, side: Side, vocabulary: int, documents: int, shape: Shape, seed: int) -> Logits:
        """Draw one side's logits from `seed`; both sides share what is common to a position."""
        shared = torch.Generator().manual_seed(seed)
        own = torch.Generator().manual_seed(2 * seed + (1 if side == "device" else 2))
        falling = -SLOPES[shape] * torch.log(torch.arange(1, vocabulary + 1, dtype=torch.float32))
        pool = []
        for _ in range(FRESH):
            common = falling[torch.randperm(vocabulary, generator=shared)]
            noise = torch.randn(documents, vocabulary, generator=own) * DOCUMENT_NOISE
            pool.append(common + noise)
        return cls(tuple(pool))

    def logits(self, path: Sequence[int]) -> torch.Tensor:
        """`[docs, vocab]` at the position after `path`."""
        return self.pool[len(path) % len(self.pool)]


@dataclass(frozen=True, slots=True)
class Even:
    """Document weights that are all alike, for what does not depend on them."""

    documents: int

    def scores(self, answer: Sequence[int]) -> NDArray[np.float64]:
        return np.zeros(self.documents)

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        return True
