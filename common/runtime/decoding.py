"""The decoder's part of one answer: its rows in the KV cache and how a step becomes a draft."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from common.model.decoder import Decoder, Rows
from common.sampling.certificate import NO_EVIDENCE
from common.sampling.mixture import Mixture, aggregate_documents
from common.scoring.interface import DocumentScorer, ScoringRun
from common.speculation.values import LocalDraft, View, Work


class Drafting(Protocol):
    """The drafting half of a sampler."""

    def draft(self, position: int, probabilities: torch.Tensor) -> View:
        """The view that is drawn from this side's mixture [vocab] at `position`."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one side reads before it answers."""

    documents: tuple[tuple[int, ...], ...]  # token ids of the rows' document parts; one empty row when there is none
    query: tuple[int, ...]  # token ids of the query part
    similarity: tuple[float, ...]  # retrieval cosine of each document
    absent: bool = False  # no document took part: the evidence is "none"


@dataclass(frozen=True, slots=True)
class Drafted:
    """One finished step."""

    draft: LocalDraft
    mixture: Mixture


class Decoding:
    """Owned by the decoder thread: feeds tokens, crops after roll-backs, draws drafts."""

    def __init__(
        self,
        decoder: Decoder,
        prompt: Prompt,
        scorer: DocumentScorer,
        drafting: Drafting,
        temperature: float,
        reserve: int,
        interrupt: Callable[[], bool] | None = None,
    ) -> None:
        """Prefills. Raises `ContextError` when a row does not fit into the model's context, `Preempted` if told to."""
        # Before the prompt is read: a slow scorer reads it in the meantime.
        self._scoring: ScoringRun = scorer.begin(prompt.query, prompt.documents, prompt.similarity)
        self.rows: Rows
        self.rows, self._first = decoder.open(prompt.documents, prompt.query, reserve, interrupt)
        self._decoder = decoder
        self._drafting = drafting
        self._temperature = temperature
        self._absent = prompt.absent
        self._fed: list[int] = []  # answer tokens whose KV is in the rows

    def feed(self, path: Sequence[int]) -> list[int]:
        """Crop to what the rows share with `path`; returns the tokens still to be fed (none at position 0).

        At least one token is fed whenever the path has one, since its logits are what the step is for.
        """
        keep = min(len(self._fed), max(len(path) - 1, 0))
        if self._fed[:keep] != path[:keep]:
            keep = next(i for i in range(keep) if self._fed[i] != path[i])
        if keep < len(self._fed):
            del self._fed[keep:]
            self.rows.crop(keep)
        return list(path[keep:])

    def logits(self, tokens: Sequence[int], interrupt: Callable[[], bool]) -> torch.Tensor:
        """Logits [docs, vocab] after feeding `tokens`. Raises `Preempted` and leaves the rows as they were."""
        if not tokens:
            return self._first
        logits = self._decoder.step(self.rows, tokens, interrupt)
        self.fed(tokens)
        return logits

    def fed(self, tokens: Sequence[int]) -> None:
        """The rows now hold `tokens`, too."""
        self._fed.extend(tokens)

    def draft(self, work: Work, path: Sequence[int], logits: torch.Tensor) -> Drafted:
        """Aggregate the documents (Eq. 1) and draw this side's token for `work`."""
        scores: NDArray[np.float64] = self._scoring.scores(path)
        mixture = aggregate_documents(logits, scores, self._temperature)
        view = self._drafting.draft(work.position, mixture.probabilities)
        evidence = NO_EVIDENCE if self._absent else mixture.evidence
        return Drafted(LocalDraft(work.position, work.digest, view, evidence, 0), mixture)
