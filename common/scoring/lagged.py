"""Document weights from a slow model, every n tokens and one period late (DRAGON §4.1).

A weight must not depend on when a model is done, or the two sides' answer would depend on it. So positions
[kn, (k+1)n) use the scores of the prefix x_<(k-1)n, the empty one for k <= 1: the model has the time of a period, and
who needs the scores sooner waits for them.
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

_HELD = 8  # prefixes of one answer whose scores are kept: those of some branches that drafts went back and forth on

Decode = Callable[[Sequence[int]], str]  # token ids to text
Relevance = Callable[[str], NDArray[np.float64]]
"""Relevance of each document to a text, [docs]. Called on one thread at a time."""


class RelevanceModel(Protocol):
    """A slow model of relevance. A document's score must not depend on the documents beside it."""

    @property
    def identity(self) -> str:
        """Names the model by its content, and what its numbers mean."""
        ...

    def relevance(self, documents: Sequence[str]) -> Relevance:
        """The relevance function for these documents; making it is cheap, calling it does the work."""
        ...


def scored_length(position: int, period: int) -> int:
    """Length of the prefix whose scores count at `position`: (k-1)n for position in [kn, (k+1)n), at least 0."""
    return max(position // period - 1, 0) * period


class LaggedScorer:
    """Scores documents against question and answer so far by `model`, every `period` tokens.

    R(d, x_<t) = scale · relevance(d, question and x_<m), m = `scored_length(t)`, rounded to `GRID`; 0 for a document
    without text. Close it once: it owns a thread.
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
        """Cost of all answers so far."""
        return self._thread.cost

    def begin(self, query: Sequence[int], documents: Sequence[Sequence[int]], similarity: Sequence[float]) -> LaggedRun:
        """A run for the token ids of a question and of documents. The retrieval similarity isn't used."""
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
        """End the thread, and log what scoring has cost."""
        self._thread.close()
        log.info("scoring: %s", self.cost)


class LaggedRun:
    """The scores of one answer. Used by one thread."""

    def __init__(
        self, scores: Callable[[Sequence[int]], NDArray[np.float64]], period: int, thread: ScoringThread
    ) -> None:
        """`scores` gives those of an answer prefix; the empty one's are begun at once."""
        self._scores = scores
        self._period = period
        self._thread = thread
        self._requests: OrderedDict[tuple[int, ...], ScoringRequest] = OrderedDict()
        self._newest: ScoringRequest | None = None
        self._score_ahead(())

    def scores(self, answer: Sequence[int]) -> NDArray[np.float64]:
        """R(d, x_<t) of every document, [docs], not to be written to; waits where they are not there yet.

        Raises `ScoringError` when they can't be computed.
        """
        position = len(answer)
        needed = self._request(tuple(answer[: scored_length(position, self._period)]))
        scores = self._thread.result(needed, first=position == 0)
        self._score_ahead(tuple(answer[: position - position % self._period]))
        return scores

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        """Whether the scores are there. If not they are computed next, and `wake` is called when that is done."""
        needed = self._request(tuple(answer[: scored_length(len(answer), self._period)]))
        return self._thread.await_soon(needed, wake, first=not answer)

    def _request(self, prefix: tuple[int, ...]) -> ScoringRequest:
        if (known := self._requests.get(prefix)) is not None:
            self._requests.move_to_end(prefix)
            return known
        # It must not hold the run: the requests of an answer that is over go with it.
        made = self._requests[prefix] = ScoringRequest(partial(self._scores, prefix))
        if len(self._requests) > _HELD:
            self._requests.popitem(last=False)
        return made

    def _score_ahead(self, prefix: tuple[int, ...]) -> None:
        """Have `prefix` scored for the positions a period from now; what was asked for before is outdated."""
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
