"""Shares of forward passes among peers: one with many answers does not slow down one with few. Pure.

A pass takes the longer, the more it feeds. Where several peers have steps, each gets as many as the one with the
fewest, and more only as far as that takes next to no time. And a peer that has several answers under way, and has had
much lately, is held back but for a small part of the time while another one wants anything; otherwise all is its.

That is the idea of virtual token counters (Sheng et al., Fairness in Serving Large Language Models, 2024), in seconds
that passes take longer for a peer, and with a memory that fades: who asks now and then is not slowed down by who always
does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import Final, Protocol

from common.engine.batcher import Share, Wish

REST: Final = 0.05  # seconds that peers behind get, for each second of others
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
        self._behind: Set[Hashable] = frozenset()  # of those that may want something now
        self._rest = 0.0  # seconds that those behind may have now; 0 and below: they are held back
        self._next: dict[Hashable, int] = {}  # of the steps of a peer with too many, the one whose turn it is

    def held(self, asking: Mapping[Hashable, int]) -> Set[Hashable]:
        """Those of the peers `asking` for so many answers each that get no part of the next pass, if one of the others
        wants one.
        """
        self._behind = self._find_behind(asking) if len(asking) > 1 else frozenset()
        return self._behind if self._rest <= 0 else frozenset()

    def admitted(self, wishes: Sequence[Wish], costs: Costs) -> list[int]:
        """The wishes that may have a part of this pass, at least one where there are any."""
        due: dict[Hashable, list[int]] = {}
        others = []
        for index, wish in enumerate(wishes):
            if wish.due:
                due.setdefault(wish.peer, []).append(index)
            else:
                others.append(index)
        return sorted(others + self._steps(due, wishes, costs.spare))

    def note(self, wishes: Sequence[Wish], shares: Sequence[Share], seconds: float, costs: Costs) -> None:
        """Count what a pass of so many `seconds` fed of the wishes of those that were not held back."""
        peers = {wish.peer for wish in wishes}
        stepped, tokens = dict.fromkeys(peers, 0), dict.fromkeys(peers, 0)
        for share in shares:
            wish = wishes[share.wish]
            (stepped if wish.due else tokens)[wish.peer] += wish.rows * share.tokens
        cost = {peer: costs.seconds(stepped[peer], tokens[peer]) for peer in peers}
        if self._behind:
            spent = sum(cost[peer] for peer in peers & self._behind)
            self._rest = min(self._rest + REST * max(seconds - spent, 0.0) - spent, seconds)
        else:
            self._rest = 0.0
        whole = sum(cost.values())
        for peer in self._had.keys() | peers:
            part = cost.get(peer, 0.0) / whole if whole else 0.0
            self._had[peer] = self._had.get(peer, 0.0) * (1 - _FADES) + _FADES * part
        self._had = {peer: had for peer, had in self._had.items() if had > _GONE or peer in peers}
        self._next = {peer: place for peer, place in self._next.items() if peer in self._had}

    def _find_behind(self, asking: Mapping[Hashable, int]) -> Set[Hashable]:
        """Those of several answers, more than others, that have had more than half the way from an equal part to the
        largest: who wants little is not among them, although an equal part may be less than what most of them want.
        """
        fewest = min(asking.values())
        level = (1 / len(asking.keys() | self._had.keys()) + max(self._had.values(), default=0.0)) / 2
        return {peer for peer, answers in asking.items() if answers > fewest and self._had.get(peer, 0.0) > level}

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
