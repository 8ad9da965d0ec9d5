"""Rows that a side reads for an answer: one for each document, or one with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from common.answer.report import Origin
from common.engine.kv.claims import Part
from common.engine.kv.document_states import shortened
from common.engine.kv.layout import DocumentStates
from common.engine.sequences import Prompt


@dataclass(frozen=True, slots=True)
class Document:
    """A retrieved passage as the model reads it."""

    title: str
    tokens: tuple[int, ...]
    similarity: float  # retrieval cosine
    states: DocumentStates | None = None  # its keys and values, where they came along
    origin: Origin | None = None  # in this side's library
    passing: bool = False  # it is for one answer: its keys and values are not kept


@dataclass(frozen=True, slots=True)
class PromptRows:
    """The rows of one answer on one side, with their documents' titles and their length."""

    prompt: Prompt
    titles: tuple[str, ...]
    tokens: int  # of all rows' documents and the query, once
    fetched_titles: tuple[str, ...] = ()  # of the other side's documents
    origins: tuple[Origin | None, ...] = ()  # of this side's documents
    closest: float = -1.0  # the largest similarity of a document, of either side
    part: Part | None = None  # of KV memory, where it is claimed for them together with that for other rows


def rows(
    query: tuple[int, ...],
    own: Sequence[Document],
    fetched: Sequence[Document],
    begin: tuple[int, ...],
    blank: bool = False,
) -> PromptRows:
    """Output aggregation: a row per document, or one row without a document when there are none.

    `blank`: beside documents, there is one more row without any.
    """
    documents = [*own, *fetched]
    if not documents:
        return _without(query, begin)
    prompt = Prompt(
        tuple(document.tokens for document in documents),
        query,
        tuple(document.similarity for document in documents),
        fetched=len(fetched) if own else 0,  # alone they are all there is
        states={row: document.states for row, document in enumerate(documents) if document.states is not None},
        blank=begin if blank else None,
        passing=frozenset(row for row, document in enumerate(documents) if document.passing),
    )
    tokens = len(query) + sum(map(len, prompt.documents))
    return PromptRows(prompt, _titles(own), tokens, _titles(fetched), _origins(own), max(prompt.similarity))


def one_row(
    query: tuple[int, ...], own: Sequence[Document], fetched: Sequence[Document], begin: tuple[int, ...], room: int
) -> PromptRows:
    """Context aggregation: the documents of both sides one after another, the most similar last.

    At most `room` tokens: the most similar documents are kept, the least similar of these is cut to fit.
    """
    documents = [*own, *fetched]
    kept: list[int] = []
    parts: list[tuple[int, ...]] = []
    left = room - len(begin)
    for index in sorted(range(len(documents)), key=lambda index: -documents[index].similarity):
        if left <= 0:
            break
        tokens = documents[index].tokens
        tokens = tokens[len(begin) :] if tokens[: len(begin)] == begin else tokens
        kept.append(index)
        parts.insert(0, tokens[:left])
        left -= len(parts[0])
    if not kept:
        return _without(query, begin)
    row = begin + tuple(token for part in parts for token in part)
    passing = any(documents[index].passing for index in kept)
    prompt = Prompt((row,), query, (documents[kept[0]].similarity,), passing=frozenset({0} if passing else ()))
    of_own = [documents[index] for index in sorted(kept) if index < len(own)]
    of_fetched = [documents[index] for index in sorted(kept) if index >= len(own)]
    length = len(query) + len(row)
    return PromptRows(
        prompt, _titles(of_own), length, _titles(of_fetched), _origins(of_own), documents[kept[0]].similarity
    )


def cut(document: Document, room: int) -> Document:
    """`document` with its first `room` tokens at most."""
    if len(document.tokens) <= room:
        return document
    states = None if document.states is None else shortened(document.states, room)
    return replace(document, tokens=document.tokens[:room], states=states)


def _without(query: tuple[int, ...], begin: tuple[int, ...]) -> PromptRows:
    return PromptRows(Prompt((begin,), query, (0.0,), absent=True), (), len(query) + len(begin))


def _origins(documents: Sequence[Document]) -> tuple[Origin | None, ...]:
    return tuple(document.origin for document in documents)


def _titles(documents: Sequence[Document]) -> tuple[str, ...]:
    return tuple(document.title for document in documents)
