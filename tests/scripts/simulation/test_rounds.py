"""Simulated rounds against the formulas that they should follow where these hold."""

from __future__ import annotations

import numpy as np
import pytest

from common.draft_policy.policy import FixedPlan, Goodput, Heuristic
from common.draft_policy.times import DraftPlan, DraftPolicy, RoundTimes, TokenSizes, ahead_seconds, synchronous_seconds
from scripts.simulation.rounds import (
    HIGH,
    LOW,
    Constant,
    ConstantRate,
    Lattice,
    Recorded,
    RoundScenario,
    Steady,
    SynchronousRounds,
    TwoStateRate,
    Varying,
)
from tests.scripts.simulation.whole_answers import simulate_ahead, simulate_rounds

TIMES = RoundTimes(draft=0.005, verify=0.032)
LATTICE_64 = Constant(720)  # bits: an index of 704 and the token


def scenario(alpha: float, rate: float, tokens: int = 20_000) -> RoundScenario:
    return RoundScenario(TIMES, Steady(alpha), LATTICE_64, ConstantRate(rate), tokens)


class TestSynchronous:
    @pytest.mark.parametrize(
        ("rate", "alpha", "length"), [(LOW, 0.7, 1), (LOW, 0.9, 2), (HIGH, 0.7, 3), (HIGH, 0.9, 6), (HIGH, 0.9, 16)]
    )
    def test_equals_the_closed_form(self, rate: float, alpha: float, length: int) -> None:
        """20,000 tokens in 3,000 rounds or more: E's standard error is below 1.5 %, so 4 % is beyond chance."""
        found = simulate_rounds(scenario(alpha, rate), FixedPlan(length), 1)
        times = RoundTimes(draft=0.005, verify=0.032, up_rate=rate)
        assert 1 / found.throughput == pytest.approx(synchronous_seconds(times, alpha, length, 90.0), rel=0.04)
        assert found.acceptance == pytest.approx(alpha, abs=0.015)
        assert found.bytes_up == found.proposed * 90
        assert found.tokens == 20_000

    @pytest.mark.parametrize(("rate", "alpha"), [(LOW, 0.7), (LOW, 0.9), (HIGH, 0.7), (HIGH, 0.9)])
    def test_goodput_finds_the_stationary_optimum(self, rate: float, alpha: float) -> None:
        lengths = range(1, 9)
        best = max(simulate_rounds(scenario(alpha, rate, 3000), FixedPlan(length), 1).throughput for length in lengths)
        found = simulate_rounds(scenario(alpha, rate, 3000), Goodput(TokenSizes({None: 90.0})), 1).throughput
        assert found > 0.97 * best
        assert found > simulate_rounds(scenario(alpha, rate, 3000), Heuristic(), 1).throughput

    def test_verdicts_and_round_trips_take_their_time(self) -> None:
        times = RoundTimes(
            draft=0.005, verify=0.03, verify_token=0.001, rtt=0.1, down_rate=100.0, down_overhead=3, down_rejected=10
        )
        one = RoundScenario(times, Steady(0.5), Constant(80), ConstantRate(1000.0), tokens=1000)
        rounds = SynchronousRounds(one, 1)
        outcome = rounds.step(DraftPlan(4), lambda confidence, drafted: "more")
        down = 13 if outcome.rejected else 3
        assert outcome.seconds == pytest.approx(0.02 + 0.04 + 0.034 + 0.1 + down / 100)
        assert outcome.verdict_seconds == pytest.approx(outcome.seconds - 0.02)
        assert (outcome.bytes_up, outcome.bytes_down) == (40, down)

    def test_expected_tokens_are_the_mean_of_what_is_decided(self) -> None:
        """2,000 answers: the standard error of each mean is .03 or less."""
        one = RoundScenario(TIMES, Varying(0.7), Lattice(50_272), ConstantRate(HIGH), 10)
        expected, decided = [], []
        for seed in range(2000):
            rounds = SynchronousRounds(one, seed)
            expected.append(rounds.expected_tokens(DraftPlan(4, 16)))
            decided.append(rounds.step(DraftPlan(4, 16), lambda confidence, drafted: "more").tokens)
        assert np.mean(decided) == pytest.approx(np.mean(expected), abs=0.12)

    def test_nothing_is_proposed_behind_the_end(self) -> None:
        rounds = SynchronousRounds(scenario(0.999, HIGH, tokens=7), 1)
        lengths = []
        while not rounds.finished:
            outcome = rounds.step(DraftPlan(4), lambda confidence, drafted: "more")
            lengths.append((outcome.length, outcome.tokens))
        assert lengths == [(4, 5), (2, 2)]
        with pytest.raises(ValueError, match="ended"):
            rounds.step(DraftPlan(1), lambda confidence, drafted: "more")

    def test_a_bonus_has_no_confidence_yet(self) -> None:
        rounds = SynchronousRounds(RoundScenario(TIMES, Varying(0.7), LATTICE_64, ConstantRate(HIGH), 200), 1)
        decided = 0
        while not rounds.finished and decided < 16:
            before = len(rounds.confidences)
            outcome = rounds.step(DraftPlan(3), lambda confidence, drafted: "more")
            decided = len(rounds.confidences)
            assert decided - before == min(outcome.tokens, 3)

    def test_a_policy_ends_a_proposal_but_not_before_its_first_token(self) -> None:
        """And a step whose position is not proposed takes its time, too."""
        rounds = SynchronousRounds(scenario(0.7, HIGH), 1)
        found = [
            rounds.step(DraftPlan(9), lambda confidence, drafted: "none"),
            rounds.step(DraftPlan(9), lambda confidence, drafted: "last"),
            rounds.step(DraftPlan(9), lambda confidence, drafted: "more" if drafted < 3 else "none"),
            rounds.step(DraftPlan(9), lambda confidence, drafted: "more" if drafted < 2 else "last"),
        ]
        assert [outcome.length for outcome in found] == [1, 1, 3, 3]
        drafted = [outcome.seconds - outcome.verdict_seconds for outcome in found]
        assert drafted == pytest.approx([TIMES.draft * steps for steps in (2, 1, 4, 3)])

    def test_the_same_seed_is_the_same_answer(self) -> None:
        one = RoundScenario(TIMES, Varying(0.8), Lattice(50_272), TwoStateRate(), 300)
        assert simulate_rounds(one, FixedPlan(3, 64), 7) == simulate_rounds(one, FixedPlan(3, 64), 7)
        assert simulate_rounds(one, FixedPlan(3, 64), 7) != simulate_rounds(one, FixedPlan(3, 64), 8)


class TestAhead:
    @staticmethod
    def scenario(alpha: float, rate: float, overhead: float, verify: float, tokens: int = 10_000) -> RoundScenario:
        times = RoundTimes(draft=0.005, verify=verify, rtt=0.05, up_overhead=overhead)
        return RoundScenario(times, Steady(alpha), Constant(16), ConstantRate(rate), tokens)

    @pytest.mark.parametrize(("alpha", "length"), [(0.62, 1), (0.86, 1), (0.86, 4), (0.96, 8)])
    @pytest.mark.parametrize("verify", [0.0, 0.032])
    def test_equals_the_formula(self, alpha: float, length: int, verify: float) -> None:
        """Within 7 %: how long a chunk waits for the pass before it is an estimate, and N's error is 1 to 5 %."""
        one = self.scenario(alpha, 12.5e6, 0.0, verify)
        predicted = ahead_seconds(one.times, alpha, length, 2.0)
        assert 1 / simulate_ahead(one, FixedPlan(length), 1).throughput == pytest.approx(predicted, rel=0.07)

    def test_no_bonus_and_wasted_chunks_on_the_link(self) -> None:
        one = self.scenario(0.8, LOW, 20.0, verify=0.032)
        found = simulate_ahead(one, FixedPlan(4), 1)
        rejections = found.judged - found.accepted
        assert found.tokens == found.accepted + rejections == 10_000
        assert found.bytes_up > found.rounds * 28  # chunks that followed a wrong token were sent, too

    def test_a_link_that_cannot_keep_up_is_the_pace(self) -> None:
        one = self.scenario(0.999, 1000.0, 20.0, verify=0.0)
        assert 1 / simulate_ahead(one, FixedPlan(2), 1).throughput == pytest.approx(0.012, rel=0.1)

    def test_goodput_keeps_up(self) -> None:
        one = self.scenario(0.86, LOW, 150.0, verify=0.032, tokens=3_000)
        best = max(simulate_ahead(one, FixedPlan(length), 1).throughput for length in (1, 4, 6, 7, 8, 16))
        policy: DraftPolicy = Goodput(TokenSizes({None: 2.0}), ahead=True)
        assert simulate_ahead(one, policy, 1).throughput > 0.95 * best


class TestModels:
    @pytest.mark.parametrize("alpha", [0.5, 0.7, 0.9])
    def test_varying_has_the_mean_that_is_asked_for(self, alpha: float) -> None:
        answer = Varying(alpha).draw(100_000, 1)
        assert float(answer.acceptances.mean()) == pytest.approx(alpha, abs=0.01)
        assert float((answer.uniforms < answer.acceptances).mean()) == pytest.approx(alpha, abs=0.01)

    def test_confidence_tells_of_acceptance_and_of_the_next_position(self) -> None:
        answer = Varying(0.7).draw(50_000, 1)
        accepted = answer.uniforms < answer.acceptances
        assert accepted[answer.confidences > 0.9].mean() > 0.88
        assert accepted[answer.confidences < 0.4].mean() < 0.45
        assert np.corrcoef(answer.confidences[1:], answer.confidences[:-1])[0, 1] > 0.3

    def test_finer_lattices_cost_bits_and_keep_acceptance(self) -> None:
        payload = Lattice(50_272)
        for confidence in (0.05, 0.3, 0.7, 0.99):
            bits = [payload.bits(resolution, confidence) for resolution in (16, 64, 256)]
            kept = [payload.kept(resolution, confidence) for resolution in (16, 64, 256)]
            assert bits == sorted(bits)
            assert kept == sorted(kept)
        with pytest.raises(ValueError, match="resolution"):
            Lattice(50_272).bits(None, 0.5)

    def test_two_state_rate(self) -> None:
        """The share of high slots is rise / (rise + fall), here to .03, and a message may see both states."""
        model = TwoStateRate(rise=0.1, fall=0.3)
        uplink = model.draw(1)
        share = np.mean([uplink.finish(0.1 * slot, 1.0) - 0.1 * slot < 1.5 / HIGH for slot in range(20_000)])
        assert share == pytest.approx(0.25, abs=0.03)
        always = TwoStateRate(rise=1.0, fall=1.0).draw(1)
        first, second = always.finish(0.0, 1.0), always.finish(0.1, 1.0) - 0.1
        assert {round(1 / first), round(1 / second)} == {LOW, HIGH}
        assert always.finish(0.2, 0.1 * (LOW + HIGH)) == pytest.approx(0.4)


class TestRecorded:
    CONFIDENCES = np.arange(5) / 10
    RECORDED = Recorded(CONFIDENCES, np.array([1.0, 1.0, 1.0, 0.0, 0.0]), {16: np.array([0.0, 1.0, 1.0, 1.0, 1.0])})

    def test_an_answer_begins_anywhere_and_goes_round(self) -> None:
        drawn = [self.RECORDED.draw(12, seed).confidences for seed in range(40)]
        assert {answer[0] for answer in drawn} == set(self.CONFIDENCES)
        for answer in drawn:
            assert np.allclose(np.diff(answer) % 0.5, 0.1)

    @pytest.mark.parametrize(("resolution", "refused"), [(16, {0.0}), (32, {0.3, 0.4})])
    def test_what_was_measured_at_a_resolution_is_what_happens_there(
        self, resolution: int, refused: set[float]
    ) -> None:
        """Elsewhere the payload's model tells what is left of the whole distribution's: all of it, here."""
        one = RoundScenario(TIMES, self.RECORDED, LATTICE_64, ConstantRate(HIGH), 10)
        found = set()
        for seed in range(20):
            rounds = SynchronousRounds(one, seed)
            expected = rounds.expected_tokens(DraftPlan(1, resolution))
            outcome = rounds.step(DraftPlan(1, resolution), lambda confidence, drafted: "more")
            assert expected == 1 + outcome.accepted
            if outcome.rejected:
                found.add(round(outcome.confidences[0], 1))
        assert found == refused
