"""Chunks per second of the embedding model by number type, side by side in one thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from common.library import embedder
from common.library.embedder import SentenceTransformerEmbedder

PLAIN = "PyTorch's layers, float32"
TURN = 8  # texts that one way embeds before the next one does: the machine's pace changes over minutes


@dataclass(slots=True)
class Way:
    """One way of embedding. `seconds` per text, a turn each; `vectors` [texts, dimension] of the first round."""

    made: SentenceTransformerEmbedder
    seconds: list[float] = field(default_factory=list)
    vectors: list[NDArray[np.float32]] = field(default_factory=list)

    def cosines(self, other: Way) -> NDArray[np.float32]:
        """Of each text's two vectors."""
        cosines: NDArray[np.float32] = np.sum(np.concatenate(self.vectors) * np.concatenate(other.vectors), axis=1)
        return cosines


def measure(texts: Sequence[str], rounds: int) -> dict[str, Way]:
    """Embed the texts `rounds` times in every way, in turns."""
    plain = SentenceTransformerEmbedder()
    plain._loaded = embedder._load(plain.folder, "cpu")  # as it is loaded, before its layers are packed
    ways = {
        PLAIN: Way(plain),
        "packed, float32": Way(SentenceTransformerEmbedder(dtype="float32")),
        "packed, bfloat16": Way(SentenceTransformerEmbedder(dtype="bfloat16")),
    }
    for way in ways.values():
        way.made.encode(["warm"])
    for number in range(rounds):
        for start in range(0, len(texts), TURN):
            turn = list(texts[start : start + TURN])
            for way in ways.values():
                began = time.perf_counter()
                vectors = way.made.encode(turn)
                way.seconds.append((time.perf_counter() - began) / len(turn))
                if number == 0:
                    way.vectors.append(vectors)
    return ways
