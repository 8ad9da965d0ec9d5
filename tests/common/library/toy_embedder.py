"""An embedder that takes microseconds: words are hashed to directions, so shared words make texts similar."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

DIMENSION = 64


@lru_cache(maxsize=2**14)
def _direction(identity: str, word: str) -> NDArray[np.float64]:
    return np.random.default_rng(zlib.crc32(f"{identity} {word}".encode())).normal(size=DIMENSION)


class ToyEmbedder:
    """Counts what it embeds; `before` runs before every call and may raise."""

    def __init__(self, identity: str = "toy", before: Callable[[], None] = lambda: None) -> None:
        self.identity = identity
        self.embedded: list[str] = []
        self._before = before

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        self._before()
        self.embedded += texts
        return np.stack([self._vector(text) for text in texts])

    def encode_queries(self, texts: list[str]) -> NDArray[np.float32]:
        return self.encode(texts)

    def _vector(self, text: str) -> NDArray[np.float32]:
        total = np.full(DIMENSION, 1e-3)
        for word in text.lower().split():
            total += _direction(self.identity, word)
        vector: NDArray[np.float32] = (total / np.linalg.norm(total)).astype(np.float32)
        return vector
