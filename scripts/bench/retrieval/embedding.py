"""Chunks per second of the embedding model by number type, side by side in one thread."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from common.library import embedder
from common.library.embedder import SentenceTransformerEmbedder
from scripts.bench.rows import Row

PLAIN = "PyTorch's layers, float32"
TURN = 8  # texts that one way embeds before the next one does: the machine's pace changes over minutes


def measure(texts: Sequence[str], rounds: int) -> Iterator[Row]:
    """Embeds the texts `rounds` times in every way, in turns: seconds per text, and cosines with the first way's."""
    plain = SentenceTransformerEmbedder()
    plain._loaded = embedder._load(plain.folder, "cpu")  # as it is loaded, before its layers are packed
    ways = {
        PLAIN: plain,
        "packed, float32": SentenceTransformerEmbedder(dtype="float32"),
        "packed, bfloat16": SentenceTransformerEmbedder(dtype="bfloat16"),
    }
    for way in ways.values():
        way.encode(["warm"])
    for number in range(rounds):
        for start in range(0, len(texts), TURN):
            turn = list(texts[start : start + TURN])
            first = None
            for name, way in ways.items():
                began = time.perf_counter()
                vectors = way.encode(turn)
                seconds = (time.perf_counter() - began) / len(turn)
                first = vectors if first is None else first
                cosines = np.sum(vectors * first, axis=1)
                row = {"way": name, "turn": number * len(texts) + start, "seconds": seconds}
                yield row | {"least cosine": float(cosines.min()), "mean cosine": float(cosines.mean())}
