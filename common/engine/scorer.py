"""The seam between the engine and the document weights (DRAGON §4.1, Eq. 2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class ScoringRun(Protocol):
    """The weights of one side's documents during one answer."""

    def scores(self, answer: Sequence[int]) -> NDArray[np.float64]:
        """R(d, x_<t) of every document, [docs], a function of (query, documents, answer prefix) alone."""
        ...

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        """Whether `scores` would give these without waiting; if not, they are computed and `wake` is called then."""
        ...


class DocumentScorer(Protocol):
    """Starts scoring runs. Both sides must use the same one: their evidences are compared."""

    @property
    def identity(self) -> str:
        """Names the scorer and everything that changes its numbers; compared in the handshake."""
        ...

    @property
    def gain(self) -> float:
        """Score that a document gets for each nat it tells the model; not 0: a row without a document is needed."""
        ...

    def begin(
        self, query: Sequence[int], documents: Sequence[Sequence[int]], similarity: Sequence[float]
    ) -> ScoringRun:
        """A run for `documents` (token ids, [docs] sequences) with their retrieval cosine `similarity` [docs]."""
        ...

    def close(self) -> None:
        """Free what the scorer holds; no run of it is used any more."""
        ...
