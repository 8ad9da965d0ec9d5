"""Shares of passes on a virtual machine: who asks now and then is not slowed down, and nothing is left undone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.engine.batcher import Batcher, Share, Wish
from common.engine.budget import PassTimes
from common.engine.peer_shares import REST, PeerShares

ROWS: Final = 4
STEPS: Final = 24  # of an answer
PAUSE: Final = 100  # milliseconds between two answers of a polite peer

WISHES = st.lists(
    st.builds(Wish, st.sampled_from("abcd"), st.integers(1, 8), st.integers(1, 300), st.booleans()), max_size=12
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


def step(peer: object, rows: int = ROWS) -> Wish:
    return Wish(peer, rows, 1, True)


def whole(wishes: Sequence[Wish], admitted: Sequence[int]) -> list[Share]:
    """All that was admitted, fed."""
    return [Share(index, wishes[index].tokens) for index in admitted]


class TestAdmitted:
    @settings(max_examples=300)
    @given(st.lists(WISHES, max_size=8), st.sampled_from([Fixed(), Fixed(free=9), Fixed(0.0, 0.0, 2048)]))
    def test_something_is_fed_whenever_there_is_something(self, turns: list[list[Wish]], costs: Fixed) -> None:
        shares = PeerShares()
        for wishes in turns:
            admitted = shares.admitted(wishes, costs)
            assert bool(admitted) == bool(wishes)
            assert admitted == sorted(set(admitted))
            shares.note(wishes, whole(wishes, admitted), 0.01, costs)

    def test_a_peer_alone_gets_all(self) -> None:
        wishes = [step("one") for _ in range(16)]
        shares = PeerShares()
        for _ in range(1000):
            admitted = shares.admitted(wishes, Fixed())
            assert len(admitted) == 16
            shares.note(wishes, whole(wishes, admitted), 0.1, Fixed())

    def test_equal_parts_and_all_in_turn(self) -> None:
        """Before anybody has had more than the other."""
        wishes = [step("many") for _ in range(6)] + [step("few")]
        shares, fed = PeerShares(), Counter[int]()
        for _ in range(12):
            admitted = shares.admitted(wishes, Fixed())
            assert 6 in admitted and len(admitted) == 2
            fed.update(admitted)
        assert [fed[index] for index in range(6)] == [2] * 6

    def test_what_costs_nothing_is_not_shared_out(self) -> None:
        """A pass that takes as long with many rows as with few."""
        wishes = [step("many") for _ in range(16)] + [step("few")]
        costs, shares = Fixed(0.0, 0.0, 2048), PeerShares()
        for _ in range(1000):
            admitted = shares.admitted(wishes, costs)
            assert len(admitted) == len(wishes)
            shares.note(wishes, whole(wishes, admitted), 0.02, costs)

    def test_a_large_step_is_not_held_back_for_ever(self) -> None:
        wishes = [Wish("large", 64, 3, True), step("small", 1)]
        assert PeerShares().admitted(wishes, Fixed()) == [0, 1]


class TestRest:
    """One that always wants everything, beside one that has just come."""

    @staticmethod
    def grown(shares: PeerShares, wishes: list[Wish]) -> None:
        for _ in range(1000):
            shares.note(wishes, whole(wishes, range(len(wishes))), 0.1, Fixed())

    def test_a_newcomer_goes_first_and_the_others_get_the_rest(self) -> None:
        shares, greedy = PeerShares(), [step("greedy") for _ in range(16)]
        self.grown(shares, greedy)
        wishes = [*greedy, step("new")]
        fed = Counter[str]()
        for _ in range(200):
            admitted = shares.admitted(wishes, Fixed())
            assert 16 in admitted
            for index in admitted:
                fed["new" if index == 16 else "greedy"] += ROWS
            shares.note(wishes, whole(wishes, admitted), ROWS * len(admitted) * Fixed().slope, Fixed())
        assert fed["greedy"] == pytest.approx(REST * fed["new"], rel=0.1)

    def test_prompts_count_too(self) -> None:
        shares, greedy = PeerShares(), [Wish("greedy", ROWS, 200, False) for _ in range(16)]
        self.grown(shares, greedy)
        wishes = [*greedy, step("new")]
        passes = 0
        for _ in range(200):
            admitted = shares.admitted(wishes, Fixed())
            fed = [Share(index, 1 if index == 16 else 16) for index in admitted if index in (0, 16)]
            shares.note(wishes, fed, 0.004 + 0.032 * (len(fed) - 1), Fixed())
            passes += len(fed) > 1
        assert passes == pytest.approx(200 * REST * 0.004 / 0.032, abs=1)

    def test_who_has_had_much_is_one_of_all_again_after_a_while(self) -> None:
        shares, greedy = PeerShares(), [step("greedy")]
        self.grown(shares, greedy)
        other = [step("other")]
        for _ in range(3000):
            shares.note(other, whole(other, [0]), 0.01, Fixed())
        wishes = [*greedy, *other]
        assert shares._first({"greedy", "other"}) == {"greedy"}
        assert shares.admitted(wishes, Fixed()) == [0, 1]

    def test_peers_that_are_gone_are_forgotten(self) -> None:
        shares = PeerShares()
        for number in range(2000):
            wishes = [step(number), step(number), step("stays")]
            shares.note(wishes, whole(wishes, shares.admitted(wishes, Fixed())), 0.01, Fixed())
        wishes = [step("stays")]
        for _ in range(4000):
            shares.note(wishes, whole(wishes, [0]), 0.01, Fixed())
        assert list(shares._had) == ["stays"]
        assert not shares._next


@dataclass
class Machine:
    """Serves answers of peers pass by pass; a pass takes `base` seconds and `each` more for every row of a step."""

    base: float = 0.002
    each: float = 0.0005
    shares: PeerShares | None = field(default_factory=PeerShares)

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
            order = list(left)
            wishes = [step(peer) for peer in order] + [step("greedy") for _ in range(greedy)]
            if not wishes:
                now = min(begins.values())
                continue
            admitted = list(range(len(wishes))) if self.shares is None else self.shares.admitted(wishes, times)
            chosen = batcher.plan([wishes[index] for index in admitted], 64)
            fed = [Share(admitted[share.wish], share.tokens) for share in chosen]
            rows = sum(wishes[share.wish].rows for share in fed)
            seconds = self.base + self.each * rows
            times.observe(seconds, True, 0, 0, rows)
            if self.shares is not None:
                self.shares.note(wishes, fed, seconds, times)
            now += seconds
            for share in fed:
                if share.wish < len(order):
                    peer = order[share.wish]
                    left[peer] -= 1
                    if not left[peer]:
                        del left[peer]
                        taken.append(now - begun[peer])
                        begins[peer] = now + float(draw.exponential(PAUSE * peers / 1e3))
        return taken


class TestMachine:
    def test_who_asks_now_and_then_is_hardly_slower_beside_one_that_always_asks(self) -> None:
        alone = np.percentile(Machine().polite(7, 0, 20_000), 95)
        beside = np.percentile(Machine().polite(7, 16, 20_000), 95)
        mutant = np.percentile(Machine(shares=None).polite(7, 16, 20_000), 95)
        assert beside < 1.5 * alone  # a pass that has begun is waited for
        assert mutant > 3 * alone

    def test_nothing_changes_where_rows_cost_nothing(self) -> None:
        machine = Machine(0.02, 0.0)
        fair = machine.polite(7, 16, 5_000)
        assert fair == Machine(0.02, 0.0, shares=None).polite(7, 16, 5_000)
