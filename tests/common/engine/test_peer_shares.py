"""Shares of passes on a virtual machine: who asks now and then is not slowed down, and nothing is left undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.engine.batcher import REST, Batcher, PassTimes, TenantShares
from common.engine.model.packed import Feed
from tests.support.feeds import feed

ROWS: Final = 4
STEPS: Final = 24  # of an answer
PAUSE: Final = 100  # milliseconds between two answers of a polite peer

FEEDS = st.lists(
    st.builds(feed, st.sampled_from("abcd"), st.integers(1, 8), st.integers(1, 300), st.booleans()), max_size=12
)


@dataclass(frozen=True)
class Fixed:
    """Costs that are known."""

    slope: float = 0.001
    token: float = 0.0005
    free: int = 0

    def spare(self, stepped: int) -> int:
        return self.free

    def seconds(self, stepped: int, tokens: int) -> float:
        return self.slope * stepped + self.token * tokens


def step(peer: Hashable, rows: int = ROWS) -> Feed:
    return feed(peer, rows, 1, True)


def noted(shares: TenantShares, feeds: Sequence[Feed], seconds: float) -> None:
    """A pass of all of them, each fed whole."""
    shares.note({each.job.tenant for each in feeds}, feeds, seconds, Fixed())


def asked(shares: TenantShares, feeds: Sequence[Feed]) -> list[Feed]:
    """The feeds of those that are not held back."""
    held = shares.held(Counter(each.job.tenant for each in feeds))
    return [each for each in feeds if each.job.tenant not in held]


def places(feeds: Sequence[Feed], chosen: Sequence[Feed]) -> list[int]:
    return [feeds.index(each) for each in chosen]


def served(shares: TenantShares, feeds: Sequence[Feed], costs: Fixed, seconds: float) -> list[int]:
    """A pass of all that may have a part of it; the places of what was fed."""
    mine = asked(shares, feeds)
    admitted = shares.admitted(mine, costs)
    shares.note({each.job.tenant for each in mine}, admitted, seconds, costs)
    return places(feeds, admitted)


class TestAdmitted:
    @settings(max_examples=300)
    @given(st.lists(FEEDS, max_size=8), st.sampled_from([Fixed(), Fixed(free=9), Fixed(0.0, 0.0, 2048)]))
    def test_something_is_fed_whenever_there_is_something(self, turns: list[list[Feed]], costs: Fixed) -> None:
        shares = TenantShares()
        for wishes in turns:
            admitted = served(shares, wishes, costs, 0.01)
            assert bool(admitted) == bool(wishes)
            assert admitted == sorted(set(admitted))

    def test_a_peer_alone_gets_all(self) -> None:
        wishes = [step("one") for _ in range(16)]
        shares = TenantShares()
        for _ in range(1000):
            assert len(served(shares, wishes, Fixed(), 0.1)) == 16

    def test_equal_parts_and_all_in_turn(self) -> None:
        """Before anybody has had more than the other."""
        wishes = [step("many") for _ in range(6)] + [step("few")]
        shares, fed = TenantShares(), Counter[int]()
        for _ in range(12):
            admitted = places(wishes, shares.admitted(wishes, Fixed()))
            assert 6 in admitted and len(admitted) == 2
            fed.update(admitted)
        assert [fed[index] for index in range(6)] == [2] * 6

    def test_what_costs_nothing_is_not_shared_out(self) -> None:
        """A pass that takes as long with many rows as with few."""
        wishes = [step("many") for _ in range(16)] + [step("few")]
        costs, shares = Fixed(0.0, 0.0, 2048), TenantShares()
        for _ in range(1000):
            assert len(served(shares, wishes, costs, 0.02)) == len(wishes)

    def test_a_large_step_is_not_held_back_for_ever(self) -> None:
        wishes = [feed("large", 64, 3, True), step("small", 1)]
        assert TenantShares().admitted(wishes, Fixed()) == wishes


class TestRest:
    """One that always wants everything, beside one that has just come."""

    @staticmethod
    def grown(shares: TenantShares, wishes: list[Feed]) -> None:
        for _ in range(1000):
            noted(shares, wishes, 0.1)

    def test_a_newcomer_goes_first_and_the_others_get_the_rest(self) -> None:
        shares, greedy = TenantShares(), [step("greedy") for _ in range(16)]
        self.grown(shares, greedy)
        wishes = [*greedy, step("new")]
        fed = Counter[str]()
        for number in range(200):
            admitted = served(shares, wishes, Fixed(), 0.004)
            assert 16 in admitted
            assert number or len(admitted) == 1  # nobody else in the first pass: a rest has to come up first
            for index in admitted:
                fed["new" if index == 16 else "greedy"] += ROWS
        assert fed["greedy"] == pytest.approx(REST * fed["new"], rel=0.1)

    def test_what_is_left_does_not_add_up_while_nobody_is_waited_for(self) -> None:
        """Each question of one that asks now and then begins with passes of its own."""
        shares, greedy = TenantShares(), [step("greedy") for _ in range(16)]
        self.grown(shares, greedy)
        for _ in range(20):
            for _ in range(50):
                served(shares, greedy, Fixed(), 0.1)
            assert served(shares, [*greedy, step("new")], Fixed(), 0.01) == [16]

    def test_who_has_had_a_little_more_than_an_equal_part_is_not_behind(self) -> None:
        """Seven that want a ninth each: what is left makes the eighth's part the largest one."""
        shares, draw = TenantShares(), np.random.default_rng(3)
        for _ in range(5000):
            peer = int(draw.integers(9))
            noted(shares, [step("greedy" if peer >= 7 else peer)], 0.01)
        asking: dict[Hashable, int] = {**dict.fromkeys(range(7), 2), "greedy": 16, "new": 1}
        assert max(shares._had[peer] for peer in range(7)) > 1 / len(asking)
        assert shares.held(asking) == {"greedy"}

    def test_one_answer_is_never_held_back(self) -> None:
        """Somebody's answer has been running for long, alone: it goes on beside a question of another one."""
        shares, running = TenantShares(), [step("running")]
        self.grown(shares, running)
        for _ in range(100):
            assert served(shares, [*running, step("new")], Fixed(), 0.01) == [0, 1]

    def test_of_those_that_are_held_back_who_has_had_less_comes_next(self) -> None:
        shares = TenantShares()
        for peer, times in (("some", 300), ("greedy", 700)):
            for _ in range(times):
                noted(shares, [step(peer)], 0.01)
        assert shares.held({"some": 2, "greedy": 9, "new": 1}) == {"greedy"}
        assert shares.held({"some": 2, "greedy": 9}) == {"greedy"}
        assert shares.held({"greedy": 9}) == frozenset()

    def test_prompts_count_too(self) -> None:
        shares, greedy = TenantShares(), [feed("greedy", ROWS, 200, False) for _ in range(16)]
        self.grown(shares, greedy)
        wishes = [*greedy, step("new")]
        part = feed("greedy", ROWS, 200, False)
        part.cut(16)
        passes = 0
        for _ in range(200):
            if asked(shares, wishes) == wishes[16:]:
                noted(shares, wishes[16:], 0.004)
            else:
                noted(shares, [part, wishes[16]], 0.036)
                passes += 1
        assert passes == pytest.approx(200 * REST * 0.004 / 0.032, abs=1)

    def test_who_has_had_much_is_one_of_all_again_after_a_while(self) -> None:
        shares, greedy = TenantShares(), [step("greedy")]
        self.grown(shares, greedy)
        other = [step("other")]
        for _ in range(3000):
            noted(shares, other, 0.01)
        wishes = [step("greedy"), step("greedy"), step("other"), step("other"), step("new")]
        assert served(shares, wishes, Fixed(), 0.01) == [0, 4]  # equal parts of those that are not behind
        for _ in range(1000):
            served(shares, greedy, Fixed(), 0.1)
        assert served(shares, wishes, Fixed(), 0.01) == [2, 4]

    def test_peers_that_are_gone_are_forgotten(self) -> None:
        shares = TenantShares()
        for number in range(2000):
            wishes = [step(number), step(number), step("stays")]
            served(shares, wishes, Fixed(), 0.01)
        wishes = [step("stays")]
        for _ in range(4000):
            served(shares, wishes, Fixed(), 0.01)
        assert list(shares._had) == ["stays"]
        assert not shares._next


@dataclass
class Machine:
    """Serves answers of peers pass by pass; a pass takes `base` seconds and `each` more for every row of a step."""

    base: float = 0.002
    each: float = 0.0005
    shares: TenantShares | None = field(default_factory=TenantShares)

    def polite(self, peers: int, greedy: int, passes: int) -> list[float]:
        """Seconds of the polite peers' answers."""
        draw = np.random.default_rng(7)
        times, batcher, now = PassTimes(0.01), Batcher(), 0.0
        begins = {peer: float(draw.exponential(PAUSE / 1e3)) for peer in range(peers)}
        left: dict[int, int] = {}
        begun: dict[int, float] = {}
        taken = []
        for _ in range(passes):
            for peer, moment in list(begins.items()):
                if moment <= now:
                    del begins[peer]
                    left[peer], begun[peer] = STEPS, moment
            wishes = [step(peer) for peer in left] + [step("greedy") for _ in range(greedy)]
            if not wishes:
                now = min(begins.values())
                continue
            admitted = wishes
            if self.shares is not None:
                wishes = asked(self.shares, wishes)
                admitted = self.shares.admitted(wishes, times)
            fed = batcher.plan(admitted, 64)
            rows = sum(len(each.rows) for each in fed)
            seconds = self.base + self.each * rows
            times.observe(seconds, True, 0, 0, rows)
            if self.shares is not None:
                self.shares.note({each.job.tenant for each in wishes}, fed, seconds, times)
            now += seconds
            for owner in [each.job.tenant for each in fed]:
                if isinstance(owner, int):
                    left[owner] -= 1
                    if not left[owner]:
                        del left[owner]
                        taken.append(now - begun[owner])
                        begins[owner] = now + float(draw.exponential(PAUSE * peers / 1e3))
        return taken


class TestMachine:
    def test_who_asks_now_and_then_is_hardly_slower_beside_one_that_always_asks(self) -> None:
        alone = np.percentile(Machine().polite(7, 0, 20_000), 95)
        beside = np.percentile(Machine().polite(7, 16, 20_000), 95)
        mutant = np.percentile(Machine(shares=None).polite(7, 16, 20_000), 95)
        assert beside < 1.3 * alone
        assert mutant > 3 * alone

    def test_nothing_changes_where_rows_cost_nothing(self) -> None:
        machine = Machine(0.02, 0.0)
        fair = machine.polite(7, 16, 5_000)
        assert fair == Machine(0.02, 0.0, shares=None).polite(7, 16, 5_000)
