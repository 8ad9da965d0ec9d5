"""One side's decoding step by step, without threads: what the engine should come to."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from common.answer.values import SideDraft, Work
from common.engine.draw import Drafter, Sample, draw
from common.engine.jobs import AnswerRows, DocumentScorer, Prompt
from common.engine.model.decoder import Decoder
from common.engine.model.packed import Feed
from common.sampling.race import RaceKernel


class OneSide:
    """A side's rows, and the draft after any path of answer tokens."""

    def __init__(
        self, decoder: Decoder, prompt: Prompt, scorer: DocumentScorer, drafter: Drafter, reserve: int
    ) -> None:
        self.rows = AnswerRows(decoder, prompt, decoder.take_rows(prompt.parts, prompt.query, reserve))
        self._decoder = decoder
        self._drafter = drafter
        self._scoring = scorer.begin(prompt.query, prompt.documents, prompt.similarity)
        self._absent = prompt.absent
        self._gain = None if prompt.empty_row is None else scorer.gain
        self._kernel = RaceKernel(decoder.vocabulary)

    def logits(self, path: Sequence[int]) -> torch.Tensor:
        """Logits [rows, vocab] after `path`."""
        while self.rows.reading:
            for feed in self.rows.feeds(Work(0, tuple(path))):
                self._feed(feed.rows, feed.tokens, 0)
                self.rows.fed(feed)
        (feed,) = self.rows.feeds(Work(0, tuple(path)))
        logits = self._feed(feed.rows, feed.tokens, 1)
        self.rows.fed(feed)
        return logits

    def close(self) -> None:
        """Give the memory back."""
        self._decoder.memory.give_back(self.rows.rows)

    def _feed(self, rows: object, tokens: Sequence[int], logits: int) -> torch.Tensor:
        return self._decoder.forward([Feed(rows, tokens, logits)])  # type: ignore[arg-type]

    @torch.inference_mode()
    def draft(self, path: Sequence[int], logits: torch.Tensor | None = None) -> SideDraft:
        """The draft after `path`."""
        logits = self.logits(path) if logits is None else logits
        sample = Sample(len(path), self._scoring.scores(path), self._drafter, self._absent, gain=self._gain)
        (drawn,) = draw(logits, [sample], self._kernel)
        if isinstance(drawn, Exception):
            raise drawn
        return drawn
