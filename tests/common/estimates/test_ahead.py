"""Lengths and branches that a side decodes ahead: which are worth their price, and how many a connection carries."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.estimates.estimators import (
    FAINT,
    Allowance,
    DecodeDelay,
    DecodeLine,
    PeerModel,
    RoundTripTime,
    SpeculationLimits,
    limit_speculation,
)

MOST = 8
USUAL, NORMAL, INFLATED = 0.1, 0.12, 0.5  # seconds of round trips
HIGHEST = 1_000.0  # branches per second

seconds = st.floats(0.0, 10.0)
above_zero = st.floats(1e-4, 10.0)
odd = st.one_of(st.sampled_from([0.0, 5e-324, 1e-12, 1e12, 1e300, 1.7e308]), st.floats(0.0, 1.7e308))


class TestBranches:
    def test_a_rejection_that_costs_much_is_met_with_branches_that_cost_little(self) -> None:
        found = limit_speculation(16, MOST, own=0.01, other=0.02, trip=0.3, row=0.001)
        assert found.branching and found.max_rows == MOST and found.max_drafts == 16
        assert found.min_chance == pytest.approx(0.05)
        assert limit_speculation(16, MOST, own=0.02, other=0.02, trip=0.3, row=0.002).min_chance == pytest.approx(0.1)

    @given(st.integers(2, 64), st.integers(2, 64), seconds, seconds, seconds, seconds)
    def test_never_where_nothing_is_saved(
        self, drafts: int, most: int, own: float, slower: float, trip: float, row: float
    ) -> None:
        """The other side is slower by more than a rejection waits, or this one decides and is twice as fast."""
        other = own + trip + slower if trip else 2 * own + slower
        assert limit_speculation(drafts, most, own, other, trip, row) == SpeculationLimits(drafts)

    @given(seconds, seconds, seconds, seconds)
    def test_never_at_run_ahead_1(self, own: float, other: float, trip: float, row: float) -> None:
        assert limit_speculation(1, MOST, own, other, trip, row) == SpeculationLimits(1)

    @given(st.integers(1, 64), seconds, seconds, seconds, seconds)
    def test_never_in_steps_of_one_prefix(self, drafts: int, own: float, other: float, trip: float, row: float) -> None:
        assert limit_speculation(drafts, 1, own, other, trip, row) == SpeculationLimits(drafts)

    @given(seconds, seconds, seconds, st.floats(0.0, 1.0))
    def test_never_where_a_row_costs_more_than_it_saves(
        self, own: float, faster: float, trip: float, more: float
    ) -> None:
        """This side is not the faster, so that no row is free."""
        other = max(0.0, own - faster)
        assert not limit_speculation(16, MOST, own, other, trip, own + more + 1e-6).branching

    @given(seconds, seconds, seconds, above_zero)
    def test_free_rows_only_where_this_side_is_the_faster(
        self, own: float, other: float, trip: float, row: float
    ) -> None:
        found = limit_speculation(16, MOST, own, other, trip, row)
        assert found.free_branches <= max(0.0, other - own) / row
        assert found.free_branches <= MOST

    def test_what_fits_into_the_other_sides_step_is_free(self) -> None:
        found = limit_speculation(16, MOST, own=0.010, other=0.0145, trip=0.3, row=0.001)
        assert found.free_branches == 4
        dear = limit_speculation(16, MOST, own=0.010, other=0.050, trip=0.1, row=0.030)
        assert dear.free_branches == 1 and dear.min_chance == pytest.approx(0.6)

    @given(seconds, seconds, above_zero, above_zero, st.floats(1.0, 100.0))
    def test_the_dearer_a_row_the_fewer(self, own: float, other: float, trip: float, row: float, factor: float) -> None:
        cheap, dear = (limit_speculation(16, MOST, own, other, trip, each) for each in (row, row * factor))
        assert (
            dear.min_chance >= cheap.min_chance
            and dear.free_branches <= cheap.free_branches
            and dear.max_rows <= cheap.max_rows
        )
        nothing = limit_speculation(16, MOST, own, other, trip, 0.0)
        assert (
            nothing.min_chance <= cheap.min_chance
            and nothing.free_branches >= cheap.free_branches
            and nothing.max_rows >= cheap.max_rows
        )

    @given(seconds, seconds, above_zero, above_zero, st.floats(1.0, 100.0))
    def test_the_longer_the_trip_the_more(
        self, own: float, other: float, trip: float, row: float, factor: float
    ) -> None:
        near, far = (limit_speculation(16, MOST, own, other, each, row) for each in (trip, trip * factor))
        assert (
            far.min_chance <= near.min_chance
            and far.free_branches >= near.free_branches
            and far.max_rows >= near.max_rows
        )

    @given(st.integers(1, 300), st.integers(1, 300), odd, odd, odd, odd)
    def test_odd_times(self, drafts: int, most: int, own: float, other: float, trip: float, row: float) -> None:
        found = limit_speculation(drafts, most, own, other, trip, row)
        assert found.max_drafts == drafts
        assert 1 <= found.max_rows <= most and 0 <= found.free_branches <= most
        if found.branching:
            assert FAINT <= found.min_chance <= 1.0
        else:
            assert found == SpeculationLimits(drafts)

    def test_mutant_a_price_without_what_it_buys(self) -> None:
        def priced(drafts: int, most: int, own: float, other: float, trip: float, row: float) -> SpeculationLimits:
            return replace(limit_speculation(drafts, most, own, other, trip, row), min_chance=max(FAINT, row))

        def weighs_the_step(rule: Callable[[int, int, float, float, float, float], SpeculationLimits]) -> bool:
            short, long = (rule(16, MOST, step, step, 0.3, 0.01) for step in (0.02, 0.06))
            return long.min_chance < short.min_chance

        assert weighs_the_step(limit_speculation)
        assert not weighs_the_step(priced)


class TestModel:
    """Rules of decoding ahead by the estimates of a connection."""

    def model(self, own: float, other: float) -> PeerModel:
        return PeerModel("device", DecodeDelay(DecodeLine.of(0.0, own, 256.0)), DecodeLine.of(0.0, other, 256.0))

    def test_as_many_prefixes_as_the_connection_carries(self) -> None:
        model = self.model(0.02, 0.02)
        for rate, rows in ((1.0, 1), (60.0, 2), (200.0, 5), (1e6, MOST), (math.inf, MOST)):
            assert model.ahead(0.4, 64, 0.3, MOST, 0.0001, rate).max_rows == rows, rate

    def test_none_before_the_link_is_known_or_where_they_are_of_no_use(self) -> None:
        model = self.model(0.02, 0.02)
        assert not model.ahead(None, 64, 0.3, MOST, 0.0001, 1e6).branching
        assert not model.ahead(0.4, 64, None, MOST, 0.0001, 1e6).branching

    @pytest.mark.parametrize("own", [0.0, 1e-300, 1e6])
    @pytest.mark.parametrize("rate", [0.0, 1.0, math.inf])
    def test_odd_steps(self, own: float, rate: float) -> None:
        """A line may foresee steps of no time at all."""
        found = self.model(own, 0.02).ahead(0.4, 64, 0.3, MOST, 0.0001, rate)
        assert 1 <= found.max_rows <= MOST


class TestAllowance:
    def test_grows_while_round_trips_are_normal_and_is_bounded(self) -> None:
        allowance, now, rates = Allowance(), 100.0, [Allowance().rate]
        for _ in range(40):
            allowance.observe(now, NORMAL, USUAL, 0)
            rates.append(allowance.rate)
            now += 1.0
        assert all(later > sooner or later == HIGHEST for sooner, later in pairwise(rates))
        assert rates[-1] == HIGHEST

    def test_falls_while_they_are_inflated_and_is_bounded(self) -> None:
        allowance, now, rates = Allowance(), 100.0, [Allowance().rate]
        for _ in range(40):
            allowance.observe(now, INFLATED, USUAL, 0)
            rates.append(allowance.rate)
            now += 1.0
        assert all(later < sooner or later == 1.0 for sooner, later in pairwise(rates))
        assert rates[-1] == 1.0

    @given(
        st.lists(st.tuples(st.floats(0.0, 2.0), odd, odd), max_size=60),
    )
    def test_bounds_whatever_is_measured(self, looks: list[tuple[float, float, float]]) -> None:
        allowance, now = Allowance(), 0.0
        for pause, trip, usual in looks:
            now += pause
            allowance.observe(now, trip, usual, 0)
            assert 1.0 <= allowance.rate <= HIGHEST

    def test_comes_back_after_a_full_link(self) -> None:
        allowance, now = Allowance(), 0.0
        for trip in [INFLATED] * 20 + [NORMAL] * 100:
            allowance.observe(now, trip, USUAL, 0)
            now += 1.0
        assert allowance.rate == HIGHEST

    def test_noise_of_a_short_link_says_nothing(self) -> None:
        """A millisecond that becomes ten: a busy processor, no queue."""
        allowance = Allowance()
        allowance.observe(1.0, 0.010, 0.001, 0)
        assert allowance.rate > Allowance().rate

    @given(trip=st.sampled_from([0.001, 0.04, NORMAL, INFLATED]), pause=st.floats(0.001, 0.05))
    def test_one_change_per_round_trip_at_most(self, trip: float, pause: float) -> None:
        assert self.changes(Allowance(), trip, pause) <= 2.0 / max(trip, 0.05) + 1

    def test_mutant_a_change_with_every_look(self) -> None:
        class Hasty(Allowance):
            def observe(self, now: float, trip: float, usual: float, changes: int) -> None:
                self._next = now
                super().observe(now, trip, usual, changes)

        assert self.changes(Hasty(), INFLATED, 0.02) > 2.0 / INFLATED + 1

    @staticmethod
    def changes(allowance: Allowance, trip: float, pause: float) -> int:
        """Changes in two seconds of looks, each followed by `pause`."""
        allowance.rate, now, changes = 200.0, 0.0, 0
        while now < 2.0:
            before = allowance.rate
            allowance.observe(now, trip, USUAL, 0)
            changes += allowance.rate != before
            allowance.rate = 200.0  # so that no bound hides a change
            now += pause
        return changes


@dataclass
class Route:
    """A link that carries `rate` bytes per second; `trip` is its round trip without a queue by the time, in seconds."""

    trip: Callable[[float], float]
    rate: float = math.inf
    chain: float = 0.0  # bytes per second that are sent beside branches, if the link carries them


STILL = Route(lambda now: 0.3)
BRANCH, DECODED = 100.0, 350.0  # bytes; branches per second that are decoded where they may be
WINDOW = 2200.0  # bytes of the chain that are sent before a verdict is waited for


def swinging(share: float, period: float) -> Route:
    return Route(lambda now: 0.3 * (1.0 + share * math.sin(2.0 * math.pi * now / period)))


def travelled(
    route: Route, allowance: Allowance, estimate: RoundTripTime | None = None, spikes: float = 0.0
) -> Travelled:
    """Three minutes of an answer on such a link, without the first ten seconds, in which the rate is found.

    With every ninth second a probe is answered later by up to `spikes` seconds: an answer begins.
    """
    draw = np.random.default_rng(5)
    estimate, replies = estimate or RoundTripTime(), deque[tuple[float, float]]()
    queue, found, step = 0.0, Travelled([], []), 0.01
    for number in range(18_000):
        now = number * step
        wait = queue / route.rate
        trip = route.trip(now) + wait
        branches = min(allowance.rate, DECODED)
        sent = min(route.chain, WINDOW / trip) + BRANCH * branches
        queue = max(0.0, queue + (sent - route.rate) * step) if math.isfinite(route.rate) else 0.0
        if number % 50 == 0:
            late = draw.uniform(0.0, spikes) if number % 900 == 0 else 0.0
            replies.append((now + trip + late, trip + late))
        while replies and replies[0][0] <= now:
            estimate.observe(replies.popleft()[1])
        if estimate.estimate is not None and estimate.usual is not None:
            allowance.observe(now, estimate.estimate, estimate.usual, estimate.changes)
        if now > 10.0:
            found.branches.append(branches)
            found.waits.append(wait)
    return found


@dataclass
class Travelled:
    """Branches per second, and seconds in the queue, hundred times a second."""

    branches: list[float]
    waits: list[float]


class Doubling(Allowance):
    """Forgets what was too much."""

    def observe(self, now: float, trip: float, usual: float, changes: int) -> None:
        super().observe(now, trip, usual, changes)
        self._enough = math.inf


class Shortest(RoundTripTime):
    """Takes the shortest round trip for the usual one."""

    @property
    def usual(self) -> float | None:
        return min(self._latest, default=None)


class Remembering(RoundTripTime):
    """Takes round trips of another way for usual."""

    def _start(self) -> None:
        before = list(getattr(self, "_latest", ()))
        super()._start()
        self._latest.extend(before)


class Trusting(Allowance):
    """Takes it that the way has become another one by itself."""

    def observe(self, now: float, trip: float, usual: float, changes: int) -> None:
        super().observe(now, trip, usual, 0)


def limited(chain: float) -> Route:
    """100 kb/s, of which the chain takes so much."""
    return Route(lambda now: 0.1, 12_500.0, chain * 12_500.0)


class TestOnALink:
    @pytest.mark.parametrize("route", [STILL, swinging(0.2, 62.8), swinging(0.2, 20.0), swinging(0.2, 5.0)])
    def test_a_way_that_grows_by_itself_carries_what_it_did(self, route: Route) -> None:
        assert min(travelled(route, Allowance()).branches) == DECODED
        assert mean(travelled(route, Allowance(), spikes=0.3).branches) > 0.95 * DECODED

    def test_another_way_carries_as_much_soon(self) -> None:
        route = Route(lambda now: 0.002 if now < 60.0 else 0.3)
        assert mean(travelled(route, Allowance()).branches) > 0.9 * DECODED
        assert mean(travelled(route, Allowance(), Remembering()).branches) < 0.7 * DECODED

    def test_a_way_that_is_another_one_with_every_second_carries_half_of_it(self) -> None:
        levels = np.random.default_rng(1).uniform(0.55, 1.45, 200)
        assert mean(travelled(Route(lambda now: 0.3 * float(levels[int(now)])), Allowance()).branches) > 0.5 * DECODED

    @pytest.mark.parametrize("chain", [0.4, 0.9, 1.02])
    def test_a_slow_link_is_not_filled(self, chain: float) -> None:
        waits, doubling = (mean(travelled(limited(chain), each).waits) for each in (Allowance(), Doubling()))
        assert waits < 0.6 and doubling > 1.5 * waits

    def test_mutant_the_shortest_for_the_usual(self) -> None:
        assert min(travelled(swinging(0.2, 62.8), Allowance(), Shortest()).branches) < 0.1 * DECODED

    def test_mutant_a_full_link_taken_for_another_way(self) -> None:
        assert mean(travelled(limited(1.02), Trusting()).waits) > 5.0
