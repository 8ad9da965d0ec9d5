"""Libraries and questions like the demonstration's, and the embedded model reading them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from common.configuration.settings import EMBEDDED_MODEL, EMBEDDED_TOKENIZER
from common.engine.kv.memory import Rows
from common.engine.model.decoder import Decoder
from common.engine.model.prompt import Conversation, TextFormat
from common.scoring.lexical import LexicalScorer
from proto.messages import Side
from scripts.bench.engine.pair import SIDES, Sources
from scripts.daemons import fill_library
from scripts.demo_model.world.library import Library as WorldLibrary
from scripts.demo_model.world.library import LibraryPlan, LibraryQuestion, World, draw_questions, make_library

DOCUMENTS = 4
SIZE = LibraryPlan(kinds=24, entities_per_kind=2, private_facts=24)
WORLD_SEED = 8100


@dataclass(frozen=True, slots=True)
class Texts:
    """Both libraries and questions about them."""

    documents: dict[Side, tuple[str, ...]]
    questions: tuple[str, ...]

    @classmethod
    def draw(cls, questions: int) -> Texts:
        """`questions` of them, drawn of all types in turn: one private fact, one public fact, both."""
        world = World(WORLD_SEED, test=True)
        library = make_library(world, SIZE)
        each = -(-questions // 3)
        drawn = draw_questions(world, library, each)
        in_turn = [drawn[kind * each + index] for index in range(each) for kind in range(3)]
        return cls.of(library, in_turn[:questions])

    @classmethod
    def of(cls, library: WorldLibrary, questions: Sequence[LibraryQuestion]) -> Texts:
        """Both sides' documents of a world, and these questions about them."""
        documents: dict[Side, tuple[str, ...]] = {
            "device": tuple(document.text.strip() for document in library.private),
            "cloud": tuple(document.text.strip() for document in library.public),
        }
        return cls(documents, tuple(each.question for each in questions))

    @classmethod
    def draw_joint(cls, questions: int) -> Texts:
        """`questions` of them, each of which needs a private and a public fact: the longest answers."""
        drawn = cls.draw(3 * questions)
        return cls(drawn.documents, drawn.questions[2::3])

    def fill_libraries(self, data: Path) -> None:
        """One file per document, then `dragon library add` for both roles below `data`."""
        for side in SIDES:
            fill_library(data, side, {f"{number:03}": f"{text}\n" for number, text in enumerate(self.documents[side])})


class Reading:
    """The embedded model on one side's documents of one question."""

    def __init__(self, decoder: Decoder, rows: Rows, first: torch.Tensor) -> None:
        """`first` are the logits after the query, with which `decoder` opened `rows`."""
        self._decoder = decoder
        self._rows = rows
        self._first = first
        self._fed: list[int] = []

    def logits(self, path: Sequence[int]) -> torch.Tensor:
        """Logits after `path`, `[docs, vocab]`."""
        keep = min(len(self._fed), max(len(path) - 1, 0))
        if self._fed[:keep] != list(path[:keep]):
            keep = next(index for index in range(keep) if self._fed[index] != path[index])
        self._rows.crop(keep)
        self._fed = list(path)
        return self._decoder.step(self._rows, path[keep:]) if path else self._first


class Demonstration:
    """The embedded model and its scorer, with the libraries' texts in memory."""

    def __init__(self, questions: int) -> None:
        self.decoder = Decoder.load(str(EMBEDDED_MODEL), tokenizer=str(EMBEDDED_TOKENIZER), threads=1)
        texts = Texts.draw(questions)
        self.questions = texts.questions
        self._format = TextFormat(self.decoder.tokenizer)
        self._scorer = LexicalScorer.load(EMBEDDED_TOKENIZER)
        self._documents = {
            side: [self._format.document_tokens(text) for text in texts.documents[side]] for side in SIDES
        }

    def sources(self, question: str, reserve: int, documents: int = DOCUMENTS) -> dict[Side, Sources]:
        """Both sides, each with those `documents` of its own that share most words with the question."""
        query = self.decoder.tokenizer.encode(self._format.query(Conversation.of(question)).text)
        return {side: self._source(side, query, reserve, documents) for side in SIDES}

    def _source(self, side: Side, query: Sequence[int], reserve: int, documents: int) -> Sources:
        every = self._documents[side]
        order = np.argsort(-self._scorer.begin(query, every).scores([]), kind="stable")
        found = [every[index] for index in order[:documents]]
        rows, first = self.decoder.open(found, query, reserve + 1)
        return Sources(Reading(self.decoder, rows, first), self._scorer.begin(query, found))
