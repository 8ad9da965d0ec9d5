"""The choice after each position: Table 1 with the price of moving the role, against the pipelines event by event."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.estimates.policy import (
    OUTCOMES,
    Estimates,
    best_after,
    best_first,
    latency_per_token,
    relative_value,
    wait_for_next,
)
from proto.messages import Placement, Side
from scripts.simulation.scenario import Rates, Scatter, Scenario, Way, simulate

EVEN = Estimates(0.05, 0.05, 0.3, 0.85, 0.85)
seconds = st.floats(1e-3, 1.0)
shares = st.floats(0.0, 1.0)
estimates = st.builds(Estimates, seconds, seconds, st.floats(0.0, 2.0), shares, shares)


def mirrored(known: Estimates) -> Estimates:
    return Estimates(
        known.cloud_decode, known.device_decode, known.rtt, known.cloud_acceptance, known.device_acceptance
    )


class TestWaits:
    def test_a_rejected_side_that_takes_the_role_saves_the_way_back(self) -> None:
        assert wait_for_next(EVEN, "device", "device", (True, False)) == pytest.approx(0.05 + 0.3)
        assert wait_for_next(EVEN, "device", "cloud", (True, False)) == pytest.approx(0.05 + 0.15)

    def test_moving_after_two_accepted_drafts_costs_one_way(self) -> None:
        assert wait_for_next(EVEN, "cloud", "cloud", (True, True)) == pytest.approx(0.05)
        assert wait_for_next(EVEN, "cloud", "device", (True, True)) == pytest.approx(0.05 + 0.15)

    def test_a_rejected_aggregator_that_stays_waits_for_nobody(self) -> None:
        assert wait_for_next(EVEN, "device", "device", (False, True)) == pytest.approx(0.05)
        assert wait_for_next(EVEN, "device", "cloud", (False, True)) == pytest.approx(0.05 + 0.15)

    @given(known=estimates)
    def test_staying_is_eq_7_where_the_local_side_is_not_the_slower_one(self, known: Estimates) -> None:
        known = replace(known, device_decode=min(known.device_decode, known.cloud_decode))
        chance = known.cloud_acceptance
        waits = [wait_for_next(known, "device", "device", (True, right)) for right in (True, False)]
        expected = latency_per_token(known.device_decode, known.cloud_decode, known.rtt, chance)
        assert chance * waits[0] + (1 - chance) * waits[1] == pytest.approx(expected)

    def test_a_slow_aggregator_makes_up_for_stalls_of_a_fast_side(self) -> None:
        """At 150/50 a rejection stalls for 200 ms beyond the step; it is won back at 100 ms per token."""
        certain = Estimates(0.15, 0.05, 0.3, 1.0, 1.0)
        assert wait_for_next(certain, "device", "device", (True, False)) == pytest.approx(0.15, abs=1e-3)
        never = replace(certain, device_acceptance=0.0)
        assert wait_for_next(never, "device", "device", (True, False)) == pytest.approx(0.35)


class TestChoice:
    @given(known=estimates, accepted=st.tuples(st.booleans(), st.booleans()))
    def test_sides_are_alike(self, known: Estimates, accepted: tuple[bool, bool]) -> None:
        """Device and cloud exchanged, the choice is exchanged; values are opposite."""
        value, other = relative_value(known), relative_value(mirrored(known))
        assert value == pytest.approx(-other, abs=1e-6)
        if best_after("device", known, accepted) == "device":
            assert best_after("cloud", mirrored(known), accepted[::-1]) == "cloud"

    def test_the_role_follows_the_rejected_side(self) -> None:
        choices = {accepted: best_after("device", EVEN, accepted) for accepted in OUTCOMES}
        assert choices[True, False] == "cloud"
        assert choices[True, True] == choices[False, True] == "device"

    def test_nothing_moves_on_a_network_without_delay(self) -> None:
        near = Estimates(0.15, 0.05, 0.0, 0.5, 0.5)
        for side, accepted in product(("device", "cloud"), OUTCOMES):
            assert best_after(side, near, accepted) == side  # type: ignore[arg-type]

    @pytest.mark.parametrize(("rates", "side"), [((0.0, 1.0), "device"), ((1.0, 0.0), "cloud")])
    def test_a_side_that_is_always_rejected_keeps_the_role(self, rates: tuple[float, float], side: Side) -> None:
        known = Estimates(0.05, 0.05, 0.3, *rates)
        value = relative_value(known)
        assert value > 0 if side == "device" else value < 0
        for accepted in OUTCOMES:
            assert best_after(side, known, accepted) == side


class TestFirst:
    @pytest.mark.parametrize("rates", [(0.92, 0.94), (0.94, 0.92), (0.85, 0.85), (0.5, 0.5)])
    def test_the_cloud_begins_where_nothing_speaks_for_either_side(self, rates: tuple[float, float]) -> None:
        """It decides one way sooner, and the first rejection of a device's draft takes the role back for nothing."""
        for rtt in (0.01, 0.1, 0.3):
            assert best_first(Estimates(0.05, 0.05, rtt, *rates)) == "cloud"

    def test_the_device_begins_where_all_is_accepted(self) -> None:
        assert best_first(Estimates(0.05, 0.05, 0.3, 1.0, 1.0)) == "device"

    def test_a_slow_device_begins(self) -> None:
        """It drafts on while the first draft of the cloud is under way, and decides at the cloud's pace then."""
        assert best_first(Estimates(0.15, 0.05, 0.3, 0.9, 0.9)) == "device"

    def test_nothing_is_gained_without_delay(self) -> None:
        assert best_first(Estimates(0.15, 0.05, 0.0, 0.5, 0.5)) == "device"


class TestInSimulation:
    """Four answers of 60 tokens each: the gain is many times what their noise explains."""

    @staticmethod
    def mean(device: int, cloud: int, rates: Rates, paper_rule: bool, placement: Placement) -> float:
        one, other = device / 1e3, cloud / 1e3
        scenario = Scenario(one, other, Way(0.3), rates, placement, 60, paper_rule=paper_rule)
        return fmean(simulate(scenario, seed).seconds for seed in range(4))

    def test_beats_both_fixed_sides_and_the_papers_rule(self) -> None:
        rates = Rates(0.85, 0.86, 0.73)
        ours = self.mean(50, 50, rates, False, "greedy")
        others: tuple[tuple[Placement, bool], ...] = (("device", False), ("cloud", False), ("greedy", True))
        for placement, paper_rule in others:
            assert ours < 0.95 * self.mean(50, 50, rates, paper_rule, placement)

    def test_short_answers_gain_as_much(self) -> None:
        """Of 17 tokens, one or two rejected: what the first rejection costs decides.

        60 answers each; the standard error of a paired mean difference is below 0.05 s, the gain 0.15 s.
        """

        def mean(placement: Placement) -> float:
            step, way = 0.05, Way(0.001, 0.3, Scatter(0.1))
            rates = Rates.independent(0.92, 0.94)
            scenario = Scenario(step, step, way, rates, placement, 17, earlier=rates.draw(100, 99))
            return fmean(simulate(scenario, seed).seconds for seed in range(60))

        greedy, device, mirrored = mean("greedy"), mean("device"), mean("mirrored")
        assert greedy < device - 0.1
        assert greedy < 1.02 * mirrored
