"""Tools in plain words, for models whose chat template knows none: a system text, and calls as text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from common.engine.model.conversation import Call, Conversation, Turn
from common.processors.calls import CallShape


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """The form in which a model calls the tools that it is told of."""

    shape: CallShape
    trained: bool  # by its chat template; else it is told in plain words


_OPEN: Final = "<tool_call>\n"
_CLOSE: Final = "\n</tool_call>"
# One call at most: a model that was not trained on calls repeats the one that it made.
PLAIN_TOOLS: Final = ToolFormat(CallShape(opening=(_OPEN,), arguments="arguments", closing=(_CLOSE,)), trained=False)
_RETURNED: Final = "<tool_response>\n{text}\n</tool_response>"


def in_plain_words(conversation: Conversation) -> Conversation:
    """The conversation without tools: they are an instruction, calls are text, and what tools said is the user's."""
    if not conversation.calls_tools:
        return conversation
    instructions = conversation.instructions
    if conversation.tools:
        instructions += (_told(conversation.tools),)
    said = groupby(map(_said, conversation.turns), key=lambda turn: turn.role)
    turns = tuple(Turn(role, "\n".join(turn.text for turn in turns)) for role, turns in said)
    return replace(conversation, turns=turns, instructions=instructions, tools=())


def call_object(name: str, arguments: str, member: str = "arguments") -> str:
    """A call as models write it."""
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
