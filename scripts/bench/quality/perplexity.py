"""Perplexity of unseen text with documents of both sides, one side or none (DRAGON §7.2-7.3, Fig. 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from common.library.embedder import SentenceTransformerEmbedder, unit_vectors
from common.sampling.information import information
from common.scoring.choice import GAIN, STATIC_SCALE
from scripts.bench.quality.blocks import block_pass
from scripts.bench.quality.corpus import Corpus, spread, windows

QUERY_SHARE = 8  # the first eighth of a window is the query; the rest is predicted
NONE, DEVICE, CLOUD, CONCATENATED = "no documents", "CRCG/device", "CRCG/cloud", "DRCG"
BOTH, CONTRASTED = "DRAGON", "DRAGON, contrast"  # with constant weights, as published, and with the default ones
# All documents of a side in one row, weights 1/2 and 1/2: read in one go, or as blocks, of which a share is read again.
SIDES, SIDES_BLOCKS, SIDES_AGAIN = "row per side", "row per side, blocks", "row per side, blocks, 1/8 again"
METHODS = (NONE, DEVICE, CLOUD, CONCATENATED, BOTH, CONTRASTED, SIDES, SIDES_BLOCKS, SIDES_AGAIN)
PANELS = {  # of the picture; `BOTH` in each, to compare by
    "a row per document": (BOTH, CONTRASTED, NONE, DEVICE, CLOUD, CONCATENATED),
    "a row per side": (BOTH, SIDES, SIDES_BLOCKS, SIDES_AGAIN),
}
AGAIN = 1 / 8
# Pairs that are compared window by window: what one loses against the other.
COMPARED = (
    (SIDES, CONCATENATED),
    (SIDES, CONTRASTED),
    (CONTRASTED, CONCATENATED),
    (SIDES_BLOCKS, SIDES),
    (SIDES_AGAIN, SIDES),
)

COUNTS, SHORT_COUNTS = (0, 1, 2, 4, 8, 16), (0, 1, 2)  # documents per side
WINDOWS, SHORT_WINDOWS = 240, 3  # that are predicted
SEED = 11
_TOGETHER = 2**13  # tokens of rows that are read in one pass: every one has a logit for every word


@dataclass(frozen=True, slots=True)
class Sizes:
    """Lengths are tokens."""

    document: int
    window: int
    library: int  # documents, at most
    windows: int  # that are predicted, at most
    counts: tuple[int, ...]  # documents per side
    context: int = 256  # of documents and window together where documents are concatenated, as in §7.3


class Text:
    """A model, and the known half as a library that both sides share out."""

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, corpus: Corpus, sizes: Sizes
    ) -> None:
        """Windows of the unseen half are predicted."""
        self._model = model.eval()
        self._tokenizer = tokenizer
        backend = tokenizer.backend_tokenizer
        self._counts = sizes.counts
        self._sizes = sizes
        self.documents = spread(windows(backend, corpus.known, sizes.document), sizes.library)
        everything = windows(backend, corpus.unseen, sizes.window)
        chosen = np.random.default_rng(SEED).choice(len(everything), min(sizes.windows, len(everything)), False)
        self.windows = [everything[index] for index in chosen]
        self._embedder = SentenceTransformerEmbedder()
        vectors = unit_vectors(self._embedder, [str(tokenizer.decode(ids)) for ids in self.documents])
        self._index = faiss.IndexFlatIP(vectors.shape[1])
        self._index.add(vectors)

    def measure(self) -> dict[str, dict[int, list[float]]]:
        """Mean negative log-likelihood per predicted token of each window, by method and documents per side."""
        return by_method(self.window(number) for number in range(len(self.windows)))

    @torch.inference_mode()
    def window(self, number: int) -> dict[tuple[str, int], float]:
        """As `measure`, of one window."""
        counts, window = self._counts, self.windows[number]
        query = str(self._tokenizer.decode(window[: len(window) // QUERY_SHARE]))
        similarity, ids = self._index.search(unit_vectors(self._embedder, [query], queries=True), 2 * max(counts))
        near = [self.documents[index] for index in ids[0]]
        without = self._predictions([[]], window)
        (alone,) = self._likelihood(without, window)
        rows, told = self._read(near, window, without[0])
        result: dict[tuple[str, int], float] = {}
        for count in counts:
            if count == 0:
                result |= {(method, 0): -float(alone.mean()) for method in METHODS}
                continue
            # The top 2k documents: the cloud has the first half, the device the second (§7.2).
            both = slice(0, 2 * count)
            cloud, device = near[:count], near[count : 2 * count]
            result[NONE, count] = -float(alone.mean())
            scores = STATIC_SCALE * similarity[0][both].astype(np.float64)[:, None]
            result[BOTH, count] = mixture(rows[both], scores)
            result[CONTRASTED, count] = mixture(rows[both], scores + GAIN * told[both])
            for method, documents in ((CLOUD, cloud), (DEVICE, device), (CONCATENATED, near[both])):
                context = self._concatenated(documents, len(window))
                (likelihood,) = self._likelihood(self._predictions([context], window), window)
                result[method, count] = -float(likelihood.mean())
            result |= self._rows_of_sides(device[::-1], cloud[::-1], count, window)
        return result

    def _rows_of_sides(
        self, device: Sequence[Sequence[int]], cloud: Sequence[Sequence[int]], count: int, window: list[int]
    ) -> dict[tuple[str, int], float]:
        """Documents that share a row, the most similar last."""
        sides = [[[token for each in documents for token in each]] for documents in (device, cloud)]
        whole = [self._likelihood(self._predictions(side, window), window)[0] for side in sides]
        blocks = [self._blocks(documents, window, 0.0) for documents in (device, cloud)]
        again = [self._blocks(documents, window, AGAIN) for documents in (device, cloud)]
        even = np.zeros((2, 1))
        return {
            (SIDES, count): mixture(np.stack(whole), even),
            (SIDES_BLOCKS, count): mixture(np.stack(blocks), even),
            (SIDES_AGAIN, count): mixture(np.stack(again), even),
        }

    def _blocks(self, documents: Sequence[Sequence[int]], window: list[int], again: float) -> NDArray[np.float64]:
        """log p of the predicted tokens, [tokens], behind `documents` as blocks."""
        read = block_pass(documents, window, int(self._tokenizer.eos_token_id), again)
        made: Any = self._model(
            input_ids=read.tokens[None],
            position_ids=read.positions[None],
            attention_mask=read.mask.to(self._model.dtype),
            use_cache=False,
            logits_to_keep=_predicted(window) + 1,
        )
        (likelihood,) = self._likelihood(made.logits[:, :-1], window)
        return np.asarray(likelihood)

    def _concatenated(self, documents: Sequence[Sequence[int]], window: int) -> list[int]:
        """As many of the documents as the context holds, the most similar one next to the window."""
        fitting = documents[: (self._sizes.context - window) // self._sizes.document]
        return [token for document in reversed(fitting) for token in document]

    def _read(
        self, documents: Sequence[Sequence[int]], window: list[int], without: Tensor
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """log p of the predicted tokens behind each document, and what it tells about each beyond the predictions
        `without` any `[tokens, vocab]`, in nats; both [documents, tokens].
        """
        together = max(1, _TOGETHER // (self._sizes.document + len(window)))
        likelihood: list[NDArray[np.float64]] = []
        told: list[NDArray[np.float64]] = []
        for start in range(0, len(documents), together):
            made = self._predictions(documents[start : start + together], window)
            likelihood.append(self._likelihood(made, window))
            by_token = [information(torch.cat([made[:, at], without[None, at]])) for at in range(made.shape[1])]
            told.append(np.stack(by_token, axis=1))
        return np.concatenate(likelihood), np.concatenate(told)

    def _predictions(self, documents: Sequence[Sequence[int]], window: list[int]) -> Tensor:
        """Logits for the predicted tokens of rows [begin][document][window], [documents, tokens, vocab]. Documents of
        one length.
        """
        begin = self._tokenizer.eos_token_id
        rows = torch.tensor([[begin, *document, *window] for document in documents])
        made: Any = self._model(input_ids=rows, use_cache=False, logits_to_keep=_predicted(window) + 1)
        logits: Tensor = made.logits[:, :-1]
        return logits

    def _likelihood(self, logits: Tensor, window: list[int]) -> NDArray[np.float64]:
        """log p of the predicted tokens, [documents, tokens]."""
        targets = torch.tensor(window[-_predicted(window) :])[None, :, None].expand(len(logits), -1, 1)
        found: NDArray[np.float64] = logits.float().log_softmax(-1).gather(-1, targets)[..., 0].double().numpy()
        return found


def by_method(found: Iterable[Mapping[tuple[str, int], float]]) -> dict[str, dict[int, list[float]]]:
    """Join what `Text.window` found of each window."""
    joined: dict[str, dict[int, list[float]]] = {method: {} for method in METHODS}
    for window in found:
        for (method, count), value in window.items():
            joined[method].setdefault(count, []).append(value)
    return joined


def _predicted(window: Sequence[int]) -> int:
    return len(window) - len(window) // QUERY_SHARE


def mixture(log_likelihood: NDArray[np.float64], scores: NDArray[np.float64]) -> float:
    """Mean negative log of Σ_d w_d p_d (Eq. 1), w = softmax of `scores` over the documents.

    `log_likelihood` is [documents, tokens], `scores` that or [documents, 1]. Aggregating per side first and then both
    sides gives the same mixture.
    """
    log_weights = scores - np.logaddexp.reduce(scores, axis=0)
    return -float(np.logaddexp.reduce(log_likelihood + log_weights, axis=0).mean())
