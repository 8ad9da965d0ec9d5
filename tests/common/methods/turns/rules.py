"""The rules of both sides, pure: whose turn it is, and what a message adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from proto.errors import malformed
from proto.fields import Side
from proto.messages import Open


@dataclass
class Rules:
    """The answer so far. `alone`: the other side takes no part any more."""

    role: Side
    opening: Open
    turn: int
    vocabulary: int
    tokens: list[int] = field(default_factory=list)
    alone: bool = False

    @property
    def finished(self) -> bool:
        return len(self.tokens) >= self.opening.max_tokens or (
            bool(self.tokens) and self.tokens[-1] in self.opening.eos
        )

    @property
    def mine(self) -> bool:
        """Whether this side decides the next token."""
        side: Side = "cloud" if len(self.tokens) // self.turn % 2 else "device"
        return not self.finished and (self.alone or side == self.role)

    def take(self, position: int, tokens: Sequence[int]) -> list[int]:
        """The other side's tokens from `position` on; returns the new ones. Raises `ProtocolError`."""
        if max(tokens) >= self.vocabulary or position > len(self.tokens):
            raise malformed("tokens must be of the vocabulary and follow the answer so far")
        new = list(tokens[len(self.tokens) - position :])
        self.tokens += new
        return new
