"""Readings of the two sides of a draft-and-verify answer, and what is handed over for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from common.daemon.model_runtime import ModelRuntime
from common.daemon.prompt_rows import PromptRows
from common.daemon.scope import Scope
from common.daemon.side import SideRuntime
from proto.messages import Open


@dataclass(frozen=True, slots=True)
class Passage:
    """Text that the verifier hands to the drafter."""

    title: str
    similarity: float  # retrieval cosine
    text: str
    passing: bool = False  # it is for one answer: its keys and values are not kept


@dataclass(frozen=True, slots=True)
class Found:
    """The verifier's own rows, and the passages for the drafter."""

    rows: PromptRows
    passages: Sequence[Passage]


class Reading(Protocol):
    """A method's reading. Called on the retrieval threads of both sides."""

    @property
    def most(self) -> int:
        """Passages that are handed over at most."""
        ...

    def find(self, side: SideRuntime, request: Open, scope: Scope) -> Found:
        """Look up what the verifier reads, in `scope`.

        Raises `AnswerFailed`, or `RequestError` for what can't be looked up.
        """
        ...

    def rows(self, model: ModelRuntime, request: Open, passages: Sequence[Passage]) -> PromptRows:
        """The drafter's rows."""
        ...


@dataclass(frozen=True, slots=True)
class SharedPassages:
    """Implements `Reading`: both sides read the same passages, those of the verifier's library that fit best."""

    most: int

    def find(self, side: SideRuntime, request: Open, scope: Scope) -> Found:
        hits = side.search(request.question, request.documents, request.earlier, scope)
        passages = [Passage(hit.source, hit.similarity, hit.text) for hit in hits]
        return Found(self.rows(side.target, request, passages), passages)

    def rows(self, model: ModelRuntime, request: Open, passages: Sequence[Passage]) -> PromptRows:
        room = model.room(request)
        documents = [model.document(each.title, each.text, each.similarity, room) for each in passages]
        return model.arrange(request, documents, ())
