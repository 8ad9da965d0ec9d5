"""Chooses the feeds of a forward pass: steps of running answers, then prompts in chunks, fair between tenants. Pure.

Tokens of prompts make a pass longer, and the steps in it wait. So a budget bounds these tokens. The budget follows from
measured times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import Final, Protocol

from common.engine.model.packed import Feed

SHORT: Final = 4  # tokens per row: a running answer's shorter feeds are part of every pass
QUANTUM: Final = 64  # tokens that each tenant may feed in turn
SMALLEST: Final = 8  # tokens per row of a chunk, unless less is left or the budget is smaller


def due(feed: Feed) -> bool:
    """Whether a feed is part of every pass: somebody waits for it, and it is short."""
    if not feed.whole:
        return False
    before = len(feed.tokens) - _together(feed)
    return before < SHORT if feed.running else before == 0 and feed.logits > 1


def is_step(feed: Feed) -> bool:
    """Whether a feed is a decode step or verifies a proposal, rather than a prompt or a catch-up."""
    if not (feed.whole and feed.job.running):
        return False
    return len(feed.tokens) == 1 or (feed.logits > 1 and len(feed.tokens) - feed.logits < SHORT)


def _together(feed: Feed) -> int:
    """The number of its last tokens that one pass must feed together: their distributions are wanted."""
    return max(feed.logits, 1)


def _up_to(feed: Feed, tokens: int) -> int:
    """The tokens per row that a pass may feed of it, at most `tokens`."""
    return len(feed.tokens) if tokens >= len(feed.tokens) else min(tokens, len(feed.tokens) - _together(feed))


class Batcher:
    """Chooses the feeds of each pass. Keeps what each tenant is owed (deficit round robin, in tokens)."""

    def __init__(self) -> None:
        self._owed: dict[Hashable, int] = {}
        self._turn: deque[Hashable] = deque()

    def plan(self, feeds: Sequence[Feed], budget: int) -> list[Feed]:
        """The feeds of one pass, cut to their parts in it: `budget` tokens at most beside the steps that are due.

        Within a tenant the first feeds come first. Something is always chosen where there is a feed.
        """
        chosen = {index: len(feed.tokens) for index, feed in enumerate(feeds) if due(feed)}
        waiting: dict[Hashable, deque[int]] = {}
        for index, feed in enumerate(feeds):
            if index not in chosen:
                waiting.setdefault(feed.job.tenant, deque()).append(index)
        self._enter(waiting)
        left = budget
        behind = next((waiting[tenant][0] for tenant in self._turn if tenant in waiting), None)
        while left > 0 and waiting:
            tenant = self._turn[0]
            self._turn.rotate(-1)
            if tenant in waiting:
                self._owed[tenant] += QUANTUM
                left -= self._serve(tenant, waiting[tenant], feeds, budget, left, chosen)
                if not waiting[tenant]:
                    del waiting[tenant]
        if behind is not None and left == budget:
            chosen[behind] = _smallest(feeds[behind], budget)  # a token for each row, although the budget holds less
            self._turn.rotate(-1)
        for index, tokens in chosen.items():
            feeds[index].cut(tokens)
        return in_order([feeds[index] for index in chosen])

    def _enter(self, waiting: dict[Hashable, deque[int]]) -> None:
        """Put new tenants at the end of the turn. A tenant with nothing to feed loses what it is owed."""
        self._turn = deque(tenant for tenant in self._turn if tenant in waiting)
        self._turn.extend(tenant for tenant in waiting if tenant not in self._owed)
        self._owed = {tenant: self._owed.get(tenant, 0) for tenant in self._turn}

    def _serve(
        self,
        tenant: Hashable,
        mine: deque[int],
        feeds: Sequence[Feed],
        budget: int,
        left: int,
        chosen: dict[int, int],
    ) -> int:
        """Give `tenant` its turn. Returns the tokens it feeds. Empties `mine` if nothing more fits into this pass."""
        spent = 0
        while mine:
            index = mine[0]
            feed, already = feeds[index], chosen.get(index, 0)
            rows = len(feed.rows)
            least = 1 if already else _smallest(feed, budget)
            room = (left - spent) // rows
            if _up_to(feed, already + room) - already < least:
                mine.clear()
                break
            tokens = _up_to(feed, already + min(room, self._owed[tenant] // rows)) - already
            if tokens < least:
                break  # what it is owed grows until the next turn
            chosen[index] = already + tokens
            spent += tokens * rows
            self._owed[tenant] -= tokens * rows
            if chosen[index] == len(feed.tokens):
                mine.popleft()
        return spent


def _smallest(feed: Feed, budget: int) -> int:
    """Tokens per row of the smallest chunk. It fits the budget, so that prompts of many rows are read, too."""
    return _up_to(feed, min(len(feed.tokens), SMALLEST, max(1, budget // len(feed.rows))))


def in_order(feeds: Sequence[Feed]) -> list[Feed]:
    """The feeds of a pass except those behind others that the pass does not feed whole."""
    whole = {id(feed) for feed in feeds if feed.whole}
    return [feed for feed in feeds if whole.issuperset(map(id, feed.behind))]


# --- budget
# Bounds the tokens that a pass feeds beside steps, and the steps beyond equal parts.

STRETCH: Final = 0.6  # a pass with running answers takes this share of a step longer, at most
ALONE_STEPS: Final = 8.0  # steps that a pass may take while nobody's answer is running
FEWEST: Final = 16  # tokens; prompts go forward however fast the steps are
MOST: Final = 2048
_NEW: Final = 0.2  # weight of a new measurement
_NEW_STEP: Final = 0.05  # of a pass in the line of passes over their steps
_REMEMBERED: Final = 64  # passes for which what a further token took is remembered
_FORGOTTEN: Final = 0.02  # weight, from then on, of what is believed of one before any
_ALIKE: Final = 1.0  # variance of their tokens below which passes tell nothing of what a token takes
_FREE: Final = 0.1  # share of a pass that steps beyond equal parts of all tenants may take longer
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
# Shares of forward passes among tenants: a tenant with many answers does not slow down a tenant with few.
#
# A pass takes the longer, the more it feeds. Where several tenants have steps, each gets as many as the tenant with the
# fewest, and more only where that takes next to no time. A tenant that has several answers under way and has had much
# lately is held back while another one wants anything, except for a small part of the time.
#
# The idea is that of virtual token counters (Sheng et al., Fairness in Serving Large Language Models, 2024). Here they
# count the seconds by which passes take longer for a tenant, and they fade: a tenant that asks now and then is not
# slowed down by one that always asks.

REST: Final = 0.05  # seconds that held tenants get, for each second of others
_FADES: Final = 0.002  # weight of a pass in what a tenant has had: about a hundred passes count, an answer or two
_GONE: Final = 1e-4  # part of all seconds; a tenant that had less lately and wants nothing is forgotten


class Costs(Protocol):
    """Seconds of passes, as they were measured. Tokens are counted once per row."""

    def spare(self, stepped: int) -> int:
        """Tokens of steps that a pass with `stepped` of them takes at next to no cost."""

    def seconds(self, stepped: int, tokens: int) -> float:
        """Seconds of a pass with `stepped` tokens of steps and `tokens` of prompts, beyond one that feeds nothing."""


class TenantShares:
    """The parts of the passes that tenants have had, and the tenants to hold back."""

    def __init__(self) -> None:
        self._had: dict[Hashable, float] = {}  # each tenant's part of recent passes' extra seconds
        self._behind: Set[Hashable] = frozenset()  # tenants that have had too much
        self._rest = 0.0  # seconds that they may have now; they are held back at 0 and below
        self._next: dict[Hashable, int] = {}  # of a tenant with too many steps, the place of the step whose turn it is

    def held(self, asking: Mapping[Hashable, int]) -> Set[Hashable]:
        """Returns the tenants to hold back in the next pass, if any other tenant wants something.

        `asking` counts the answers of each tenant.
        """
        self._behind = self._find_behind(asking) if len(asking) > 1 else frozenset()
        return self._behind if self._rest <= 0 else frozenset()

    def admitted(self, feeds: Sequence[Feed], costs: Costs) -> list[Feed]:
        """The feeds that may have a part of this pass, at least one where there are any."""
        steps: dict[Hashable, list[Feed]] = {}
        admitted = set[int]()
        for feed in feeds:
            if due(feed):
                steps.setdefault(feed.job.tenant, []).append(feed)
            else:
                admitted.add(id(feed))
        admitted |= {id(feed) for feed in self._steps(steps, costs.spare)}
        return [feed for feed in feeds if id(feed) in admitted]

    def note(self, tenants: Set[Hashable], fed: Sequence[Feed], seconds: float, costs: Costs) -> None:
        """Count what a pass of `seconds` fed, where `tenants` wanted something and were not held back."""
        stepped, tokens = dict.fromkeys(tenants, 0), dict.fromkeys(tenants, 0)
        for feed in fed:
            (stepped if due(feed) else tokens)[feed.job.tenant] += feed.size
        cost = {tenant: costs.seconds(stepped[tenant], tokens[tenant]) for tenant in tenants}
        if self._behind:
            spent = sum(cost[tenant] for tenant in tenants & self._behind)
            self._rest = min(self._rest + REST * max(seconds - spent, 0.0) - spent, seconds)
        else:
            self._rest = 0.0
        whole = sum(cost.values())
        for tenant in self._had.keys() | tenants:
            part = cost.get(tenant, 0.0) / whole if whole else 0.0
            self._had[tenant] = self._had.get(tenant, 0.0) * (1 - _FADES) + _FADES * part
        self._had = {tenant: had for tenant, had in self._had.items() if had > _GONE or tenant in tenants}
        self._next = {tenant: place for tenant, place in self._next.items() if tenant in self._had}

    def _find_behind(self, asking: Mapping[Hashable, int]) -> Set[Hashable]:
        """The tenants with more answers than others that have had too much.

        Too much is more than half way from an equal part to the largest part: so a tenant that wants little is never
        among them.
        """
        fewest = min(asking.values())
        level = (1 / len(asking.keys() | self._had.keys()) + max(self._had.values(), default=0.0)) / 2
        return {tenant for tenant, answers in asking.items() if answers > fewest and self._had.get(tenant, 0.0) > level}

    def _steps(self, steps: dict[Hashable, list[Feed]], spare: Callable[[int], int]) -> list[Feed]:
        """Equal parts of the steps of all tenants with any."""
        if len(steps) < 2:
            return [feed for mine in steps.values() for feed in mine]
        wanted = {tenant: sum(feed.size for feed in mine) for tenant, mine in steps.items()}
        level = _level(list(wanted.values()), spare)
        chosen: list[Feed] = []
        for tenant, mine in steps.items():
            if wanted[tenant] <= level:
                chosen += mine
                self._next.pop(tenant, None)
                continue
            place, left, taken = self._next.get(tenant, 0) % len(mine), level, 0
            for feed in [*mine[place:], *mine[:place]]:
                if taken and feed.size > left:
                    break
                chosen.append(feed)
                left -= feed.size
                taken += 1
            self._next[tenant] = place + taken
        return chosen


def _level(wanted: Sequence[int], spare: Callable[[int], int]) -> int:
    """The tokens that a tenant gets of a pass at most: the smallest wish, and an equal part of what costs nothing."""
    level = min(wanted)
    left = spare(level * len(wanted))
    more = sorted(each for each in wanted if each > level)
    while more and left >= len(more):
        step = min(more[0] - level, left // len(more))
        level, left = level + step, left - step * len(more)
        more = [each for each in more if each > level]
    return level
