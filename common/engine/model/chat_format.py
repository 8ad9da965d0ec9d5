"""Prompts by the chat template that a model brings, the document before everything else.

The template is rendered with a mark in the place of every text. Between the marks stands what the template says itself:
there, and nowhere else, a control token's name means that token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from common.engine.model.conversation import Conversation, Turn
from common.engine.model.prompt import Query, document_part, query_tokens
from common.engine.model.tokenizer import Tokenizer
from common.engine.model.tool_templates import GUARD, UNKNOWN_SHAPE, Guarded, told_of_tools, tool_format
from common.engine.model.tool_words import PLAIN_TOOLS, ToolFormat, in_plain_words
from proto.control import Control

_APART = "\n\n"
_MARK = "\ue000{}\ue001"
_MARKS = re.compile("\ue000([0-9]+)\ue001")
_PROBE = Conversation((Turn("user", ""), Turn("assistant", ""), Turn("user", "")))


class ChatFormat:
    """Rows `[system: document][instructions, turns, question]`, as the tokenizer's template puts them.

    Where the template knows no system role, the document and the instructions stand before the first question.
    """

    def __init__(self, tokenizer: Tokenizer, instruction: str = "") -> None:
        """Raises `ValueError` for a tokenizer without a template, and for a template that loses or moves texts."""
        self._tokenizer = tokenizer
        self._instruction = instruction
        self._names = _pattern(tokenizer.control_ids)
        self._guarded = Guarded(list(tokenizer.control_ids))
        self._told_of_tools = told_of_tools(tokenizer)
        # In an answer, other tokens than special ones are text.
        split = partial(self._split, names=_pattern(tokenizer.special_ids))
        self._tools = tool_format(tokenizer, split) if self._told_of_tools else PLAIN_TOOLS
        self._with_system = True
        try:
            parts = self._rendered(_PROBE)
        except ValueError:
            self._with_system = False
            parts = self._rendered(_PROBE)
        before = self._filled(parts[:1], [])
        self._begin = tuple(query_tokens(tokenizer, before.text, before.controls))
        self._end = tokenizer.encode(_APART)

    @property
    def begin(self) -> tuple[int, ...]:
        """The template's text before the document."""
        return self._begin

    @property
    def end(self) -> Sequence[int]:
        return self._end

    def document_tokens(self, text: str, budget: int | None = None) -> list[int]:
        """As `PromptFormat.document_tokens`."""
        return document_part(self._begin, self._tokenizer.encode(text), self._end, budget)

    def query(self, conversation: Conversation) -> Query:
        """Everything behind the document."""
        if not self._told_of_tools:
            conversation = in_plain_words(conversation)
        before, *literals = self._rendered(conversation)
        if conversation.calls_tools:
            literals[0] = self._moved(before) + literals[0]
        query = self._filled(literals, self._texts(conversation))
        return replace(query, text=query.text + conversation.begun)

    @property
    def tools(self) -> ToolFormat:
        """As the template puts them, or in plain words where it knows none."""
        if self._tools is None:
            raise ValueError(UNKNOWN_SHAPE)
        return self._tools

    def _moved(self, before: str) -> str:
        """The text on tools that the template puts in front of the document; it moves behind it, since all rows are to
        have the same in front.
        """
        usual = self._rendered(_PROBE)[0]
        pairs = enumerate(zip(before, usual, strict=False))
        same = next((at for at, (one, other) in pairs if one != other), min(len(before), len(usual)))
        for name in [] if self._names is None else chain(*map(self._names.finditer, (before, usual))):
            if name.start() < same < name.end():  # different tokens whose names begin alike
                same = name.start()
        return before[same:].removesuffix(usual[same:])

    def _filled(self, literals: Sequence[str], texts: Sequence[str]) -> Query:
        """The template's own words with a text between any two stretches of them."""
        text, controls = "", list[Control]()
        for literal, own in zip(literals, [*texts, ""], strict=True):
            for part in self._split(literal, self._names):
                if isinstance(part, int):
                    controls.append(Control(len(text), part))
                else:
                    text += part
            text += own
        return Query(text, tuple(controls))

    def _texts(self, conversation: Conversation) -> list[str]:
        """The texts in the order of their marks, but for the document's."""
        instructions = "\n".join(each for each in (self._instruction, *conversation.instructions) if each)
        return [instructions, *(turn.text for turn in conversation.turns if _is_marked(turn))]

    def _rendered(self, conversation: Conversation) -> list[str]:
        """The template's texts before, between and behind the marks of the document and of all texts, in order."""
        marks = [_MARK.format(number) for number in range(2 + sum(map(_is_marked, conversation.turns)))]
        head = marks[0] + marks[1]  # what keeps them apart ends the document part
        left = iter(marks[2:])
        messages = [
            {"role": turn.role, "content": next(left)} if _is_marked(turn) else self._guarded.message(turn)
            for turn in conversation.turns
        ]
        if self._with_system:
            messages = [{"role": "system", "content": head}, *messages]
        elif messages[0]["role"] == "user":
            messages[0]["content"] = f"{head}{_APART}{messages[0]['content']}"
        else:
            messages = [{"role": "user", "content": head}, *messages]
        pieces = _MARKS.split(self._tokenizer.render_chat(messages, self._guarded.tools(conversation.tools)))
        if [int(number) for number in pieces[1::2]] != list(range(len(marks))):
            raise ValueError("the model's chat template does not keep every text once and in order")
        return pieces[::2]

    def _split(self, literal: str, names: re.Pattern[str] | None) -> list[str | int]:
        """A stretch of the template's own words, with the tokens that `names` finds as their ids.

        The space around them that they take away is gone, but for that of the texts which the template puts there.
        """
        parts = [literal] if names is None else names.split(literal)
        named = [
            self._tokenizer.control_ids[part] if index % 2 else part.replace(GUARD, "")
            for index, part in enumerate(parts)
        ]
        return [part for part in self._stripped(named) if part != ""]

    def _stripped(self, parts: Sequence[str | int]) -> Iterator[str | int]:
        """Words and control tokens in turn."""
        around: list[str | int | None] = [None, *parts, None]
        for before, part, behind in zip(around, parts, around[2:], strict=False):
            if isinstance(part, str):
                part = part.lstrip() if before in self._tokenizer.strip_behind else part
                part = part.rstrip() if behind in self._tokenizer.strip_before else part
            yield part


def _is_marked(turn: Turn) -> bool:
    """Whether a mark stands for the turn's text. Templates may put what tools say, and what is said beside calls, in
    their own ways, or leave it out.
    """
    return turn.role != "tool" and not turn.calls


def _pattern(ids: dict[str, int]) -> re.Pattern[str] | None:
    """Matches the longest name that fits, as a group."""
    names = sorted(ids, key=len, reverse=True)
    return re.compile(f"(?<!{GUARD})(" + "|".join(map(re.escape, names)) + ")") if names else None
