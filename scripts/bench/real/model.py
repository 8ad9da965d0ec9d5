"""The default language model in this process, reading both sides' texts as the daemons do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from common.engine.model.configured import load_decoder, load_format
from common.engine.model.conversation import Conversation
from common.engine.model.prompt import query_tokens
from common.library.embedder import SentenceTransformerEmbedder, unit_vectors
from common.scoring.choice import load_scorer
from device.settings import DeviceSettings
from proto.fields import Side
from scripts.bench.engine.pair import SIDES, Sources
from scripts.bench.workload import Reading, Texts

Vector: TypeAlias = NDArray[np.float32]


class RealTexts:
    """Model, document weights and retrieval of `settings`, with the libraries' texts in memory."""

    def __init__(self, texts: Texts, settings: DeviceSettings) -> None:
        self.decoder = load_decoder(settings)
        self.questions = texts.questions
        self._embedder = SentenceTransformerEmbedder(settings.embedder)
        self._scorer = load_scorer(settings, self.decoder.tokenizer, self._embedder)
        self._format = load_format(settings, self.decoder.tokenizer)
        self._texts = texts.documents
        self._vectors = {side: unit_vectors(self._embedder, list(texts.documents[side])) for side in SIDES}

    def sources(self, question: str, reserve: int, documents: int) -> dict[Side, Sources]:
        """Both sides, each with those `documents` of its own that are most similar to the question."""
        put = self._format.query(Conversation.of(question))
        query = query_tokens(self.decoder.tokenizer, put.text, put.controls)
        wanted: Vector = unit_vectors(self._embedder, [question], queries=True)[0]
        return {side: self._source(side, wanted, query, reserve, documents) for side in SIDES}

    def _source(self, side: Side, wanted: Vector, query: Sequence[int], reserve: int, documents: int) -> Sources:
        similarity = self._vectors[side] @ wanted
        nearest = np.argsort(-similarity, kind="stable")[:documents]
        found = [self._format.document_tokens(self._texts[side][index]) for index in nearest]
        blank = [list(self._format.begin)] if self._scorer.gain else []
        rows, first = self.decoder.open([*found, *blank], query, reserve + 1)
        scoring = self._scorer.begin(query, found, [float(similarity[index]) for index in nearest])
        return Sources(Reading(self.decoder, rows, first), scoring, self._scorer.gain)
