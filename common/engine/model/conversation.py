"""A conversation as the model is given it: the turns so far, and the tools that the answer may call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool in an earlier turn."""

    number: int  # of the conversation's calls
    name: str
    arguments: str  # a JSON object


@dataclass(frozen=True, slots=True)
class Turn:
    """A message of one of the two, or what a tool has to say to a call."""

    role: Literal["user", "assistant", "tool"]
    text: str
    calls: tuple[Call, ...] = ()  # that the assistant made; of a tool the one that it answers


@dataclass(frozen=True, slots=True)
class Conversation:
    """A question, the last turn, with what was said before it and the instructions for all of it; behind the question
    there may be calls of tools and what these said.

    `begun` is how the answer begins, where the model is to go on from there. `tools` are what the answer may call:
    JSON objects as OpenAI's API has them, `{"name": ..., "description": ..., "parameters": ...}`.
    """

    turns: tuple[Turn, ...]
    instructions: tuple[str, ...] = ()
    begun: str = ""
    tools: tuple[str, ...] = ()

    @classmethod
    def of(cls, question: str) -> Conversation:
        """A question by itself."""
        return cls((Turn("user", question),))

    @property
    def calls_tools(self) -> bool:
        """Whether there are tools, or were."""
        return bool(self.tools) or any(turn.calls for turn in self.turns)
