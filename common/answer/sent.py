"""Bytes of an answer's messages to the cloud, by what they say."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import Self

from proto.fields import Sampler
from proto.messages import Draft, Fetch, Message, Open, Resolve, Resolved, Sync, Target
from proto.rounds import Defer, Propose


@dataclass(frozen=True, slots=True)
class SentBytes:
    """Each byte counts once: the parts add up to everything that left the device for one answer."""

    question: int = 0  # the question, instructions, tools and settings of the answer
    earlier_turns: int = 0  # text of the conversation before the question
    tokens: int = 0  # decided or proposed tokens, and requests for values at their positions
    probabilities: int = 0  # this device's drafts with their distributions and evidence, and single values
    control: int = 0  # the end of the session, and complaints about the cloud's messages

    def __add__(self, other: Self) -> Self:
        return type(self)(*(one + more for one, more in zip(astuple(self), astuple(other), strict=True)))

    @property
    def total(self) -> int:
        return sum(astuple(self))

    @property
    def exchange(self) -> int:
        """Bytes of the messages that decide tokens."""
        return self.tokens + self.probabilities


def sent_bytes(message: Message, size: int, history: int, sampler: Sampler) -> SentBytes:
    """Returns the parts of a `message` that takes `size` bytes on the wire.

    `history` are the bytes of the prompt that come from earlier turns. A proposal of sampler `race` names tokens alone.
    """
    match message:
        case Open():
            earlier = history + len(message.earlier.encode())
            return SentBytes(question=size - earlier, earlier_turns=earlier)
        case Fetch():
            earlier = len(message.earlier.encode())
            return SentBytes(question=size - earlier, earlier_turns=earlier)
        case Draft() | Resolved():
            return SentBytes(probabilities=size)
        case Propose() if sampler != "race":
            distributions = len(message.payload)
            return SentBytes(tokens=size - distributions, probabilities=distributions)
        case Propose() | Defer() | Target() | Sync() | Resolve():
            return SentBytes(tokens=size)
        case _:
            return SentBytes(control=size)
