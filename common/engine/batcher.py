"""Chooses a pass's feeds: steps, then prompt chunks, fair between tenants. Pure.

Prompt tokens lengthen a pass while its steps wait. A budget from measured times bounds them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import Final, Protocol

from common.engine.model.packed import Feed

SHORT: Final = 4  # tokens per row: shorter feeds of a running answer are in every pass
QUANTUM: Final = 64  # tokens per tenant and turn
SMALLEST: Final = 8  # tokens per row of a chunk, unless less is left or the budget is smaller


def due(feed: Feed) -> bool:
    """Whether a feed is short and awaited, and so belongs to every pass."""
    if not feed.whole:
        return False
    before = len(feed.tokens) - _together(feed)
    return before < SHORT if feed.running else before == 0 and feed.logits > 1


def is_step(feed: Feed) -> bool:
    """Whether a feed is a decode step or verifies a proposal."""
    if not (feed.whole and feed.job.running):
        return False
    return len(feed.tokens) == 1 or (feed.logits > 1 and len(feed.tokens) - feed.logits < SHORT)


def _together(feed: Feed) -> int:
    """Last tokens of one common pass."""
    return max(feed.logits, 1)


def _up_to(feed: Feed, tokens: int) -> int:
    return len(feed.tokens) if tokens >= len(feed.tokens) else min(tokens, len(feed.tokens) - _together(feed))


class Batcher:
    """Chooses the feeds of each pass by deficit round robin, in tokens per tenant."""

    def __init__(self) -> None:
        self._owed: dict[Hashable, int] = {}
        self._turn: deque[Hashable] = deque()

    def plan(self, feeds: Sequence[Feed], budget: int) -> list[Feed]:
        """Returns the feeds of one pass, cut to fit.

        At most `budget` tokens join the due steps. A tenant's first feeds come first. The result is only empty without
        feeds.
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
            chosen[behind] = _smallest(feeds[behind], budget)  # one token per row, even beyond the budget
            self._turn.rotate(-1)
        for index, tokens in chosen.items():
            feeds[index].cut(tokens)
        return in_order([feeds[index] for index in chosen])

    def _enter(self, waiting: dict[Hashable, deque[int]]) -> None:
        """A tenant with nothing to feed loses its deficit."""
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
        """Returns the tenant's tokens. Empties `mine` if nothing more fits into this pass."""
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
                break  # its deficit grows until the next turn
            chosen[index] = already + tokens
            spent += tokens * rows
            self._owed[tenant] -= tokens * rows
            if chosen[index] == len(feed.tokens):
                mine.popleft()
        return spent


def _smallest(feed: Feed, budget: int) -> int:
    """Stays within the budget, so that prompts of many rows progress."""
    return _up_to(feed, min(len(feed.tokens), SMALLEST, max(1, budget // len(feed.rows))))


def in_order(feeds: Sequence[Feed]) -> list[Feed]:
    """Drops the feeds after an unfinished feed."""
    whole = {id(feed) for feed in feeds if feed.whole}
    return [feed for feed in feeds if whole.issuperset(map(id, feed.behind))]


# --- budget
# Bounds of prompt tokens, and of steps beyond equal parts.

STRETCH: Final = 0.6  # share of a step by which prompts may lengthen a pass with answers
ALONE_STEPS: Final = 8.0  # steps per pass while no answer is running
FEWEST: Final = 16  # tokens; prompts progress however fast the steps are
MOST: Final = 2048
_NEW: Final = 0.2
_NEW_STEP: Final = 0.05  # weight of a pass in the line of pass time over step tokens
_REMEMBERED: Final = 64  # passes until the measured cost of a further token begins to fade
_FORGOTTEN: Final = 0.02  # weight of the initial guess in each pass from then on
_ALIKE: Final = 1.0  # variance of step tokens below which their cost is unknown
_FREE: Final = 0.1  # share of a pass by which steps beyond equal parts may lengthen it
_UNMEASURED_RATIO: Final = 20.0  # prompt tokens per step time, before any measurement


class PassTimes:
    """Measured seconds of a step and of a prompt token. Starts from a profiled step."""

    def __init__(self, step: float) -> None:
        """`step` is in seconds, above 0."""
        self.step = step
        self.token = step / _UNMEASURED_RATIO
        self.row = step / _UNMEASURED_RATIO  # seconds of a further token of a running answer, in one row
        self._single = 0  # passes since the last one with a further token
        self._line = _StepLine()

    def observe(self, seconds: float, steps: bool, tokens: int, further: int = 0, stepped: int = 0) -> None:
        """Notes a pass of `seconds`, with or without single `steps`.

        `tokens`: prompt tokens. `further`: step tokens beyond the first of each row. `stepped`: all step tokens, in all
        rows.
        """
        if seconds <= 0:
            return
        if stepped and not tokens:
            self._line.observe(stepped, seconds)
        if not tokens:
            if further:
                # A token that costs a full step is worth nothing; a higher measurement is an accident.
                self.row += _NEW * (min(max(seconds - self.step, 0.0) / further, self.step) - self.row)
                self._single = 0
            elif steps:
                self.step += _NEW * (seconds - self.step)
                self._single += 1
                if self._single > _REMEMBERED:  # expensive rows are not decoded and so never measured again
                    self.row += _FORGOTTEN * (self.step / _UNMEASURED_RATIO - self.row)
            return
        beside = max(seconds - (self.step if steps else 0.0), 0.0)
        self.token += _NEW * (beside / tokens - self.token)

    def budget(self, running: bool) -> int:
        """Prompt tokens for the next pass. `running`: some answer is under way."""
        seconds = self.step * (STRETCH if running else ALONE_STEPS)
        if self.token <= 0:
            return MOST
        return max(FEWEST, min(MOST, int(seconds / self.token)))

    def spare(self, stepped: int) -> int:
        """Implements `Costs`."""
        return self._line.spare(stepped)

    def seconds(self, stepped: int, tokens: int) -> float:
        """Implements `Costs`."""
        return self._line.slope * stepped + self.token * tokens


class _StepLine:
    """Least squares with forgetting: seconds of a pass over its step tokens."""

    def __init__(self) -> None:
        self._tokens = self._seconds = self._variance = self._covariance = 0.0

    @property
    def slope(self) -> float:
        """Seconds of one more token. If all passes were alike, this is the mean per token."""
        if not self._tokens:
            return 0.0
        if self._variance <= _ALIKE:
            return self._seconds / self._tokens
        return max(self._covariance / self._variance, 0.0)

    def observe(self, tokens: int, seconds: float) -> None:
        if not self._tokens:
            self._tokens, self._seconds = float(tokens), seconds
            return
        more, longer = tokens - self._tokens, seconds - self._seconds
        self._tokens += _NEW_STEP * more
        self._seconds += _NEW_STEP * longer
        self._variance = (1 - _NEW_STEP) * (self._variance + _NEW_STEP * more * more)
        self._covariance = (1 - _NEW_STEP) * (self._covariance + _NEW_STEP * more * longer)

    def spare(self, tokens: int) -> int:
        """Tokens to lengthen a pass by a share of `_FREE`, at most `MOST`."""
        slope = self.slope
        whole = max(self._seconds + slope * (tokens - self._tokens), slope * tokens)
        if not self._tokens:
            return 0
        return MOST if slope * MOST <= _FREE * whole else int(_FREE * whole / slope)


# --- peer_shares
# Shares of passes: a tenant with many answers does not slow down a tenant with few.
#
# Each tenant gets as many steps as the tenant with the fewest, and more only where that costs almost nothing. A tenant
# with several answers and much recent work is held back while another wants anything, except for a small part of the
# time.
#
# The idea follows virtual token counters (Sheng et al., Fairness in Serving Large Language Models, 2024). Here counters
# are the seconds by which a tenant lengthens passes, and they fade. So constant requests do not slow down an occasional
# tenant.

REST: Final = 0.05  # seconds for held tenants per second of others
_FADES: Final = 0.002  # weight of a pass in a tenant's use: about a hundred passes count
_GONE: Final = 1e-4  # share of all seconds below which an idle tenant is forgotten


class Costs(Protocol):
    """Measured seconds of passes. Tokens count once per row."""

    def spare(self, stepped: int) -> int:
        """Further step tokens of a pass with `stepped` at almost no cost."""

    def seconds(self, stepped: int, tokens: int) -> float:
        """Cost of `stepped` step tokens and `tokens` prompt tokens beyond an empty pass."""


class TenantShares:
    """Tenants' shares of the passes, and the tenants to hold back."""

    def __init__(self) -> None:
        self._had: dict[Hashable, float] = {}  # recent shares of passes' extra seconds
        self._behind: Set[Hashable] = frozenset()  # tenants that have had too much
        self._rest = 0.0  # seconds that they may have now; at 0 and below they are held back
        self._next: dict[Hashable, int] = {}  # index of a tenant's next step, if it has too many

    def held(self, asking: Mapping[Hashable, int]) -> Set[Hashable]:
        """Returns the tenants to hold back in the next pass, if another wants something.

        `asking` counts the answers of each tenant.
        """
        self._behind = self._find_behind(asking) if len(asking) > 1 else frozenset()
        return self._behind if self._rest <= 0 else frozenset()

    def admitted(self, feeds: Sequence[Feed], costs: Costs) -> list[Feed]:
        """The feeds admitted to this pass; at least one if there are any."""
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
        """Counts a pass of `seconds`. `tenants` wanted something and were not held back."""
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
        """Returns the tenants with more answers than others and too large a share.

        Too large is more than half way from an equal share to the largest. So a tenant that wants little is never among
        them.
        """
        fewest = min(asking.values())
        level = (1 / len(asking.keys() | self._had.keys()) + max(self._had.values(), default=0.0)) / 2
        return {tenant for tenant, answers in asking.items() if answers > fewest and self._had.get(tenant, 0.0) > level}

    def _steps(self, steps: dict[Hashable, list[Feed]], spare: Callable[[int], int]) -> list[Feed]:
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
    """Most tokens per tenant: the smallest wish and an equal part of free tokens."""
    level = min(wanted)
    left = spare(level * len(wanted))
    more = sorted(each for each in wanted if each > level)
    while more and left >= len(more):
        step = min(more[0] - level, left // len(more))
        level, left = level + step, left - step * len(more)
        more = [each for each in more if each > level]
    return level
