"""Search hits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from common.library.places import below
from common.library.store import StoredChunk


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk found by a search; `path` is relative to the added folder."""

    chunk: int
    title: str
    path: str
    place: str  # in the document, e.g. «page 3»; may be empty
    text: str
    similarity: float  # cosine

    @property
    def source(self) -> str:
        """Title and place for a citation."""
        return f"{self.title}, {self.place}" if self.place and self.place != self.title else self.title

    @classmethod
    def of(cls, chunk: StoredChunk, query: NDArray[np.float32]) -> Hit:
        """Makes a hit from a chunk and a query's unit vector [dimension]."""
        similarity = float(np.dot(chunk.vector.astype(np.float64), query.astype(np.float64)))
        path = below(chunk.path, chunk.root)
        return cls(chunk.id, chunk.title, path, chunk.place, chunk.text, similarity)
