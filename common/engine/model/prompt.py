"""Makes a row's tokens from a document and a conversation: `[document][query][answer so far]`.

The two parts are encoded separately and concatenated, so that a document's tokens, and with them its keys and values,
are the same under every question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from common.engine.model.conversation import Conversation
from common.engine.model.tokenizer import Tokenizer
from common.engine.model.tool_words import PLAIN_TOOLS, ToolFormat, in_plain_words
from proto.control import Control

DOCUMENT = " {document}"
QUESTION = "\nQuestion: {question}\nAnswer:"


@dataclass(frozen=True, slots=True)
class Query:
    """The query part of a row: text, and the control tokens that stand in it, in the order of their places."""

    text: str
    controls: tuple[Control, ...] = ()


class PromptFormat(Protocol):
    """Puts documents and conversations into the words that a model was trained on."""

    @property
    def begin(self) -> tuple[int, ...]:
        """The tokens that every row begins with, also one without a document."""
        ...

    @property
    def end(self) -> Sequence[int]:
        """Token ids behind a document's text, in every document part."""
        ...

    def document_tokens(self, text: str, budget: int | None = None) -> list[int]:
        """Token ids of the document part, `begin` included, cut to `budget` tokens at the document's end.

        Raises `ValueError` for a budget that holds no document.
        """
        ...

    def query(self, conversation: Conversation) -> Query:
        """The query part. Raises `ValueError` for a conversation that can't be put."""
        ...

    @property
    def tools(self) -> ToolFormat:
        """The form in which the model is told of tools and calls them. Raises `ValueError`, a sentence, if unknown."""
        ...


class TextFormat:
    """A template for each part, for models that were not trained on conversations."""

    def __init__(self, tokenizer: Tokenizer, document: str = DOCUMENT, query: str = QUESTION) -> None:
        """Raises `ValueError` for a template without its place."""
        for template, place in ((document, "{document}"), (query, "{question}")):
            if template.count(place) != 1:
                raise ValueError(f"the template {template!r} must contain {place} exactly once")
        self._tokenizer = tokenizer
        self._query = query
        self._begin = () if tokenizer.begin is None else (tokenizer.begin,)
        self._before, after = document.split("{document}")
        self._end = tuple(tokenizer.encode(after)) if after else ()

    @property
    def begin(self) -> tuple[int, ...]:
        """The tokenizer's begin token, if it has one."""
        return self._begin

    @property
    def end(self) -> Sequence[int]:
        return self._end

    def document_tokens(self, text: str, budget: int | None = None) -> list[int]:
        """As `PromptFormat.document_tokens`; what the template puts after the document is kept."""
        return document_part(self._begin, self._tokenizer.encode(self._before + text), self._end, budget)

    def query(self, conversation: Conversation) -> Query:
        """As `text_query`; of tools it is told in plain words."""
        return text_query(in_plain_words(conversation), self._query)

    @property
    def tools(self) -> ToolFormat:
        """Plain words."""
        return PLAIN_TOOLS


def document_part(begin: Sequence[int], document: Sequence[int], end: Sequence[int], budget: int | None) -> list[int]:
    """A document between its beginning and its end, cut to `budget` tokens in all.

    Raises `ValueError` for a budget that holds no document.
    """
    if budget is None:
        return [*begin, *document, *end]
    room = budget - len(begin) - len(end)
    if room < 0:
        raise ValueError(f"a budget of {budget} tokens holds no document: what stands around it takes {budget - room}")
    return [*begin, *document[:room], *end]


def text_query(conversation: Conversation, template: str = QUESTION) -> Query:
    """Instructions first, then every question in the template, each but the last followed by its answer."""
    text = "".join(f"\n{each}" for each in conversation.instructions)
    before = None
    for turn in conversation.turns:
        if turn.role == "user":
            text += template.replace("{question}", turn.text)
        else:
            text += f" {turn.text}" if before == "user" else f"\n{turn.text}"
        before = turn.role
    return Query(f"{text} {conversation.begun}" if conversation.begun else text)


def query_tokens(tokenizer: Tokenizer, text: str, controls: Sequence[Control]) -> list[int]:
    """Token ids of a query part. What the text spells out is never a control token, only `controls` are.

    Raises `ValueError` for controls that are not in order or beyond the text.
    """
    tokens: list[int] = []
    done = 0
    for control in controls:
        if not done <= control.place <= len(text):
            raise ValueError("control tokens must be in the order of their places, and within the text")
        if control.place > done:
            tokens += tokenizer.encode(text[done : control.place])
        tokens.append(control.token)
        done = control.place
    return tokens + (tokenizer.encode(text[done:]) if done < len(text) or not controls else [])
