"""Fills a forward pass: steps of running answers first, then prompts in chunks, fair between peers. Pure.

A pass takes about as long as its longest part: tokens of prompts beside the steps of running answers hold those up. So
their number is bounded by a budget, which follows from the measured times (`common.engine.budget`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

SHORT: Final = 4  # tokens per row of a running answer that are fed whole, whatever the budget: a step, a short catch-up
QUANTUM: Final = 64  # tokens that each peer may feed in turn
SMALLEST: Final = 8  # tokens per row; a chunk is not cut smaller unless less is left, or the budget holds less


@dataclass(frozen=True, slots=True)
class Wish:
    """Tokens that could be fed now to `rows` rows, `tokens` to each of them."""

    peer: Hashable  # who is to be treated fairly
    rows: int
    tokens: int
    running: bool  # of an answer that has begun: it is waited for
    whole: int = 1  # the last tokens, which one pass must feed together: their distributions are wanted

    @property
    def due(self) -> bool:
        """Whether the wish is part of every pass."""
        before = self.tokens - self.whole
        return before < SHORT if self.running else self.whole > 1 and before == 0

    def part(self, tokens: int) -> int:
        """The tokens that a pass may feed of it, at most `tokens`."""
        return self.tokens if tokens >= self.tokens else min(tokens, self.tokens - self.whole)


@dataclass(frozen=True, slots=True)
class Share:
    """Tokens that a wish gets in this pass: its first `tokens` tokens per row."""

    wish: int  # index
    tokens: int


class Batcher:
    """Chooses the items of each pass. Keeps what peers are owed between passes (deficit round robin by tokens)."""

    def __init__(self) -> None:
        self._owed: dict[Hashable, int] = {}
        self._turn: deque[Hashable] = deque()

    def plan(self, wishes: Sequence[Wish], budget: int) -> list[Share]:
        """The shares of one pass, which feeds `budget` tokens at most beside the steps that are due.

        Every wish gets one share or none; within a peer the first wishes come first. Something is always chosen where
        there is a wish.
        """
        chosen = {index: wish.tokens for index, wish in enumerate(wishes) if wish.due}
        waiting: dict[Hashable, deque[int]] = {}
        for index, wish in enumerate(wishes):
            if not wish.due:
                waiting.setdefault(wish.peer, deque()).append(index)
        self._enter(waiting)
        left = budget
        behind = next((waiting[peer][0] for peer in self._turn if peer in waiting), None)
        while left > 0 and waiting:
            peer = self._turn[0]
            self._turn.rotate(-1)
            if peer in waiting:
                self._owed[peer] += QUANTUM
                left -= self._serve(peer, waiting[peer], wishes, budget, left, chosen)
                if not waiting[peer]:
                    del waiting[peer]
        if behind is not None and left == budget:
            chosen[behind] = _smallest(wishes[behind], budget)  # a token for each row, although the budget holds less
            self._turn.rotate(-1)
        return [Share(index, tokens) for index, tokens in chosen.items()]

    def _enter(self, waiting: dict[Hashable, deque[int]]) -> None:
        """Peers come at the end of the turn; those with nothing to feed lose what they are owed."""
        self._turn = deque(peer for peer in self._turn if peer in waiting)
        self._turn.extend(peer for peer in waiting if peer not in self._owed)
        self._owed = {peer: self._owed.get(peer, 0) for peer in self._turn}

    def _serve(
        self,
        peer: Hashable,
        mine: deque[int],
        wishes: Sequence[Wish],
        budget: int,
        left: int,
        chosen: dict[int, int],
    ) -> int:
        """Give `peer` its turn; returns the tokens that it feeds. What finds no room in this pass is taken off."""
        spent = 0
        while mine:
            index = mine[0]
            wish, already = wishes[index], chosen.get(index, 0)
            least = 1 if already else _smallest(wish, budget)
            room = (left - spent) // wish.rows
            if wish.part(already + room) - already < least:
                mine.clear()
                break
            tokens = wish.part(already + min(room, self._owed[peer] // wish.rows)) - already
            if tokens < least:
                break  # what it is owed grows until the next turn
            chosen[index] = already + tokens
            spent += tokens * wish.rows
            self._owed[peer] -= tokens * wish.rows
            if chosen[index] == wish.tokens:
                mine.popleft()
        return spent


def _smallest(wish: Wish, budget: int) -> int:
    """Tokens per row of the smallest chunk: fewer where the budget holds none of the usual size, or a prompt of many
    rows would never be read.
    """
    return wish.part(min(wish.tokens, SMALLEST, max(1, budget // wish.rows)))
