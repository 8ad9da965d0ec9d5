"""Calls of tools as a format of answers: text, calls, or either, by a grammar that is a function of the request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from common.processors.members import closed
from common.processors.trial import SPACING

MOST_TOOLS: Final = 64  # that an answer may call
MOST_CALLS: Final = 8  # of one answer: a small model that began to list calls may not find an end
TOOL_NAME: Final = "^[A-Za-z0-9_.-]{1,64}$"
_LONGEST_LITERAL: Final = 256  # characters

# The words that stand around calls: text, and special tokens by their ids.
Literals = Annotated[
    tuple[Annotated[str, Field(max_length=_LONGEST_LITERAL)] | Annotated[int, Field(ge=0)], ...], Field(max_length=8)
]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class CallShape(_Value):
    """The words of a model's calls: `opening {"name": ..., "<arguments>": {...}} closing`."""

    opening: Literals
    arguments: Annotated[str, Field(pattern="^[a-z_]{1,32}$")]  # the name of this member
    closing: Literals
    between: Literals | None = None  # two calls; None: there is one at most

    @property
    def trigger(self) -> str | int:
        """The text or token by which a call is told from other text; empty where a call begins the answer."""
        if not self.opening:
            return ""
        first = self.opening[0]
        return first.strip() if isinstance(first, str) else first


class Tool(_Value):
    """A function by name, with the JSON schema of its arguments."""

    name: Annotated[str, Field(pattern=TOOL_NAME)]
    parameters: dict[str, Any]


class Calls(_Value):
    """The calls that an answer may make, or `must` make, at most `most` of them."""

    shape: CallShape
    tools: Annotated[tuple[Tool, ...], Field(min_length=1, max_length=MOST_TOOLS)]
    must: bool = False
    most: Annotated[int, Field(ge=1, le=MOST_CALLS)] = 1

    @field_validator("tools")
    @classmethod
    def _of_different_names(cls, value: tuple[Tool, ...]) -> tuple[Tool, ...]:
        if len({tool.name for tool in value}) < len(value):
            raise ValueError("two tools have the same name")
        return value


def call_grammar(calls: Calls, answer: str | None) -> str:
    """The grammar, in llguidance's Lark, of an answer that makes `calls`, or else is the JSON schema `answer` or, where
    that is None, any text.

    Raises `ValueError`, half a sentence, where a call can't be told from `answer`.
    """
    shape, trigger = calls.shape, calls.shape.trigger
    if answer is not None and not calls.must and not trigger:
        raise ValueError("this model's calls are JSON, too, and can't be told from an answer that has a format")
    first, *others = shape.opening or ("",)
    behind = () if isinstance(first, int) else (first[first.index(str(trigger)) + len(str(trigger)) :],)
    opened = _literal((trigger,)) if trigger else ""
    more = "" if shape.between is None or calls.most == 1 else f" (more){{0,{calls.most - 1}}}"
    lines = [
        "%llguidance {}",
        f"start: {_start(calls, answer, opened)}",
        f"calls: {_literal((*behind, *others))} call{more} {_literal(shape.closing)}",
        "call: " + " | ".join(f"call_{number}" for number in range(len(calls.tools))),
        *(_call(number, tool, shape.arguments) for number, tool in enumerate(calls.tools)),
        # Behind what tells it from a call, if anything does, the whole of it is JSON.
        f"text: %json {_spaced(answer)}" if answer is not None else "TEXT: /(.|\\n)*/",
    ]
    if more:
        lines.append(f"more: {_literal(shape.between or ())} call")
    if not calls.must and answer is None:
        if not trigger:
            lines.append("OTHER: /(\\s*[^\\s{](.|\\n)*)?/")
        elif isinstance(trigger, str):
            lines.append(f"opened[lazy]: TEXT {opened}")
    return "\n".join(lines)


def _start(calls: Calls, answer: str | None, opened: str) -> str:
    """The right side of the grammar's first rule."""
    trigger = calls.shape.trigger
    if calls.must:
        return f"{opened} calls"
    if answer is not None:
        return f"text | {opened} calls"
    if not trigger:
        return "OTHER | calls"
    return "TEXT | opened calls" if isinstance(trigger, str) else f"TEXT | TEXT {opened} calls"


def _call(number: int, tool: Tool, arguments: str) -> str:
    members = closed({"type": "object", "properties": {}} | tool.parameters)
    head = f'{{"name": {json.dumps(tool.name)}, {json.dumps(arguments)}: '
    return f'call_{number}: {json.dumps(head)} %json {_spaced(json.dumps(members))} "}}"'


def _spaced(schema: str) -> str:
    value = json.loads(schema)
    return json.dumps(value | {"x-guidance": dict(SPACING)} if isinstance(value, dict) else value)


def _literal(parts: Sequence[str | int]) -> str:
    return " ".join(json.dumps(part) if isinstance(part, str) else f"<[{part}]>" for part in parts if part != "")
