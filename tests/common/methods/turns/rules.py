"""The state machine of both sides, pure: whose turn it is, what a draft or a message adds, what is to be done then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from common.answer.values import Action, Commit, Finish, Send, Work
from proto.errors import malformed
from proto.messages import OTHER, Open, Side, Target


@dataclass
class Rules:
    """The answer so far. `alone`: the other side takes no part any more."""

    role: Side
    opening: Open
    turn: int
    vocabulary: int
    tokens: list[int] = field(default_factory=list)
    alone: bool = False
    epoch: int = 0  # counts messages that brought tokens
    decided: int = 0  # tokens of this side

    @property
    def position(self) -> int:
        return len(self.tokens)

    @property
    def aggregator(self) -> Side:
        """The side whose turn it is."""
        return self.role if self.alone else "cloud" if self.position // self.turn % 2 else "device"

    @property
    def finished(self) -> bool:
        tokens = self.tokens
        return len(tokens) >= self.opening.max_tokens or (bool(tokens) and tokens[-1] in self.opening.eos)

    @property
    def mine(self) -> bool:
        """Whether this side decides the next token."""
        return not self.finished and self.aggregator == self.role

    def work(self) -> Work | None:
        """The next distribution."""
        return Work(self.epoch, tuple(self.tokens)) if self.mine else None

    def drawn(self, work: Work, token: int) -> list[Action]:
        """Take a token that was drawn here."""
        if not self.mine or work.position != self.position:
            return []
        told = Send(self.target(work.position, (token,)))
        self.decided += 1
        return [told, *self._commit(token)]

    def take(self, position: int, tokens: Sequence[int]) -> list[Action]:
        """Take the other side's tokens from `position` on. Raises `ProtocolError`."""
        if max(tokens) >= self.vocabulary or position > self.position:
            raise malformed("tokens must be of the vocabulary and follow the answer so far")
        self.epoch += 1
        return [action for token in tokens[self.position - position :] for action in self._commit(token)]

    def target(self, position: int, tokens: Sequence[int]) -> Target:
        return Target(self.opening.session, 0, position, tuple(tokens), OTHER[self.role])

    def _commit(self, token: int) -> list[Action]:
        commit = Commit(self.position, token, self.alone, None, None, {})
        self.tokens.append(token)
        # The cloud stays until the device closes the answer.
        done = self.finished and self.role == "device"
        return [commit, *([Finish("length")] if done else [])]
