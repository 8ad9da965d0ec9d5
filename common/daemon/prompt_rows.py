"""Rows that a side reads for an answer: one for each document, or one with all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from common.answer.report import Origin, Record
from common.engine.kv.claims import Part
from common.engine.kv.document_states import shortened
from common.engine.kv.layout import DocumentStates
from common.engine.sequences import Blocks, Prompt

CUT: Final = (
    "The question, all before it and the answer leave too little room in the model's context: {} of {} documents were"
    " read in part or not at all; begin a new conversation, or lower max_tokens or documents."
)


@dataclass(frozen=True, slots=True)
class Document:
    """A retrieved passage as the model reads it."""

    title: str
    tokens: tuple[int, ...]
    similarity: float  # retrieval cosine
    text: str  # of the passage, without the document format
    states: DocumentStates | None = None  # its keys and values, where they came along
    origin: Origin | None = None  # in this side's library
    passing: bool = False  # it is for one answer: its keys and values are not kept
    cut: bool = False  # its end had no room
    named: bool = False  # it has a word of the question that names one thing, e.g. a number of an order

    @property
    def closeness(self) -> float:
        """The cosine with the question, or 1 if the question names something in it."""
        return 1.0 if self.named else self.similarity


@dataclass(frozen=True, slots=True)
class PromptRows:
    """The rows of one answer on one side, with their documents' titles and their length."""

    prompt: Prompt
    titles: tuple[str, ...]
    tokens: int  # of all rows' documents and the query, once
    fetched_titles: tuple[str, ...] = ()  # of the other side's documents
    origins: tuple[Origin | None, ...] = ()  # of this side's documents
    closest: float = -1.0  # the largest closeness of a document, of either side
    apart: Prompt | None = None  # the documents of a row that holds several, each in a row of its own, and none
    part: Part | None = None  # of KV memory, where it is claimed for them together with that for other rows
    found: int = 0  # documents
    cut: int = 0  # those of them that had no room, or not all
    texts: tuple[str, ...] = ()  # of the documents, of this side's and then of the other's

    def note(self, record: Record) -> None:
        """Note for the report what the device reads."""
        record.device_titles, record.origins = self.titles, self.origins
        record.own_closest = self.closest
        record.device_prompt_tokens = self.tokens
        record.texts = self.texts
        if self.fetched_titles:
            record.cloud_titles = self.fetched_titles
        if self.cut:
            record.notes.append(CUT.format(self.cut, self.found))


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
        states={document.tokens: document.states for document in documents if document.states is not None},
        blank=begin if blank else None,
        passing=frozenset(document.tokens for document in documents if document.passing),
    )
    tokens = len(query) + sum(map(len, prompt.documents))
    closest, shorter = max(each.closeness for each in documents), sum(document.cut for document in documents)
    found = PromptRows(prompt, _titles(own), tokens, _titles(fetched), _origins(own), closest)
    texts = tuple(document.text for document in documents)
    return replace(found, found=len(documents), cut=shorter, texts=texts)


def one_row(
    query: tuple[int, ...],
    own: Sequence[Document],
    fetched: Sequence[Document],
    begin: tuple[int, ...],
    room: int,
    blank: bool = False,
    blocks: bool = False,
) -> PromptRows:
    """Context aggregation: the documents of both sides one after another, the most similar last.

    At most `room` tokens: the most similar documents are kept, the least similar of these is cut to fit. `blank` is as
    for `rows`; with `blocks` each document is read by itself.
    """
    found = len(own) + len(fetched)
    kept = _fitting([*own, *fetched], begin, room)
    if not kept:
        return replace(_without(query, begin), found=found, cut=found)
    most_last = [kept[index] for index in reversed(kept)]
    read = Blocks(tuple(document.tokens for document in most_last), len(begin))
    order = sorted(kept)
    apart = rows(
        query,
        [kept[index] for index in order if index < len(own)],
        [kept[index] for index in order if index >= len(own)],
        begin,
        blank=True,
    )
    row, passing = read.tokens, apart.prompt.passing
    prompt = Prompt(
        (row,),
        query,
        (most_last[-1].similarity,),
        states=apart.prompt.states if blocks else {},
        blank=begin if blank else None,
        passing=passing | {row} if passing else passing,
        blocks={0: read} if blocks else {},
    )
    tokens, without = len(query) + len(row), apart.cut + found - len(kept)
    return replace(apart, prompt=prompt, tokens=tokens, apart=apart.prompt, found=found, cut=without)


def _fitting(documents: Sequence[Document], begin: tuple[int, ...], room: int) -> dict[int, Document]:
    """Those of `documents` that have room in one row, each as long as it has, by their places; the most similar first.
    All begin with `begin`, which the row has once.
    """
    kept: dict[int, Document] = {}
    left = room - len(begin)
    for index in sorted(range(len(documents)), key=lambda index: -documents[index].similarity):
        document = documents[index]
        if document.tokens[: len(begin)] != begin:
            document = replace(document, tokens=begin + document.tokens, states=None)
        if left <= 0:
            break
        kept[index] = cut(document, len(begin) + left)
        left -= len(kept[index].tokens) - len(begin)
    return kept


def cut(document: Document, room: int) -> Document:
    """`document` with its first `room` tokens at most."""
    if len(document.tokens) <= room:
        return document
    states = None if document.states is None else shortened(document.states, room)
    return replace(document, tokens=document.tokens[:room], states=states, cut=True)


def _without(query: tuple[int, ...], begin: tuple[int, ...]) -> PromptRows:
    return PromptRows(Prompt((begin,), query, (0.0,), absent=True), (), len(query) + len(begin))


def _origins(documents: Sequence[Document]) -> tuple[Origin | None, ...]:
    return tuple(document.origin for document in documents)


def _titles(documents: Sequence[Document]) -> tuple[str, ...]:
    return tuple(document.title for document in documents)
