"""Document weights from retrieval similarity (DRAGON §4.1), constant or with information gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class StaticScorer:
    """R(d, x_<t) = scale * similarity(query, d) at every position. Raises ValueError for a bad scale."""

    gain: ClassVar[float] = 0.0
    scale: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.scale) and self.scale >= 0):
            raise ValueError(f"the scale of static weights must be finite and not negative, not {self.scale}")

    @property
    def identity(self) -> str:
        """`static:<scale>`."""
        return f"static:{float(self.scale)!r}"

    def begin(self, query: Sequence[int], documents: Sequence[Sequence[int]], similarity: Sequence[float]) -> StaticRun:
        """Raises ValueError unless there is one finite `similarity` [docs] per document."""
        values = np.asarray(similarity, dtype=np.float64).reshape(-1)
        if len(values) != len(documents):
            raise ValueError(f"{len(documents)} documents have {len(values)} similarities")
        if not np.all(np.isfinite(values)):
            raise ValueError("a document's similarity is not a finite number")
        weights = self.scale * values
        weights.flags.writeable = False
        return StaticRun(weights)

    def close(self) -> None:
        """Does nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class StaticRun:
    """The constant weights [docs] of one answer."""

    weights: NDArray[np.float64]

    def scores(self, answer: Sequence[int]) -> NDArray[np.float64]:
        """The weights, read-only."""
        return self.weights

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        return True


# --- contrast
# Document weights from retrieval similarity, and from each document's information at every position.


@dataclass(frozen=True, slots=True)
class ContrastScorer:
    """R(d, x_<t) = scale · similarity(query, d) + gain · KL(p_d ‖ p). The engine adds the second part.

    p is the model's prediction without documents, from one more row per answer. Needs no training and no second model.
    Raises ValueError for a bad scale or gain.
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
        """Returns the first part of R. Raises as `StaticScorer.begin` does."""
        return StaticScorer(self.scale).begin(query, documents, similarity)

    def close(self) -> None:
        """Does nothing."""
