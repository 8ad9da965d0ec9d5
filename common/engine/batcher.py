"""Fills a forward pass: steps of running answers first, then prompts in chunks, fair between peers. Pure.

A pass takes about as long as its longest part: tokens of prompts beside the steps of running answers hold those up. So
their number is bounded by a budget, which follows from the measured times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, Protocol

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


# --- budget
# Bounds what a pass may feed beside the steps of running answers, and beyond equal parts of these. Pure.

STRETCH: Final = 0.6  # a pass with running answers takes this share of a step longer, at most
ALONE_STEPS: Final = 8.0  # steps that a pass may take while nobody's answer is running
FEWEST: Final = 16  # tokens; prompts go forward however fast the steps are
MOST: Final = 2048
_NEW: Final = 0.2  # weight of a new measurement
_NEW_STEP: Final = 0.05  # of a pass in the line of passes over their steps
_REMEMBERED: Final = 64  # passes for which what a further token took is remembered
_FORGOTTEN: Final = 0.02  # weight, from then on, of what is believed of one before any
_ALIKE: Final = 1.0  # variance of their tokens below which passes tell nothing of what a token takes
_FREE: Final = 0.1  # share of a pass that steps beyond equal parts of all peers may take longer
_UNMEASURED_RATIO: Final = 20.0  # tokens of a prompt that take as long as a step, before any was measured


class PassTimes:
    """Seconds of a step, and of a prompt's token beside it, as passes have shown. Starts from a profiled step."""

    def __init__(self, step: float) -> None:
        """`step` is in seconds, above 0."""
        self.step = step
        self.token = step / _UNMEASURED_RATIO
        self.row = step / _UNMEASURED_RATIO  # that a further token of a running answer adds, in one of its rows
        self._single = 0  # passes without one, since the last that had
        self._line = _StepLine()

    def observe(self, seconds: float, steps: bool, tokens: int, further: int = 0, stepped: int = 0) -> None:
        """A pass took `seconds`; it had single `steps` or none, `tokens` tokens of prompts, and `further` tokens of
        running answers beside the first of each of their rows. `stepped` are the tokens of all steps, in all rows.
        """
        if seconds <= 0:
            return
        if stepped and not tokens:
            self._line.observe(stepped, seconds)
        if not tokens:
            if further:
                # A row that takes as long as a step is worth nothing, and one that took longer did by accident.
                self.row += _NEW * (min(max(seconds - self.step, 0.0) / further, self.step) - self.row)
                self._single = 0
            elif steps:
                self.step += _NEW * (seconds - self.step)
                self._single += 1
                if self._single > _REMEMBERED:  # rows that are taken to be dear are not decoded, nor so corrected
                    self.row += _FORGOTTEN * (self.step / _UNMEASURED_RATIO - self.row)
            return
        beside = max(seconds - (self.step if steps else 0.0), 0.0)
        self.token += _NEW * (beside / tokens - self.token)

    def budget(self, running: bool) -> int:
        """Tokens of prompts for the next pass; `running`: some answer is under way."""
        seconds = self.step * (STRETCH if running else ALONE_STEPS)
        if self.token <= 0:
            return MOST
        return max(FEWEST, min(MOST, int(seconds / self.token)))

    def spare(self, stepped: int) -> int:
        """Tokens of steps that a pass with `stepped` of them takes at next to no cost. Implements `Costs`."""
        return self._line.spare(stepped)

    def seconds(self, stepped: int, tokens: int) -> float:
        """Seconds of a pass with `stepped` tokens of steps and `tokens` of prompts, beyond one that feeds nothing."""
        return self._line.slope * stepped + self.token * tokens


class _StepLine:
    """Seconds of passes over the tokens of their steps, in all rows: least squares that forget."""

    def __init__(self) -> None:
        self._tokens = self._seconds = self._variance = self._covariance = 0.0

    @property
    def slope(self) -> float:
        """Seconds of a token more. Where all passes were alike nothing is known: as if it took as long as any other."""
        if not self._tokens:
            return 0.0
        if self._variance <= _ALIKE:
            return self._seconds / self._tokens
        return max(self._covariance / self._variance, 0.0)

    def observe(self, tokens: int, seconds: float) -> None:
        """Note a pass."""
        if not self._tokens:
            self._tokens, self._seconds = float(tokens), seconds
            return
        more, longer = tokens - self._tokens, seconds - self._seconds
        self._tokens += _NEW_STEP * more
        self._seconds += _NEW_STEP * longer
        self._variance = (1 - _NEW_STEP) * (self._variance + _NEW_STEP * more * more)
        self._covariance = (1 - _NEW_STEP) * (self._covariance + _NEW_STEP * more * longer)

    def spare(self, tokens: int) -> int:
        """The tokens that make a pass of `tokens` longer by a share of `_FREE`, at most `MOST`."""
        slope = self.slope
        whole = max(self._seconds + slope * (tokens - self._tokens), slope * tokens)
        if not self._tokens:
            return 0
        return MOST if slope * MOST <= _FREE * whole else int(_FREE * whole / slope)


# --- peer_shares
# Shares of forward passes among peers: one with many answers does not slow down one with few. Pure.
#
# A pass takes the longer, the more it feeds. Where several peers have steps, each gets as many as the one with the
# fewest, and more only as far as that takes next to no time. And a peer that has several answers under way, and has
# had
# much lately, is held back but for a small part of the time while another one wants anything; otherwise all is its.
#
# That is the idea of virtual token counters (Sheng et al., Fairness in Serving Large Language Models, 2024), in
# seconds
# that passes take longer for a peer, and with a memory that fades: who asks now and then is not slowed down by who
# always
# does.

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
