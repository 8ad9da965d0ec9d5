"""Simulated answers where the latency can be computed by hand (DRAGON Appendix A.3).

Times are milliseconds here.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from statistics import mean
from typing import Any

import pytest

from proto.messages import Placement
from scripts.simulation.scenario import (
    Answer,
    Rates,
    Scatter,
    Scenario,
    SimulatedAnswer,
    Sinusoid,
    StepCosts,
    Way,
    simulate,
)

FREE = StepCosts(0.0, 0.0)
TOKENS = 64


def scenario(device: float, cloud: float, rtt: float, device_right: float, cloud_right: float, **more: Any) -> Scenario:
    rates = Rates.independent(device_right, cloud_right)
    settings: dict[str, Any] = {"tokens": TOKENS, "work": FREE, **more}
    return Scenario(device / 1e3, cloud / 1e3, Way(rtt / 1e3), settings.pop("acceptance", rates), **settings)


def period(outcome: SimulatedAnswer) -> float:
    """Milliseconds per token once the answer runs: over its last quarter."""
    start = 3 * len(outcome.times) // 4
    return 1e3 * (outcome.times[-1] - outcome.times[start - 1]) / (len(outcome.times) - start)


def by_hand(local: float, remote: float, rtt: float, remote_right: bool) -> float:
    """Appendix A.3, i-iii, and Figure 13: only a rejection at the remote side costs a round trip."""
    return max(local, remote) if remote_right else max(local, remote + rtt)


class TestPipelines:
    @pytest.mark.parametrize(("device", "cloud"), [(150, 50), (50, 50), (20, 10), (50, 100), (400, 50)])
    @pytest.mark.parametrize("device_right", [True, False])
    @pytest.mark.parametrize("cloud_right", [True, False])
    def test_each_case_repeated_gives_the_formula(
        self, device: int, cloud: int, device_right: bool, cloud_right: bool
    ) -> None:
        given = scenario(device, cloud, 300, device_right, cloud_right)
        at_device = simulate(given, 1)
        assert period(at_device) == pytest.approx(by_hand(device, cloud, 300, cloud_right), abs=1e-6)
        at_cloud = simulate(replace(given, placement="cloud"), 1)
        assert period(at_cloud) == pytest.approx(by_hand(cloud, device, 300, device_right), abs=1e-6)

    @pytest.mark.parametrize(("device", "cloud"), [(150, 50), (20, 10), (50, 100)])
    def test_synchronous_is_the_slower_side_and_a_round_trip(self, device: int, cloud: int) -> None:
        """DRDG/TW: the targets' side needs its own draft, and the other one's after a round trip."""
        outcome = simulate(scenario(device, cloud, 300, 1, 1, synchronous=True), 1)
        assert period(outcome) == pytest.approx(max(device, cloud + 300), abs=1e-6)

    def test_mirrored_restarts_one_way_after_the_other_draft(self) -> None:
        """A rejected side knows the target when the other one's draft is there, not a round trip later."""
        rejected = simulate(scenario(20, 20, 300, 0, 0, placement="mirrored"), 1)
        assert period(rejected) == pytest.approx(20 + 150, abs=1e-6)
        assert period(simulate(scenario(20, 10, 300, 1, 1, placement="mirrored"), 1)) == pytest.approx(20, abs=1e-6)

    def test_first_token_waits_for_the_later_side(self) -> None:
        """Open goes one way, the cloud decodes, its draft goes one way."""
        assert simulate(scenario(20, 10, 300, 1, 1), 1).ttft == pytest.approx(0.15 + 0.01 + 0.15)
        assert simulate(scenario(400, 10, 300, 1, 1), 1).ttft == pytest.approx(0.4)

    def test_work_beside_the_model_adds_up(self) -> None:
        """Steps take longer; a rejection costs the overhead of a step and of two messages."""
        work = StepCosts(step=0.002, message=0.005)
        assert period(simulate(scenario(20, 10, 300, 1, 1, work=work), 1)) == pytest.approx(22, abs=1e-6)
        assert period(simulate(scenario(20, 10, 300, 1, 0, work=work), 1)) == pytest.approx(322, abs=1e-6)


class TestPublishedTable:
    """Means of two answers of 150 tokens, against an independent simulation's: to its rounding and their noise."""

    PAPER, RACE = Rates(0.48, 0.48, 0.03), Rates(0.89, 0.89, 0.79)

    def mean(self, device: int, cloud: int, rates: Rates, placement: Placement) -> float:
        given = scenario(device, cloud, 300, 1, 1, acceptance=rates, placement=placement, tokens=150)
        return 1e3 * mean(simulate(given, seed).per_token for seed in range(2))

    def test_private_placement(self) -> None:
        assert self.mean(150, 50, self.PAPER, "device") == pytest.approx(250, rel=0.12)
        assert self.mean(150, 50, self.RACE, "device") == pytest.approx(154, rel=0.04)
        assert self.mean(50, 50, self.RACE, "device") == pytest.approx(83, rel=0.12)

    def test_mirrored(self) -> None:
        assert self.mean(50, 50, self.RACE, "mirrored") == pytest.approx(66, rel=0.12)


class TestNetwork:
    def test_a_seed_fixes_everything(self) -> None:
        way = Way(0.002, 0.3, Scatter())
        given = replace(scenario(20, 10, 0, 0.8, 0.8), way=way, placement="greedy")
        assert simulate(given, 3) == simulate(given, 3)
        assert simulate(given, 3).times != simulate(given, 4).times

    def test_jitter_swings_the_extra_latency_alone(self) -> None:
        """Synchronous answers show the round trip of the moment: 310 ms in the middle, 250 to 370 at the extremes."""
        way = Way(0.0, 0.3, Sinusoid(period=10.0))
        given = replace(scenario(20, 10, 0, 1, 1, synchronous=True, tokens=200), way=way)
        times = simulate(given, 1).times
        gaps = [1e3 * (later - sooner) for sooner, later in pairwise(times)]
        assert min(gaps) == pytest.approx(250, abs=3)
        assert max(gaps) == pytest.approx(370, abs=3)


class TestScript:
    def test_counts_are_those_of_the_sequence(self) -> None:
        """Every position is judged once, however often drafts of wrong prefixes were thrown away."""
        rates = Rates(0.6, 0.7, 0.4)
        given = scenario(20, 10, 100, 1, 1, acceptance=rates, tokens=TOKENS)
        answer: Answer = rates.draw(TOKENS, 9)
        for placement in ("device", "mirrored"):
            outcome = simulate(replace(given, placement=placement), 9)
            assert outcome.accepted == {"device": sum(p.device for p in answer), "cloud": sum(p.cloud for p in answer)}
            assert outcome.rollbacks["cloud"] == TOKENS - outcome.accepted["cloud"]
            assert outcome.drafted["device"] >= TOKENS

    def test_random_moves_the_aggregation_to_and_fro(self) -> None:
        assert 20 < simulate(scenario(20, 10, 100, 1, 1, placement="random"), 1).switches < 40


class TestKnowledge:
    def test_greedy_decides_by_what_it_has_seen(self) -> None:
        """A side whose drafts are never right has the aggregation; knowing nothing, the answer begins at the cloud."""
        keep = simulate(scenario(50, 50, 300, 1, 0, placement="greedy"), 1)
        give = simulate(scenario(50, 50, 300, 0, 1, placement="greedy"), 1)
        assert (keep.switches, give.switches) == (0, 1)
        assert [period(keep), period(give)] == pytest.approx([50, 50], abs=1e-6)

    def test_run_ahead_follows_the_measured_round_trip(self) -> None:
        """Enough drafts to never wait, though the bound alone would allow 64 useless ones at every rejection."""
        near = simulate(scenario(20, 20, 40, 1, 0), 1)
        bounded = simulate(scenario(20, 20, 40, 1, 0, run_ahead=1), 1)
        assert near.drafted["cloud"] <= 4 * TOKENS
        assert period(near) == period(bounded) == pytest.approx(60, abs=1e-6)


class TestRates:
    @pytest.mark.parametrize("rates", [Rates(0.48, 0.48, 0.03), Rates(0.85, 0.86, 0.73), Rates.independent(0.9, 0.2)])
    def test_each_and_both_are_met(self, rates: Rates) -> None:
        """20,000 positions of a fixed seed: within 4 standard deviations (0.0035 at most) of the rate."""
        drawn = rates.draw(20_000, 5)
        assert mean(p.device for p in drawn) == pytest.approx(rates.device, abs=0.015)
        assert mean(p.cloud for p in drawn) == pytest.approx(rates.cloud, abs=0.015)
        assert mean(p.device and p.cloud for p in drawn) == pytest.approx(rates.both, abs=0.015)

    def test_seeds_differ_and_repeat(self) -> None:
        rates = Rates(0.5, 0.5, 0.25)
        assert rates.draw(64, 1) == rates.draw(64, 1) != rates.draw(64, 2)
