"""Shares of forward passes among peers: one with many answers does not slow down one with few. Pure.

A pass takes the longer, the more it feeds. Where several peers have steps, each gets as many as the one with the
fewest, and more only as far as that takes next to no time. And a peer that has had less than an equal part lately goes
first: those that have had more share what is left, a small part of each pass while such a one is there, all of it
otherwise.

That is the idea of virtual token counters (Sheng et al., Fairness in Serving Large Language Models, 2024), in seconds
that passes take longer for a peer, and with a memory that fades: who asks now and then is not slowed down by who always
does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Protocol

from common.engine.batcher import Share, Wish

REST: Final = 0.2  # seconds that peers with more than their part get, for each second of one with less
_FADES: Final = 0.002  # weight of a pass in what a peer has had: some hundred passes, an answer or two
_GONE: Final = 1e-4  # of all seconds; who has had less lately, and wants none, is forgotten


class Costs(Protocol):
    """Seconds of passes, as they were measured. Tokens are counted once per row."""

    def spare(self, stepped: int) -> int:
        """Tokens of steps that a pass with `stepped` of them takes at next to no cost."""

    def seconds(self, stepped: int, tokens: int) -> float:
        """Seconds of a pass with `stepped` tokens of steps and `tokens` of prompts, beyond one that feeds nothing."""


class PeerShares:
    """Parts of the passes that peers have had, and the turns of those that want more."""

    def __init__(self) -> None:
        self._had: dict[Hashable, float] = {}  # part of what passes took longer for anybody, of late
        self._rest = 0.0  # seconds that those with more than their part may have now; below 0: have had too many
        self._next: dict[Hashable, int] = {}  # of the steps of a peer with too many, the one whose turn it is

    def admitted(self, wishes: Sequence[Wish], costs: Costs) -> list[int]:
        """The wishes that may have a part of this pass, at least one where there are any."""
        peers = {wish.peer for wish in wishes}
        first = self._first(peers)
        allowed = first if len(first) < len(peers) and self._rest < 0 else peers
        due: dict[Hashable, list[int]] = {}
        others = []
        for index, wish in enumerate(wishes):
            if wish.peer in allowed:
                if wish.due:
                    due.setdefault(wish.peer, []).append(index)
                else:
                    others.append(index)
        return sorted(others + self._steps(due, wishes, costs.spare))

    def note(self, wishes: Sequence[Wish], shares: Sequence[Share], seconds: float, costs: Costs) -> None:
        """Count what a pass of so many `seconds` fed of the wishes that there were."""
        peers = {wish.peer for wish in wishes}
        first = self._first(peers)
        stepped, tokens = dict.fromkeys(peers, 0), dict.fromkeys(peers, 0)
        for share in shares:
            wish = wishes[share.wish]
            (stepped if wish.due else tokens)[wish.peer] += wish.rows * share.tokens
        cost = {peer: costs.seconds(stepped[peer], tokens[peer]) for peer in peers}
        if len(first) < len(peers):
            spent = sum(cost[peer] for peer in peers - first)
            self._rest = min(self._rest + REST * max(seconds - spent, 0.0) - spent, seconds)
        else:
            self._rest = 0.0
        whole = sum(cost.values())
        for peer in self._had.keys() | peers:
            part = cost.get(peer, 0.0) / whole if whole else 0.0
            self._had[peer] = self._had.get(peer, 0.0) * (1 - _FADES) + _FADES * part
        self._had = {peer: had for peer, had in self._had.items() if had > _GONE or peer in peers}
        self._next = {peer: place for peer, place in self._next.items() if peer in self._had}

    def _first(self, peers: set[Hashable]) -> set[Hashable]:
        """The peers that have had no more than an equal part; all of them where that is none."""
        equal = 1 / len(peers | self._had.keys()) if peers else 1.0
        return {peer for peer in peers if self._had.get(peer, 0.0) <= equal} or peers

    def _steps(self, due: dict[Hashable, list[int]], wishes: Sequence[Wish], spare: Callable[[int], int]) -> list[int]:
        """Equal parts of the steps of all peers with any."""
        if len(due) < 2:
            return [index for mine in due.values() for index in mine]
        wanted = {peer: sum(_size(wishes[index]) for index in mine) for peer, mine in due.items()}
        level = _level(list(wanted.values()), spare)
        chosen = []
        for peer, mine in due.items():
            if wanted[peer] <= level:
                chosen += mine
                self._next.pop(peer, None)
                continue
            place, left, taken = self._next.get(peer, 0) % len(mine), level, 0
            for index in [*mine[place:], *mine[:place]]:
                size = _size(wishes[index])
                if taken and size > left:
                    break
                chosen.append(index)
                left -= size
                taken += 1
            self._next[peer] = place + taken
        return chosen


def _size(wish: Wish) -> int:
    return wish.rows * wish.tokens


def _level(wanted: Sequence[int], spare: Callable[[int], int]) -> int:
    """The most that a peer gets of a pass: what the one that wants least does, and its part of what is to spare."""
    level = min(wanted)
    left = spare(level * len(wanted))
    more = sorted(each for each in wanted if each > level)
    while more and left >= len(more):
        step = min(more[0] - level, left // len(more))
        level, left = level + step, left - step * len(more)
        more = [each for each in more if each > level]
    return level
