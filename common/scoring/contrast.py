"""Document weights from retrieval similarity and from what each document tells the model at every position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from common.scoring.static import StaticRun, StaticScorer


@dataclass(frozen=True, slots=True)
class ContrastScorer:
    """R(d, x_<t) = scale · similarity(query, d) + gain · KL(p_d ‖ p); the engine adds the second part.

    p is the model's prediction for a row without a document, which is one more row for each answer. Needs no training
    and no second model. Raises ValueError for a bad scale or gain.
    """

    scale: float
    gain: float

    def __post_init__(self) -> None:
        for name, value in (("scale", self.scale), ("gain", self.gain)):
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"the {name} of contrast weights must be finite and not negative, not {value}")

    @property
    def identity(self) -> str:
        """`contrast:<scale>:<gain>`."""
        return f"contrast:{float(self.scale)!r}:{float(self.gain)!r}"

    def begin(self, query: Sequence[int], documents: Sequence[Sequence[int]], similarity: Sequence[float]) -> StaticRun:
        """A run for `documents` with their retrieval cosine `similarity` [docs]: the part that is known beforehand.

        Raises ValueError unless there is one finite similarity for each document.
        """
        return StaticScorer(self.scale).begin(query, documents, similarity)

    def close(self) -> None:
        """Do nothing: the scorer holds nothing."""
