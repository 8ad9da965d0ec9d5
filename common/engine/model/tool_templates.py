"""Tools by a model's chat template: whether it tells of them, how its calls look, and texts that spell no token."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from common.engine.model.conversation import Turn
from common.engine.model.tokenizer import Tokenizer
from common.engine.model.tool_words import ToolFormat
from common.processors.calls import CallShape

UNKNOWN_SHAPE: Final = "the model's chat template puts calls of tools in a way that this daemon does not know"
# In front of a character with which a control token's name may begin or end; gone where a row's tokens are made.
GUARD: Final = "\ue002"
_ID_DIGITS: Final = 9  # some templates insist on so many
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
_ASKED: Final = ([{"role": "system", "content": "b"}, _QUESTION], [_QUESTION])  # templates may insist on either


@dataclass(frozen=True, slots=True)
class _Known:
    """Words around calls, as one family of models writes them."""

    opening: str
    arguments: str
    closing: str
    between: str | None


_KNOWN: Final = (
    _Known("<tool_call>\n", "arguments", "\n</tool_call>", "\n</tool_call>\n<tool_call>\n"),  # Hermes, Qwen, SmolLM3
    _Known("<tool_call>", "arguments", "</tool_call>", "</tool_call><tool_call>"),
    _Known("[TOOL_CALLS] [", "arguments", "]", ", "),  # Mistral
    _Known("[TOOL_CALLS][", "arguments", "]", ", "),
    _Known("", "parameters", "", None),  # Llama 3
)

Split = Callable[[str], Sequence[str | int]]


def told_of_tools(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer's chat template tells the model of tools."""
    return any(_NAME in _rendered(tokenizer, asked) for asked in _ASKED)


def tool_format(tokenizer: Tokenizer, split: Split) -> ToolFormat | None:
    """The form of calls in a template that tells of tools, its special tokens found by `split`; None: unknown.

    A call is rendered, and looked at.
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


def _is_put(known: _Known, before: str, called: str) -> bool:
    """Whether the template puts the probe's call so, behind what stands `before` an answer where nothing tells it."""
    head = f'{known.opening}{{"name": "{_NAME}", "{known.arguments}": {{"{_MEMBER}": 1}}'
    at = called.find(head) if known.opening else len(before) if called.startswith(before + head) else -1
    return at >= 0 and f"}}{known.closing}" in called[at + len(head) :]


def _rendered(tokenizer: Tokenizer, messages: Sequence[Mapping[str, Any]]) -> str:
    try:
        return tokenizer.render_chat(messages, [_TOOL])
    except ValueError:
        return ""


def call_id(number: int) -> str:
    """The id of the conversation's call of this number in prompts: those of clients are of any kind and length."""
    return f"{number:0{_ID_DIGITS}}"


class Guarded:
    """Texts and objects for a template such that nothing in them spells a control token, however it is put."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names` are those of control tokens."""
        ends = {character for name in names for character in (name[0], name[-1])} | {"\ue000", "\ue001"}
        self._ends = re.compile("[" + "".join(map(re.escape, sorted(ends))) + "]")

    def text(self, text: str) -> str:
        """The text with guards."""
        return self._ends.sub(lambda found: GUARD + found[0], text.replace(GUARD, ""))

    def value(self, value: Any) -> Any:
        """A value of JSON with guards in all of its texts."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self.value(item) for name, item in value.items()}
        return [self.value(item) for item in value] if isinstance(value, list) else value

    def tools(self, tools: Sequence[str]) -> list[dict[str, Any]] | None:
        """The tools that a conversation may call, as templates take them; None: there are none."""
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
