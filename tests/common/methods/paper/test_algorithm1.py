"""The exact law of Algorithm 1, by walking through all of its decision points with their probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from common.methods.paper.sampler import aggregate, draw_draft, expected_acceptance, most_probable
from common.sampling.compiled import Draws, Purpose, SeededDraws
from common.sampling.truncation import Distribution, renormalised
from proto.messages import Side
from tests.support.enumeration import EXACT, Step, Walk, law_of

SIDES: tuple[Side, Side] = ("device", "cloud")


def distribution(weights: list[float]) -> Distribution:
    return renormalised(np.arange(len(weights)), np.array(weights))


def dense(of: Distribution, size: int) -> NDArray[np.float64]:
    return of.at(np.arange(size))


def one_step(device: Distribution, cloud: Distribution, eta: float) -> Step[tuple[int, int, int]]:
    """Drafts of both sides and the target."""

    def step(draws: Draws) -> tuple[int, int, int]:
        x, y = draw_draft("device", device, draws), draw_draft("cloud", cloud, draws)
        return x, y, aggregate(x, device, y, cloud, eta, draws)

    return step


def error(law: dict[tuple[int, int, int], float], device: Distribution, cloud: Distribution, eta: float) -> float:
    """Total variation between the law of the target and Eq. 4."""
    size = 1 + int(max(device.ids[-1], cloud.ids[-1]))
    target = np.zeros(size)
    for (_, _, token), probability in law.items():
        target[token] += probability
    return 0.5 * float(np.abs(target - eta * dense(device, size) - (1 - eta) * dense(cloud, size)).sum())


WEIGHTS = st.lists(st.sampled_from([0.0, 1e-4, 0.1, 0.5, 1.0, 2.0]), min_size=1, max_size=8).filter(any)
SKEWED = distribution([6.0, 3.0, 1.0, 0.0]), distribution([1.0, 2.0, 3.0, 4.0]), 0.8


class TestLaw:
    @given(WEIGHTS, WEIGHTS, st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]))
    @settings(max_examples=60)
    def test_is_the_mixture(self, one: list[float], other: list[float], eta: float) -> None:
        device, cloud = distribution(one), distribution(other)
        assert error(law_of(one_step(device, cloud, eta)), device, cloud, eta) < EXACT

    def test_of_two_tokens(self) -> None:
        """Both sides run ahead; a side whose first draft is rejected drafts its second again."""
        device, cloud, eta = trees(0), trees(1), (0.7, 0.4, 0.1, 0.9)
        law = law_of(two_steps(device, cloud, eta, redraft=True))
        assert two_step_error(law, device, cloud, eta) < EXACT

    def test_of_two_tokens_needs_the_roll_back(self) -> None:
        device, cloud, eta = trees(0), trees(1), (0.7, 0.4, 0.1, 0.9)
        assert two_step_error(law_of(two_steps(device, cloud, eta, redraft=False)), device, cloud, eta) > 0.01


class TestBrokenKernels:
    """Each known way to get it wrong changes the law, so the test above can tell."""

    def test_weight_of_the_own_side(self) -> None:
        """Algorithm 1 as printed."""
        device, cloud, eta = SKEWED
        assert error(law_of(one_step(device, cloud, 1 - eta)), device, cloud, eta) > 0.01

    def test_draft_from_what_was_not_sent(self) -> None:
        device, cloud, eta = SKEWED
        sent = distribution([6.0, 3.0])

        def step(draws: Draws) -> tuple[int, int, int]:
            x, y = draw_draft("device", device, draws), draw_draft("cloud", cloud, draws)
            return x, y, aggregate(x, sent, y, cloud, eta, draws)

        assert error(law_of(step), sent, cloud, eta) > 0.01

    def test_residual_without_norm(self) -> None:
        class Mutant(Walk):
            def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
                if purpose in (Purpose.RESIDUAL_DEVICE, Purpose.RESIDUAL_CLOUD):
                    weights = weights.copy()
                    weights[-1] += 1.0 - weights.sum()  # what is missing to 1 falls on the last token
                return super().pick(purpose, weights)

        device, cloud, eta = SKEWED
        assert error(law_of(one_step(device, cloud, eta), Mutant), device, cloud, eta) > 0.01

    def test_coin_that_favours_an_accepted_draft(self) -> None:
        class Mutant(Walk):
            rejected = False

            def happens(self, purpose: Purpose, probability: float) -> bool:
                if purpose is Purpose.CHOICE:
                    return super().happens(purpose, 0.2 if self.rejected else 0.8)
                outcome = super().happens(purpose, probability)
                self.rejected |= outcome and purpose is Purpose.ACCEPT_DEVICE
                return outcome

        device, cloud, eta = SKEWED
        assert error(law_of(one_step(device, cloud, eta), Mutant), device, cloud, eta) > 0.01

    def test_one_draw_for_both_sides(self) -> None:
        """Draws keyed by less than the side: the drafts move together; acceptance is not Eq. 5 then."""

        class Mutant(Walk):
            first: int | None = None

            def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
                if purpose is Purpose.DRAFT_CLOUD and self.first is not None:
                    return self.first
                self.first = super().pick(purpose, weights)
                return self.first

        same = distribution([1.0, 1.0, 1.0])
        accepted = acceptance(law_of(one_step(same, same, 0.5), Mutant))
        assert accepted != pytest.approx(expected_acceptance(same, same, 0.5))


def acceptance(law: dict[tuple[int, int, int], float]) -> tuple[float, float]:
    return (
        sum(probability for (x, _, token), probability in law.items() if x == token),
        sum(probability for (_, y, token), probability in law.items() if y == token),
    )


class TestExpectedAcceptance:
    @given(WEIGHTS, WEIGHTS, st.floats(0, 1))
    @settings(max_examples=60)
    def test_is_that_of_the_kernel(self, one: list[float], other: list[float], eta: float) -> None:
        device, cloud = distribution(one), distribution(other)
        expected = expected_acceptance(device, cloud, eta)
        assert acceptance(law_of(one_step(device, cloud, eta))) == pytest.approx(expected, abs=1e-9)

    def test_second_sum_is_over_the_mixture(self) -> None:
        """With p^r in its place, as Eq. 5 may be read, disjoint sides come out too low."""
        device, cloud = distribution([1.0, 0.0]), distribution([0.0, 1.0])
        assert expected_acceptance(device, cloud, 0.5) == pytest.approx((0.5, 0.5))
        assert acceptance(law_of(one_step(device, cloud, 0.5))) == pytest.approx((0.5, 0.5))


class TestSeededDraws:
    def test_pick_follows_the_weights(self) -> None:
        weights = np.array([0.0, 3.0, 0.0, 1.0, 0.0])
        picks = [SeededDraws(9, t).pick(Purpose.DRAFT_CLOUD, weights) for t in range(4_000)]
        counts = np.bincount(picks, minlength=5)
        assert counts[[0, 2, 4]].sum() == 0
        assert abs(counts[1] - 3_000) < 4 * np.sqrt(4_000 * 0.75 * 0.25)

    def test_no_draw_depends_on_another(self) -> None:
        weights = np.arange(1.0, 50.0)
        draws = SeededDraws(9, 4)
        forward = [draws.pick(purpose, weights) for purpose in Purpose]
        assert [draws.pick(purpose, weights) for purpose in reversed(Purpose)] == forward[::-1]


def test_temperature_zero_is_the_argmax_of_the_mixture() -> None:
    """The paper's counterexample: neither side's own favourite."""
    device, cloud = distribution([0.5, 0.4, 0.1]), distribution([0.1, 0.4, 0.5])
    assert most_probable(device, cloud, 0.5) == 1
    assert most_probable(distribution([1.0, 0.0]), distribution([0.0, 1.0]), 0.5) == 0
    assert most_probable(distribution([1.0, 0.0]), distribution([0.0, 1.0]), 0.25) == 1


def trees(seed: int) -> list[Distribution]:
    """A side's law of the first token (the last item) and of the second after each of three."""
    rows = np.random.default_rng(seed).dirichlet(np.full(3, 0.7), 4)
    return [distribution(row.tolist()) for row in rows]


def two_steps(
    device: list[Distribution], cloud: list[Distribution], eta: tuple[float, ...], redraft: bool
) -> Step[tuple[int, int]]:
    def step(draws: Draws) -> tuple[int, int]:
        x, y = draw_draft("device", device[3], draws), draw_draft("cloud", cloud[3], draws)
        ahead = draw_draft("device", device[x], draws), draw_draft("cloud", cloud[y], draws)
        first = aggregate(x, device[3], y, cloud[3], eta[3], draws)
        second = [
            draw_draft(side, laws[first], draws) if redraft and drafted != first else kept
            for side, laws, drafted, kept in zip(SIDES, (device, cloud), (x, y), ahead, strict=True)
        ]
        return first, aggregate(second[0], device[first], second[1], cloud[first], eta[first], draws)

    return step


def two_step_error(
    law: dict[tuple[int, int], float],
    device: list[Distribution],
    cloud: list[Distribution],
    eta: tuple[float, ...],
) -> float:
    mixtures = [e * dense(p, 3) + (1 - e) * dense(q, 3) for e, p, q in zip(eta, device, cloud, strict=True)]
    target = [[mixtures[3][i] * mixtures[i][j] for j in range(3)] for i in range(3)]
    return 0.5 * sum(abs(law.get((i, j), 0.0) - float(target[i][j])) for i in range(3) for j in range(3))
