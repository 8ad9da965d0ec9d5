"""Document weights from word overlap: tf-idf against question and answer so far.

The answer joins two documents: the device's note names the maker of the bike, and then the cloud's entry about this
maker gets the weight. A score depends only on the document, the question and the answer prefix. So scores of both sides
are comparable.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

IDF_FILE = "idf.safetensors"
_MOST_BYTES = 2**27  # of the file; four per possible token
DEFAULT_SCALE = 3.5
"""Tuned on the demonstration model's questions; see `common/demo_model/README.md`."""
QUESTION_SHARE = 0.3
"""Weight of a question token, relative to the newest answer token."""
DECAY = 0.96
"""Decay of an answer token's weight per further token: the current fact matters most."""
LENGTH_POWER = 0.5
"""Divides scores by the document's tf-idf length to this power.

1 is the cosine, 0 ignores the length. Under the cosine a document with a second fact would lose to a shorter, worse
match.
"""


def has_table(tokenizer_folder: Path) -> bool:
    """Whether a tokenizer's folder has a table of word weights."""
    return os.path.isfile(tokenizer_folder / IDF_FILE)


@dataclass(frozen=True, slots=True)
class LexicalScorer:
    """Scores documents by idf-weighted token overlap, in microseconds per token."""

    gain: ClassVar[float] = 0.0
    idf: NDArray[np.float64]
    scale: float
    identity: str

    @classmethod
    def load(cls, tokenizer_folder: Path, scale: float = DEFAULT_SCALE) -> LexicalScorer:
        """Reads the idf table in a tokenizer's folder.

        Raises ValueError if it is missing: the model then needs another scorer.
        """
        path = tokenizer_folder / IDF_FILE
        if not has_table(tokenizer_folder):
            raise ValueError(f"{path} is missing: lexical weights need a table `idf` of [vocab] float32 values there")
        try:
            with path.open("rb") as file:
                content = file.read(_MOST_BYTES + 1)
            table = load(content).get("idf") if len(content) <= _MOST_BYTES else None
        except (OSError, SafetensorError, ValueError, KeyError) as error:
            raise ValueError(f"{path} can't be read: it is damaged, or no safetensors file; get it again") from error
        if table is None or table.ndim != 1 or table.dtype != np.float32:
            raise ValueError(f"{path} has no table `idf` of shape [vocab] and type float32")
        if not (np.isfinite(table).all() and (table >= 0).all()):
            raise ValueError(f"{path} is damaged: a weight is not finite or negative; get it again")
        return cls.from_table(table, scale)

    @classmethod
    def from_table(cls, table: NDArray[np.float32], scale: float = DEFAULT_SCALE) -> LexicalScorer:
        """A scorer for inverse document frequencies `table` [vocab]. Raises ValueError for a bad scale."""
        if not (math.isfinite(scale) and scale >= 0):
            raise ValueError(f"the scale of lexical weights must be finite and not negative, not {scale}")
        constants = f"{QUESTION_SHARE}/{DECAY}/{LENGTH_POWER}"
        digest = hashlib.sha256(table.astype("<f4").tobytes() + constants.encode()).hexdigest()
        return cls(table.astype(np.float64), scale, f"lexical:{scale:g}:{digest[:16]}")

    def begin(
        self,
        query: Sequence[int],
        documents: Sequence[Sequence[int]],
        similarity: Sequence[float] | None = None,
    ) -> LexicalRun:
        """Ignores the retrieval similarity."""
        return LexicalRun(self, query, documents)

    def close(self) -> None:
        """Does nothing."""

    def squared_idf(self, token: int) -> float:
        """The weight of one match; 0 for tokens outside the table."""
        return float(self.idf[token]) ** 2 if 0 <= token < len(self.idf) else 0.0


@dataclass(frozen=True, slots=True)
class _State:
    """The sums after an answer prefix; `shadowed` is the newest token's previous entry."""

    overlap: NDArray[np.float64]
    question_overlap: float
    squared_length: float
    shadowed: tuple[float, int] | None


class LexicalRun:
    """Scores during one answer: one look-up per document and token; a rollback is free."""

    def __init__(self, scorer: LexicalScorer, query: Sequence[int], documents: Sequence[Sequence[int]]) -> None:
        self._scorer = scorer
        self._documents = [_log_counts(document) for document in documents]
        self._question = dict.fromkeys(query, QUESTION_SHARE)
        self._question_length = _squared_length(scorer, self._question)
        lengths = [_squared_length(scorer, document) for document in self._documents]
        with np.errstate(divide="ignore"):
            inverse = np.asarray(lengths, dtype=np.float64) ** (-LENGTH_POWER / 2)
        self._inverse_lengths = np.where(np.isfinite(inverse), inverse, 0.0)
        self._base = np.zeros(len(documents))
        for token, share in self._question.items():
            self._base += self._column(token) * share
        self._answer: list[int] = []
        self._last: dict[int, tuple[float, int]] = {}
        self._states = [_State(np.zeros(len(documents)), 0.0, 0.0, None)]

    def scores(self, answer: Sequence[int]) -> NDArray[np.float64]:
        kept = _common(self._answer, answer)
        while len(self._answer) > kept:
            self._pop()
        for token in answer[kept:]:
            self._push(token)
        state = self._states[-1]
        squared = self._question_length + 2 * state.question_overlap + state.squared_length
        if squared <= 0:
            return np.zeros(len(self._documents))
        overlap = (self._base + state.overlap) * self._inverse_lengths
        return np.asarray(overlap * (self._scorer.scale / math.sqrt(squared)), dtype=np.float64)

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        return True

    def _push(self, token: int) -> None:
        state = self._states[-1]
        weight = self._scorer.squared_idf(token)
        entry = self._last.get(token)
        position = len(self._answer)
        aged = 0.0 if entry is None else entry[0] * DECAY ** (position - entry[1])
        self._states.append(
            _State(
                state.overlap * DECAY + self._column(token),
                state.question_overlap * DECAY + self._question.get(token, 0.0) * weight,
                state.squared_length * DECAY**2 + (2 * aged + 1) * weight,
                entry,
            )
        )
        self._last[token] = (aged + 1.0, position)
        self._answer.append(token)

    def _pop(self) -> None:
        state = self._states.pop()
        token = self._answer.pop()
        if state.shadowed is None:
            del self._last[token]
        else:
            self._last[token] = state.shadowed

    def _column(self, token: int) -> NDArray[np.float64]:
        weight = self._scorer.squared_idf(token)
        return np.asarray([document.get(token, 0.0) * weight for document in self._documents], dtype=np.float64)


def _log_counts(tokens: Sequence[int]) -> dict[int, float]:
    return {token: 1.0 + math.log(count) for token, count in Counter(tokens).items()}


def _squared_length(scorer: LexicalScorer, counts: Mapping[int, float]) -> float:
    return sum(share * share * scorer.squared_idf(token) for token, share in counts.items())


def _common(held: list[int], answer: Sequence[int]) -> int:
    if held == list(answer[: len(held)]):
        return len(held)
    pairs = zip(held, answer, strict=False)
    return next((index for index, (old, new) in enumerate(pairs) if old != new), min(len(held), len(answer)))
