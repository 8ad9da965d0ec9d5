"""Makes a row's tokens from a document and a conversation: `[earlier][document][query][answer so far]`.

The parts are encoded separately. So a document's tokens, keys and values are the same for every question, and those of
the earlier turns for every document. A first question without instructions has nothing before the document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, groupby
from typing import Any, Final, Literal, Protocol

from common.engine.model.tokenizer import Tokenizer
from common.processors.calls import CallShape
from proto.messages import Control

# --- conversation
# A conversation for the model: the turns so far, and callable tools.


@dataclass(frozen=True, slots=True)
class Call:
    number: int  # index among the conversation's calls
    name: str
    arguments: str  # a JSON object


@dataclass(frozen=True, slots=True)
class Turn:
    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[Call, ...] = ()  # by the assistant; in a tool's turn, the call that it answers


@dataclass(frozen=True, slots=True)
class Conversation:
    """A question as the last user turn, with earlier turns and instructions.

    Tool calls and results may follow it. The model continues `begun`. `tools` are JSON objects as in OpenAI's API,
    `{"name": ..., "description": ..., "parameters": ...}`.
    """

    turns: tuple[Turn, ...]
    instructions: tuple[str, ...] = ()
    begun: str = ""
    tools: tuple[str, ...] = ()

    @classmethod
    def of(cls, question: str) -> Conversation:
        return cls((Turn("user", question),))

    @property
    def calls_tools(self) -> bool:
        return bool(self.tools) or any(turn.calls for turn in self.turns)

    @property
    def asked(self) -> int:
        """The place of the question among the turns."""
        return max(place for place, turn in enumerate(self.turns) if turn.role == "user")

    @property
    def begins(self) -> bool:
        """Whether nothing stands before the question."""
        return not (self.asked or self.instructions or self.calls_tools)


# --- tool_words
# Tools in plain words, for chat templates without tools.


@dataclass(frozen=True, slots=True)
class ToolFormat:
    shape: CallShape
    trained: bool  # by its chat template; else described in plain words


_OPEN: Final = "<tool_call>\n"
_CLOSE: Final = "\n</tool_call>"
# At most one call: a model without training on calls repeats its first one.
PLAIN_TOOLS: Final = ToolFormat(CallShape(opening=(_OPEN,), arguments="arguments", closing=(_CLOSE,)), trained=False)
_RETURNED: Final = "<tool_response>\n{text}\n</tool_response>"


def in_plain_words(conversation: Conversation) -> Conversation:
    """The conversation without tools: an instruction, calls as text, results as user turns."""
    if not conversation.calls_tools:
        return conversation
    instructions = conversation.instructions
    if conversation.tools:
        instructions += (_told(conversation.tools),)
    said = groupby(map(_said, conversation.turns), key=lambda turn: turn.role)
    turns = tuple(Turn(role, "\n".join(turn.text for turn in turns)) for role, turns in said)
    return replace(conversation, turns=turns, instructions=instructions, tools=())


def call_object(name: str, arguments: str, member: str = "arguments") -> str:
    return f'{{"name": {json.dumps(name)}, "{member}": {json.dumps(json.loads(arguments), ensure_ascii=False)}}}'


def _told(tools: Sequence[str]) -> str:
    listed = "\n".join(tools)
    call = f'{_OPEN}{{"name": ..., "arguments": {{...}}}}{_CLOSE}'
    return (
        f"You can call these functions:\n{listed}\n"
        f"To call one, answer with its name and its arguments, and with nothing else:\n{call}\n"
        "What it returns comes in the next message."
    )


def _said(turn: Turn) -> Turn:
    if turn.role == "tool":
        return Turn("user", _RETURNED.format(text=turn.text))
    return Turn(turn.role, "\n".join(filter(None, (turn.text, *_written(turn.calls)))))


def _written(calls: Sequence[Call]) -> list[str]:
    return [f"{_OPEN}{call_object(call.name, call.arguments)}{_CLOSE}" for call in calls]


# --- prompt

DOCUMENT = " {document}"
QUESTION = "\nQuestion: {question}\nAnswer:"


@dataclass(frozen=True, slots=True)
class Query:
    """A row's text around the document, and its control tokens in order of offset."""

    text: str
    controls: tuple[Control, ...] = ()
    documents_at: int = 0  # characters before the document


class PromptFormat(Protocol):
    """Formats documents and conversations as in a model's training."""

    @property
    def begin(self) -> tuple[int, ...]:
        """The first tokens of every row, also without a document."""
        ...

    @property
    def end(self) -> Sequence[int]:
        """Token ids after a document's text, in every document part."""
        ...

    def document_tokens(self, text: str, budget: int | None = None) -> list[int]:
        """Token ids of the document part with `begin`, its end cut to `budget`.

        Raises `ValueError` for a budget too small for any document.
        """
        ...

    def query(self, conversation: Conversation) -> Query:
        """The text around the document. Raises `ValueError` for a conversation that the format can't express."""
        ...

    @property
    def tools(self) -> ToolFormat:
        """The form of tools and their calls. Raises `ValueError`, a sentence, if unknown."""
        ...


class TextFormat:
    """One template per part, for models without training on conversations."""

    def __init__(self, tokenizer: Tokenizer, document: str = DOCUMENT, query: str = QUESTION) -> None:
        """Raises `ValueError` unless each template has its placeholder exactly once."""
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
        return self._begin

    @property
    def end(self) -> Sequence[int]:
        return self._end

    def document_tokens(self, text: str, budget: int | None = None) -> list[int]:
        """Keeps the template's text after the document."""
        return document_part(self._begin, self._tokenizer.encode(self._before + text), self._end, budget)

    def query(self, conversation: Conversation) -> Query:
        return text_query(in_plain_words(conversation), self._query)

    @property
    def tools(self) -> ToolFormat:
        return PLAIN_TOOLS


def document_part(begin: Sequence[int], document: Sequence[int], end: Sequence[int], budget: int | None) -> list[int]:
    """A document between `begin` and `end`, cut to `budget` tokens in all.

    Raises `ValueError` for a budget too small for any document.
    """
    if budget is None:
        return [*begin, *document, *end]
    room = budget - len(begin) - len(end)
    if room < 0:
        raise ValueError(
            f"a budget of {budget} tokens has no room for a document: the text around it takes {budget - room}"
        )
    return [*begin, *document[:room], *end]


def text_query(conversation: Conversation, template: str = QUESTION) -> Query:
    """Instructions, then every question in the template, earlier ones with answers."""
    text = "".join(f"\n{each}" for each in conversation.instructions)
    before, earlier, asked = None, 0, conversation.asked
    for place, turn in enumerate(conversation.turns):
        if place == asked:
            earlier = len(text)
        if turn.role == "user":
            text += template.replace("{question}", turn.text)
        else:
            text += f" {turn.text}" if before == "user" else f"\n{turn.text}"
        before = turn.role
    return Query(f"{text} {conversation.begun}" if conversation.begun else text, documents_at=earlier)


def row_tokens(tokenizer: Tokenizer, query: Query) -> tuple[list[int], list[int]]:
    """Token ids before and after the document. Raises as `query_tokens` does."""
    place = query.documents_at
    before = [control for control in query.controls if place and control.place <= place]
    after = [replace(each, place=each.place - place) for each in query.controls[len(before) :]]
    earlier = query_tokens(tokenizer, query.text[:place], before) if place else []
    return earlier, query_tokens(tokenizer, query.text[place:], after)


def query_tokens(tokenizer: Tokenizer, text: str, controls: Sequence[Control]) -> list[int]:
    """Token ids of a query part. Only `controls` become control tokens, never the text.

    Raises `ValueError` for controls out of order or beyond the text.
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


# --- tool_templates
# A chat template's support for tools, the form of its calls, and texts that spell no token.

UNKNOWN_SHAPE: Final = "the model's chat template puts calls of tools in a way that this daemon does not know"
# Precedes a character with which a control token's name may begin or end. Never reaches a row's tokens.
GUARD: Final = "\ue002"
_ID_DIGITS: Final = 9  # some templates require this many
_NAME, _MEMBER = "probed_function", "probed_member"
_TOOL: Final = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "Probes.",
        "parameters": {"type": "object", "properties": {_MEMBER: {"type": "integer"}}, "required": [_MEMBER]},
    },
}
_QUESTION: Final = {"role": "user", "content": "a"}
_ASKED: Final = ([{"role": "system", "content": "b"}, _QUESTION], [_QUESTION])  # templates may require either


@dataclass(frozen=True, slots=True)
class _CallWording:
    opening: str
    arguments: str
    closing: str
    between: str | None


_KNOWN: Final = (
    _CallWording(
        "<tool_call>\n", "arguments", "\n</tool_call>", "\n</tool_call>\n<tool_call>\n"
    ),  # Hermes, Qwen, SmolLM3
    _CallWording("<tool_call>", "arguments", "</tool_call>", "</tool_call><tool_call>"),
    _CallWording("[TOOL_CALLS] [", "arguments", "]", ", "),  # Mistral
    _CallWording("[TOOL_CALLS][", "arguments", "]", ", "),
    _CallWording("", "parameters", "", None),  # Llama 3
)

Split = Callable[[str], Sequence[str | int]]


def told_of_tools(tokenizer: Tokenizer) -> bool:
    """Whether the chat template tells the model about tools."""
    return any(_NAME in _rendered(tokenizer, asked) for asked in _ASKED)


def tool_format(tokenizer: Tokenizer, split: Split) -> ToolFormat | None:
    """Finds the form of calls by rendering one; None if unknown.

    `split` finds special tokens.
    """
    call = {"id": call_id(0), "type": "function", "function": {"name": _NAME, "arguments": {_MEMBER: 1}}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    pairs = [(_rendered(tokenizer, asked), _rendered(tokenizer, [*asked, said])) for asked in _ASKED]
    for known in _KNOWN:
        if any(_is_put(known, before, called) for before, called in pairs):
            between = None if known.between is None else tuple(split(known.between))
            shape = CallShape(
                opening=tuple(split(known.opening)),
                arguments=known.arguments,
                closing=tuple(split(known.closing)),
                between=between,
            )
            return ToolFormat(shape, trained=True)
    return None


def _is_put(known: _CallWording, before: str, called: str) -> bool:
    head = f'{known.opening}{{"name": "{_NAME}", "{known.arguments}": {{"{_MEMBER}": 1}}'
    at = called.find(head) if known.opening else len(before) if called.startswith(before + head) else -1
    return at >= 0 and f"}}{known.closing}" in called[at + len(head) :]


def _rendered(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> str:
    try:
        return tokenizer.render_chat(messages, [_TOOL])
    except ValueError:
        return ""


def call_id(number: int) -> str:
    """The id of a call in prompts. Clients' own ids are of any kind and length."""
    return f"{number:0{_ID_DIGITS}}"


class Guarded:
    """Guards texts and objects against spelling a control token in a template."""

    def __init__(self, names: Sequence[str]) -> None:
        ends = {character for name in names for character in (name[0], name[-1])} | {"\ue000", "\ue001"}
        self._ends = re.compile("[" + "".join(map(re.escape, sorted(ends))) + "]")

    def text(self, text: str) -> str:
        return self._ends.sub(lambda found: GUARD + found[0], text.replace(GUARD, ""))

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self.value(item) for name, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list) else value

    def tools(self, tools: Sequence[str]) -> list[dict[str, Any]] | None:
        return [{"type": "function", "function": self.value(json.loads(tool))} for tool in tools] or None

    def message(self, turn: Turn) -> dict[str, Any]:
        """A tool's result, or a turn with calls, as templates take it."""
        text = self.text(turn.text)
        if turn.role == "tool":
            (call,) = turn.calls
            return {"role": "tool", "content": text, "name": call.name, "tool_call_id": call_id(call.number)}
        calls = [
            {
                "id": call_id(call.number),
                "type": "function",
                "function": {"name": call.name, "arguments": self.value(json.loads(call.arguments))},
            }
            for call in turn.calls
        ]
        return {"role": turn.role, "content": text, "tool_calls": calls}


# --- chat_format
# Prompts by the model's chat template. The document stands before a first question and its instruction, in the
# system's part. Later it stands in the question's turn, after all that the next turns keep.
#
# The template is rendered with a mark for every text. Only the template's own words between the marks may name control
# tokens.

_APART = "\n\n"
_MARK = "\ue000{}\ue001"
_MARKS = re.compile("\ue000([0-9]+)\ue001")
_PROBE = Conversation((Turn("user", ""),))
_FURTHER = replace(_PROBE, turns=(Turn("user", ""), Turn("assistant", ""), Turn("user", "")), instructions=("",))


class ChatFormat:
    """Rows by the tokenizer's template: `[system: document, instruction][question]`, or in a conversation
    `[system: instructions][turns][document, instruction, question]`.

    Without a system role, the system's text precedes the first question.
    """

    def __init__(self, tokenizer: Tokenizer, instruction: str = "") -> None:
        """Raises `ValueError` for a missing template, or one with lost or moved texts."""
        self._tokenizer = tokenizer
        self._instruction = instruction
        self._names = _pattern(tokenizer.control_ids)
        self._guarded = Guarded(list(tokenizer.control_ids))
        self._told_of_tools = told_of_tools(tokenizer)
        # In an answer, only special tokens are tokens; anything else is text.
        split = partial(self._split, names=_pattern(tokenizer.special_ids))
        self._tools = tool_format(tokenizer, split) if self._told_of_tools else PLAIN_TOOLS
        self._with_system = True
        try:
            parts, _ = self._rendered(_PROBE), self._rendered(_FURTHER)
        except ValueError:
            self._with_system = False
            parts, _ = self._rendered(_PROBE), self._rendered(_FURTHER)
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
        return document_part(self._begin, self._tokenizer.encode(text), self._end, budget)

    def query(self, conversation: Conversation) -> Query:
        if not self._told_of_tools:
            conversation = in_plain_words(conversation)
        literals, texts = self._rendered(conversation), self._texts(conversation)
        place = self._place(conversation)  # of the document's mark
        after = self._filled(literals[place + 1 :], texts[place:])
        query = replace(after, text=after.text + conversation.begun)
        if conversation.begins:
            return query
        before = self._filled(literals[: place + 1], texts[:place])
        earlier = len(before.text)
        controls = tuple(replace(each, place=each.place + earlier) for each in query.controls)
        return Query(before.text + query.text, before.controls + controls, earlier)

    @property
    def tools(self) -> ToolFormat:
        """Raises `ValueError` if the template's form is unknown."""
        if self._tools is None:
            raise ValueError(UNKNOWN_SHAPE)
        return self._tools

    def _filled(self, literals: Sequence[str], texts: Sequence[str]) -> Query:
        text, controls = "", list[Control]()
        for literal, own in zip(literals, [*texts, ""], strict=True):
            for part in self._split(literal, self._names):
                if isinstance(part, int):
                    controls.append(Control(len(text), part))
                else:
                    text += part
            text += own
        return Query(text, tuple(controls))

    def _place(self, conversation: Conversation) -> int:
        """The number of the document's mark."""
        if conversation.begins:
            return 0
        return _has_system(conversation) + sum(map(_is_marked, conversation.turns[: conversation.asked]))

    def _texts(self, conversation: Conversation) -> list[str]:
        """In the order of their marks, except the document's."""
        turns = [turn.text for turn in conversation.turns if _is_marked(turn)]
        if conversation.begins:
            return [self._instruction, *turns]
        told = ["\n".join(conversation.instructions)] if _has_system(conversation) else []
        place = self._place(conversation) - len(told)
        turns[place] = f"{self._instruction}{_APART}{turns[place]}" if self._instruction else turns[place]
        return [*told, *turns]

    def _rendered(self, conversation: Conversation) -> list[str]:
        """The template's words before, between and after all marks."""
        marks = map(_MARK.format, count())
        begins, asked, head = conversation.begins, conversation.asked, ""
        if begins or _has_system(conversation):
            # A separator between a first document and the instruction would be part of the document.
            head = next(marks) + next(marks) if begins else next(marks)
        messages = []
        for place, turn in enumerate(conversation.turns):
            if _is_marked(turn):
                content = next(marks) + next(marks) if place == asked and not begins else next(marks)
                messages.append({"role": turn.role, "content": content})
            else:
                messages.append(self._guarded.message(turn))
        if head and self._with_system:
            messages = [{"role": "system", "content": head}, *messages]
        elif head and messages[0]["role"] == "user":
            messages[0]["content"] = f"{head}{_APART}{messages[0]['content']}"
        elif head:
            messages = [{"role": "user", "content": head}, *messages]
        pieces = _MARKS.split(self._tokenizer.render_chat(messages, self._guarded.tools(conversation.tools)))
        if [int(number) for number in pieces[1::2]] != list(range(len(self._texts(conversation)) + 1)):
            raise ValueError("the model's chat template does not keep every text once and in order")
        return pieces[::2]

    def _split(self, literal: str, names: re.Pattern[str] | None) -> list[str | int]:
        """Splits the template's words at tokens from `names`. Drops spaces that these strip."""
        parts = [literal] if names is None else names.split(literal)
        named = [
            self._tokenizer.control_ids[part] if index % 2 else part.replace(GUARD, "")
            for index, part in enumerate(parts)
        ]
        return [part for part in self._stripped(named) if part != ""]

    def _stripped(self, parts: Sequence[str | int]) -> Iterator[str | int]:
        around: list[str | int | None] = [None, *parts, None]
        for before, part, behind in zip(around, parts, around[2:], strict=False):
            if isinstance(part, str):
                part = part.lstrip() if before in self._tokenizer.strip_behind else part
                part = part.rstrip() if behind in self._tokenizer.strip_before else part
            yield part


def _has_system(conversation: Conversation) -> bool:
    """Some templates tell of tools in the system's turn, and need one."""
    return bool(conversation.instructions) or conversation.calls_tools


def _is_marked(turn: Turn) -> bool:
    """Templates may reformat or omit tool results, and text beside calls."""
    return turn.role != "tool" and not turn.calls


def _pattern(ids: dict[str, int]) -> re.Pattern[str] | None:
    """Matches the longest name."""
    names = sorted(ids, key=len, reverse=True)
    return re.compile(f"(?<!{GUARD})(" + "|".join(map(re.escape, names)) + ")") if names else None
