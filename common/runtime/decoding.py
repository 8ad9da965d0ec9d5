"""The decoder's part of one answer: its rows in the KV cache and how a step becomes a draft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from common.aggregation.joint import Joint
from common.model.decoder import Decoder, Rows
from common.model.slab import DocumentStates
from common.runtime.outcome import Mixing
from common.sampling.certificate import NO_EVIDENCE
from common.sampling.mixture import aggregate_documents
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
    fetched: int = 0  # how many of the rows, the last ones, are the other side's and weigh as its mixture would
    states: Mapping[int, DocumentStates] = field(default_factory=dict)  # keys and values that came along, by row


@dataclass(frozen=True, slots=True)
class Drafted:
    """One finished step."""

    draft: LocalDraft
    mixture: Mixing


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
        joint: Joint | None = None,
    ) -> None:
        """Prefills. Raises `ContextError` when a row does not fit into the model's context, `Preempted` if told to.

        `joint` draws where there are fetched rows.
        """
        # Before the prompt is read: a slow scorer reads it in the meantime.
        self._scoring: ScoringRun = scorer.begin(prompt.query, prompt.documents, prompt.similarity)
        self.rows: Rows
        self.rows, self._first = decoder.open(prompt.documents, prompt.query, reserve, interrupt, prompt.states)
        self._decoder = decoder
        self._drafting = drafting
        self._temperature = temperature
        self._absent = prompt.absent
        self._joint = joint
        self._own = len(prompt.documents) - prompt.fetched
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
        own = self._own
        mixture = aggregate_documents(logits[:own], scores[:own], self._temperature)
        evidence = NO_EVIDENCE if self._absent else mixture.evidence
        if self._joint is not None and own < len(logits):
            fetched = aggregate_documents(logits[own:], scores[own:], self._temperature)
            target, joint = self._joint.draft(work.position, mixture, fetched, (evidence, fetched.evidence))
            return Drafted(LocalDraft(work.position, work.digest, target, evidence, 0), joint)
        view = self._drafting.draft(work.position, mixture.probabilities)
        return Drafted(LocalDraft(work.position, work.digest, view, evidence, 0), mixture)
