"""Document weights from a slow model, every n tokens, one period late (DRAGON §4.1).

A weight must not depend on the model's speed, or the answer would. So positions [kn, (k+1)n) use the scores of the
prefix x_<(k-1)n, the empty one for k <= 1. The model has one period of time; an earlier reader waits.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from common.sampling.mixture import on_grid
from common.scoring.worker import ScoringCost, ScoringRequest, ScoringThread

log = logging.getLogger(__name__)

_HELD = 8  # prefixes per answer with kept scores, for drafts that alternate between branches

Decode = Callable[[Sequence[int]], str]
Relevance = Callable[[str], NDArray[np.float64]]
"""Relevance of each document to a text, [docs]. Called on one thread at a time."""


class RelevanceModel(Protocol):
    """A slow model of relevance. A document's score must not depend on other documents."""

    @property
    def identity(self) -> str:
        """Names the model by its content, and the meaning of its numbers."""
        ...

    def relevance(self, documents: Sequence[str]) -> Relevance:
        """The relevance function for these documents. Creating it is cheap; each call does the work."""
        ...


def scored_length(position: int, period: int) -> int:
    """Length of the scored prefix at `position`: (k-1)n in [kn, (k+1)n), at least 0."""
    return max(position // period - 1, 0) * period


class LaggedScorer:
    """Scores documents against question and answer so far by `model`, every `period` tokens.

    R(d, x_<t) = scale · relevance(d, question and x_<m), m = `scored_length(t)`, rounded to `GRID`. A document without
    text gets 0. Owns a thread: close it once.
    """

    gain: ClassVar[float] = 0.0

    def __init__(self, model: RelevanceModel, decode: Decode, period: int, scale: float) -> None:
        self._model = model
        self._decode = decode
        self._period = period
        self._scale = scale
        self._thread = ScoringThread()

    @property
    def identity(self) -> str:
        """`<model>:every <period>:<scale>`."""
        return f"{self._model.identity}:every {self._period}:{self._scale!r}"

    @property
    def cost(self) -> ScoringCost:
        return self._thread.cost

    def begin(self, query: Sequence[int], documents: Sequence[Sequence[int]], similarity: Sequence[float]) -> LaggedRun:
        """Ignores the retrieval similarity."""
        texts = [self._decode(document).strip() for document in documents]
        held = [index for index, text in enumerate(texts) if text]
        relevance = self._model.relevance([texts[index] for index in held])

        def scores(prefix: Sequence[int]) -> NDArray[np.float64]:
            found = np.zeros(len(texts))
            if held:
                text = self._decode([*query, *prefix]).strip()
                found[held] = _checked(relevance(text), len(held)) * self._scale
            rounded = on_grid(found)
            rounded.flags.writeable = False
            return rounded

        return LaggedRun(scores, self._period, self._thread)

    def close(self) -> None:
        """Ends the thread and logs the cost."""
        self._thread.close()
        log.info("scoring: %s", self.cost)


class LaggedRun:
    """For one thread."""

    def __init__(
        self, scores: Callable[[Sequence[int]], NDArray[np.float64]], period: int, thread: ScoringThread
    ) -> None:
        """`scores` computes those of an answer prefix. Scoring of the empty one starts at once."""
        self._scores = scores
        self._period = period
        self._thread = thread
        self._requests: OrderedDict[tuple[int, ...], ScoringRequest] = OrderedDict()
        self._newest: ScoringRequest | None = None
        self._score_ahead(())

    def scores(self, answer: Sequence[int]) -> NDArray[np.float64]:
        """R(d, x_<t) of every document, [docs], read-only. Waits for them if needed.

        Raises `ScoringError` if they can't be computed.
        """
        position = len(answer)
        needed = self._request(tuple(answer[: scored_length(position, self._period)]))
        scores = self._thread.result(needed, first=position == 0)
        self._score_ahead(tuple(answer[: position - position % self._period]))
        return scores

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        """As `ScoringRun.ready`."""
        needed = self._request(tuple(answer[: scored_length(len(answer), self._period)]))
        return self._thread.await_soon(needed, wake, first=not answer)

    def _request(self, prefix: tuple[int, ...]) -> ScoringRequest:
        if (known := self._requests.get(prefix)) is not None:
            self._requests.move_to_end(prefix)
            return known
        # It must not refer to the run, so that an answer's requests end with the answer.
        made = self._requests[prefix] = ScoringRequest(partial(self._scores, prefix))
        if len(self._requests) > _HELD:
            self._requests.popitem(last=False)
        return made

    def _score_ahead(self, prefix: tuple[int, ...]) -> None:
        """The previous request is outdated."""
        request = self._request(prefix)
        if request is not self._newest:
            if self._newest is not None:
                self._thread.drop(self._newest)
            self._newest = request
            self._thread.ahead(request)


def _checked(relevance: NDArray[np.float64], documents: int) -> NDArray[np.float64]:
    if relevance.shape != (documents,) or not np.isfinite(relevance).all():
        raise ValueError(f"the scorer's model gave no {documents} finite numbers for {documents} documents")
    return relevance
