"""Foreseen targets: chances that follow the speeds of a side's own race, by a power that the answer teaches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.methods.aggregate.drafts import Foresight, Rivals

RIVALS = 8
LEAST, MOST = 0.2, 40.0  # of the power
FIRST = Foresight().power

races = st.lists(st.floats(-700.0, 700.0), max_size=RIVALS).map(
    lambda speeds: list(enumerate(sorted(speeds, reverse=True)))
)


def race(random: np.random.Generator) -> Rivals:
    """The fastest of an exponential race over a vocabulary, with the logarithms of their speeds."""
    speeds = np.log(random.dirichlet(np.full(64, 0.3)) / random.exponential(size=64) + 1e-12)
    order = np.argsort(-speeds)[:RIVALS]
    return list(zip(order.tolist(), speeds[order].tolist(), strict=True))


def target(random: np.random.Generator, rivals: Rivals, power: float) -> int:
    """The token that wins with a chance in proportion to a power of its speed."""
    weights = np.exp(power * (np.array([speed for _, speed in rivals]) - rivals[0][1]))
    return int(rivals[random.choice(len(rivals), p=weights / weights.sum())][0])


def taught(foresight: Foresight, power: float, positions: int, seed: int = 1) -> list[float]:
    """The learned power after each of so many positions."""
    random = np.random.default_rng(seed)
    powers = []
    for _ in range(positions):
        rivals = race(random)
        foresight.observe(rivals, target(random, rivals, power))
        powers.append(foresight.power)
    return powers


class TestChances:
    @given(races, st.floats(LEAST, MOST))
    def test_sum_to_1_and_follow_the_speeds(self, rivals: Rivals, power: float) -> None:
        chances = Foresight(power).chances(rivals)
        assert len(chances) == len(rivals)
        if rivals:
            assert sum(chances) == pytest.approx(1.0)
        assert chances == sorted(chances, reverse=True)
        assert all(0.0 <= chance <= 1.0 for chance in chances)

    def test_are_in_proportion_to_the_power_of_the_speed(self) -> None:
        chances = Foresight(2.0).chances([(5, math.log(3.0)), (6, math.log(2.0)), (7, math.log(1.0))])
        assert chances == pytest.approx([9 / 14, 4 / 14, 1 / 14])

    def test_the_unit_of_speed_does_not_matter(self) -> None:
        rivals = race(np.random.default_rng(3))
        faster = [(token, speed + 300.0) for token, speed in rivals]
        assert Foresight().chances(faster) == pytest.approx(Foresight().chances(rivals))

    def test_the_higher_the_power_the_surer_the_draft(self) -> None:
        rivals = race(np.random.default_rng(4))
        sure = [Foresight(power).chances(rivals)[0] for power in (0.2, 1.0, 4.0, 40.0)]
        assert sure == sorted(sure) and sure[0] < sure[-1]


class TestLearning:
    @pytest.mark.parametrize("power", [1.5, 4.0, 8.0])
    def test_the_power_becomes_the_true_one(self, power: float) -> None:
        """The last 60 positions count, so that single powers scatter; their mean is right."""
        powers = taught(Foresight(), power, 1500)
        assert float(np.mean(powers[300:])) == pytest.approx(power, rel=0.07)
        assert float(np.std(powers[300:])) < 1.0

    @pytest.mark.parametrize("power", [1.5, 8.0])
    def test_a_short_answer_teaches_most_of_it(self, power: float) -> None:
        """Within 100 positions, for most answers."""
        errors = [abs(taught(Foresight(), power, 100, seed)[-1] - power) for seed in range(40)]
        assert float(np.median(errors)) < 0.6 * abs(FIRST - power)

    def test_follows_a_power_that_changes(self) -> None:
        foresight = Foresight()
        taught(foresight, 1.5, 600)
        powers = taught(foresight, 6.0, 1200, seed=2)
        assert float(np.mean(powers[600:])) == pytest.approx(6.0, rel=0.1)

    def test_mutant_of_the_other_sign(self) -> None:
        class Backwards(Foresight):
            def observe(self, rivals: Rivals, target: int) -> None:
                before = self.power
                super().observe(rivals, target)
                self.power = min(max(2 * before - self.power, LEAST), MOST)

        assert float(np.mean(taught(Backwards(), 8.0, 1500)[300:])) != pytest.approx(8.0, rel=0.07)

    def test_mutant_that_learns_from_the_draft_alone(self) -> None:
        """As if every target had been drafted."""
        foresight, random = Foresight(), np.random.default_rng(1)
        for _ in range(1500):
            rivals = race(random)
            foresight.observe(rivals, rivals[0][0])
        assert foresight.power > 12.0

    @pytest.mark.parametrize("rivals", [[], [(1, 0.0), (2, -1.0)]])
    def test_unknown_targets_teach_nothing(self, rivals: Rivals) -> None:
        foresight = Foresight()
        taught(foresight, 4.0, 20)
        before = (foresight.power, foresight._information)
        foresight.observe(rivals, 3)
        assert (foresight.power, foresight._information) == before

    def test_a_race_of_one_teaches_nothing(self) -> None:
        foresight = Foresight()
        foresight.observe([(3, 5.0)], 3)
        assert foresight == Foresight()

    @given(st.lists(st.tuples(races, st.integers(0, RIVALS)), max_size=40))
    def test_bounds_whatever_wins(self, positions: list[tuple[Rivals, int]]) -> None:
        foresight, spread = Foresight(), 0.0
        for rivals, won in positions:
            foresight.observe(rivals, won)
            spread = max([spread, *(rivals[0][1] - speed for _, speed in rivals)])
            assert LEAST <= foresight.power <= MOST
            # No variance is above a quarter of the squared spread, and 60 positions are remembered.
            assert 1.0 <= foresight._information <= max(1.0, 60.0 * spread**2 / 4 * 1.000001)

    def test_bounds_are_reached_and_left(self) -> None:
        foresight, rivals = Foresight(), [(1, 0.0), (2, -1.0), (3, -2.0)]
        for _ in range(200):
            foresight.observe(rivals, 3)
        assert foresight.power == LEAST
        taught(foresight, 4.0, 600)
        assert foresight.power > 2.0
