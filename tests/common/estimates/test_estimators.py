"""Decode times, round trips and acceptance, as the scheduler sees them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from common.estimates.estimators import Acceptance, DecodeDelay, DecodeLine, MovingAverage

SLOPE, INTERCEPT = 2e-5, 0.02  # a small model on a processor: 20 ms and 20 us per token of context
CONTEXTS = np.repeat(np.arange(64, 1024, 64), 5)

slopes = st.floats(0.0, 1e-2)
intercepts = st.floats(0.0, 1.0)


def plain_fit(contexts: NDArray[np.int64], seconds: NDArray[np.float64]) -> tuple[float, float]:
    slope, intercept = np.polyfit(contexts, seconds, 1)
    return float(slope), float(intercept)


class TestOfflineFit:
    @given(
        slopes,
        intercepts,
        st.lists(st.integers(1, 4096), min_size=2, max_size=40).filter(lambda lengths: len(set(lengths)) > 1),
    )
    def test_a_clean_line_is_found_exactly(self, slope: float, intercept: float, lengths: list[int]) -> None:
        line = DecodeLine.fit(lengths, [slope * length + intercept for length in lengths])
        for length in (min(lengths), max(lengths)):
            assert line.predict(length) == pytest.approx(slope * length + intercept, rel=1e-7, abs=1e-12)

    def test_even_noise_averages_out(self) -> None:
        """75 samples with 1 ms of noise: the slope's standard error is 4.2e-7, four of them are allowed."""
        noise = np.random.default_rng(3).normal(0.0, 1e-3, CONTEXTS.size)
        line = DecodeLine.fit(CONTEXTS, SLOPE * CONTEXTS + INTERCEPT + noise)
        assert line.slope == pytest.approx(SLOPE, abs=1.7e-6)
        assert line.predict(544) == pytest.approx(SLOPE * 544 + INTERCEPT, abs=6e-4)

    def test_without_outliers_it_is_least_squares(self) -> None:
        """Every sample counts: uniform noise has no outliers."""
        noise = np.random.default_rng(4).uniform(-1e-3, 1e-3, CONTEXTS.size)
        seconds = SLOPE * CONTEXTS + INTERCEPT + noise
        line = DecodeLine.fit(CONTEXTS, seconds)
        assert (line.slope, line.intercept) == pytest.approx(plain_fit(CONTEXTS, seconds))

    @pytest.mark.parametrize("at", ["anywhere", "long contexts", "one context"])
    def test_stalls_of_the_machine_do_not_bend_the_line(self, at: str) -> None:
        """Plain least squares is the counter-example."""
        random = np.random.default_rng(5)
        seconds = SLOPE * CONTEXTS + INTERCEPT + random.normal(0.0, 2e-4, CONTEXTS.size)
        stalled = {
            "anywhere": random.permutation(CONTEXTS.size)[:12],
            "long contexts": np.arange(CONTEXTS.size - 12, CONTEXTS.size),
            "one context": np.arange(40, 45),
        }[at]
        seconds[stalled] += random.uniform(0.05, 0.5, stalled.size)
        line = DecodeLine.fit(CONTEXTS, seconds)
        true = SLOPE * 900 + INTERCEPT
        slope, intercept = plain_fit(CONTEXTS, seconds)
        assert line.predict(900) == pytest.approx(true, abs=1e-3)
        assert abs(slope * 900 + intercept - true) > 5e-3

    def test_the_order_of_samples_does_not_matter(self) -> None:
        random = np.random.default_rng(6)
        seconds = SLOPE * CONTEXTS + INTERCEPT + random.exponential(1e-3, CONTEXTS.size)
        order = random.permutation(CONTEXTS.size)
        shuffled = DecodeLine.fit(CONTEXTS[order], seconds[order])
        assert shuffled.slope == pytest.approx(DecodeLine.fit(CONTEXTS, seconds).slope, rel=0.05)

    def test_noise_never_makes_longer_contexts_cheaper(self) -> None:
        line = DecodeLine.fit([100, 200, 300, 400], [0.0203, 0.0202, 0.0200, 0.0199])
        assert line.slope == 0.0
        assert line.predict(10**6) == pytest.approx(0.0201)

    def test_the_intercept_is_never_negative(self) -> None:
        """The handshake refuses a negative one."""
        line = DecodeLine.fit([100, 200, 300], [0.01, 0.03, 0.05])
        assert line.intercept == 0.0
        assert line.slope == pytest.approx((1.0 + 6.0 + 15.0) / 140_000)

    @pytest.mark.parametrize(
        ("contexts", "seconds"),
        [
            ([], []),
            ([100], [0.1]),
            ([100, 100], [0.1, 0.2]),
            ([100, 200], [0.1]),
            ([0, 100], [0.1, 0.2]),
            ([100, 200], [0.1, -0.2]),
            ([100, 200], [0.1, math.nan]),
            ([100, math.inf], [0.1, 0.2]),
            ([[100, 200]], [[0.1, 0.2]]),
        ],
    )
    def test_what_cannot_be_fitted_is_refused(self, contexts: list[float], seconds: list[float]) -> None:
        with pytest.raises(ValueError, match=r"must be|two context lengths"):
            DecodeLine.fit(contexts, seconds)


class TestOnlineUpdate:
    @given(
        st.floats(1e-6, 1e-3),
        intercepts,
        st.floats(0.01, 1.0),
        st.lists(st.tuples(st.integers(1, 4096), st.floats(0.0, 2.0)), max_size=30),
    )
    def test_the_slope_is_the_weighted_least_squares_slope(
        self, slope: float, intercept: float, weight: float, observations: list[tuple[int, float]]
    ) -> None:
        """In closed form: the n-th latest has the weight ζ (1 - ζ)^n, the profile what is left."""
        line = DecodeLine.of(slope, intercept, context=500.0)
        for context, seconds in observations:
            line = line.updated(context, seconds, weight)
        count = len(observations)
        weights = [weight * (1.0 - weight) ** (count - 1 - index) for index in range(count)]
        rest = (1.0 - weight) ** count
        products = [c * (s - intercept) for c, s in observations]
        squares = [float(c * c) for c, _ in observations]
        top = rest * slope * 500.0**2 + sum(w * p for w, p in zip(weights, products, strict=True))
        bottom = rest * 500.0**2 + sum(w * q for w, q in zip(weights, squares, strict=True))
        assert line.slope == pytest.approx(top / bottom, rel=1e-9, abs=1e-12)
        assert line.intercept == intercept

    def test_as_printed(self) -> None:
        """((1 - ζ) k_a + ζ (c - k_c) t) / ((1 - ζ) k_b + ζ t^2), once by hand."""
        line = DecodeLine(numerator=2.0, denominator=100_000.0, intercept=0.5).updated(200.0, 0.6, 0.25)
        assert line.numerator == pytest.approx(0.75 * 2.0 + 0.25 * 0.1 * 200.0)
        assert line.denominator == pytest.approx(0.75 * 100_000.0 + 0.25 * 40_000.0)

    @given(slopes, intercepts, st.lists(st.integers(1, 4096), max_size=20))
    def test_observations_on_the_line_leave_it_alone(self, slope: float, intercept: float, lengths: list[int]) -> None:
        delay = DecodeDelay(DecodeLine.of(slope, intercept, 500.0))
        for length in lengths:
            delay.observe(length, slope * length + intercept)
        assert delay.predict(2000) == pytest.approx(slope * 2000 + intercept, rel=1e-9)

    def test_a_lasting_change_is_followed(self) -> None:
        delay = DecodeDelay(DecodeLine.of(SLOPE, INTERCEPT, 500.0))
        for context in range(500, 530):
            delay.observe(context, 2.0 * (SLOPE * context + INTERCEPT))
        assert delay.predict(530) == pytest.approx(2.0 * (SLOPE * 530 + INTERCEPT), rel=0.01)

    def test_a_single_stall_does_not_bend_the_line(self) -> None:
        """Without the median of three the estimate rises more than fivefold."""
        delay = DecodeDelay(DecodeLine.of(SLOPE, INTERCEPT, 500.0))
        raw = delay.line
        for context in range(500, 520):
            seconds = SLOPE * context + INTERCEPT + (1.0 if context == 510 else 0.0)
            before = raw.predict(context)
            delay.observe(context, seconds)
            raw = raw.updated(context, seconds)
            if context == 510:
                assert raw.predict(context) > 5.0 * before
            assert delay.predict(context) == pytest.approx(SLOPE * context + INTERCEPT, rel=1e-6)

    def test_a_time_is_never_negative(self) -> None:
        delay = DecodeDelay(DecodeLine.of(SLOPE, INTERCEPT, 500.0))
        for _ in range(50):
            delay.observe(100, 0.0)
        assert delay.predict(10_000) == 0.0

    @pytest.mark.parametrize(("context", "seconds"), [(0, 0.1), (-5, 0.1), (10, -0.1), (10, math.nan), (math.inf, 0.1)])
    def test_impossible_steps_are_refused(self, context: float, seconds: float) -> None:
        delay = DecodeDelay(DecodeLine.of(SLOPE, INTERCEPT, 500.0))
        before = delay.line
        with pytest.raises(ValueError, match="not possible"):
            delay.observe(context, seconds)
        assert delay.line == before

    @pytest.mark.parametrize("weight", [0.0, -0.1, 1.1, math.nan])
    def test_impossible_weights_are_refused(self, weight: float) -> None:
        with pytest.raises(ValueError, match="weight"):
            DecodeLine.of(SLOPE, INTERCEPT, 500.0).updated(10, 0.1, weight)


class TestMovingAverage:
    def test_starts_as_the_plain_average(self) -> None:
        average = MovingAverage(0.1)
        assert average.value is None
        assert [average.update(value) for value in (1.0, 0.0, 0.0, 1.0)] == pytest.approx([1.0, 0.5, 1 / 3, 0.5])

    def test_becomes_exponential(self) -> None:
        average = MovingAverage(0.25)
        for _ in range(4):
            average.update(1.0)
        assert average.update(0.0) == pytest.approx(0.75)
        assert average.update(0.0) == pytest.approx(0.75**2)

    def test_a_prior_counts_as_one_value(self) -> None:
        average = MovingAverage(0.1, prior=0.8)
        assert average.value == 0.8
        assert average.update(0.2) == pytest.approx(0.5)

    @given(st.floats(0.01, 1.0), st.lists(st.floats(-1e6, 1e6), min_size=1))
    def test_stays_within_what_it_saw(self, weight: float, values: list[float]) -> None:
        average = MovingAverage(weight)
        for value in values:
            average.update(value)
        assert average.value is not None
        assert min(values) - 1e-6 <= average.value <= max(values) + 1e-6

    def test_one_bad_value_does_not_poison_it(self) -> None:
        average = MovingAverage(0.5, prior=1.0)
        with pytest.raises(ValueError, match="average"):
            average.update(math.nan)
        assert average.value == 1.0


class TestAcceptance:
    def test_sides_are_kept_apart(self) -> None:
        acceptance = Acceptance(prior=0.5)
        for _ in range(200):
            acceptance.observe("device", 1.0)
            acceptance.observe("cloud", 0.2)
        assert acceptance.of("device") == pytest.approx(1.0)
        assert acceptance.of("cloud") == pytest.approx(0.2)

    def test_the_prior_stands_until_something_is_seen_and_then_soon_fades(self) -> None:
        acceptance = Acceptance(prior=0.8)
        assert (acceptance.of("device"), acceptance.of("cloud")) == (0.8, 0.8)
        for _ in range(4):
            acceptance.observe("cloud", 0.0)
        assert acceptance.of("device") == 0.8
        assert acceptance.of("cloud") == pytest.approx(0.16)

    def test_outcomes_average_to_their_rate(self) -> None:
        """A weight of 0.1 leaves a standard deviation of 0.11 at a rate of 0.7; three of them are allowed."""
        acceptance = Acceptance()
        for outcome in np.random.default_rng(8).random(500) < 0.7:
            acceptance.observe("device", float(outcome))
        assert acceptance.of("device") == pytest.approx(0.7, abs=0.33)

    def test_no_single_outcome_moves_it_far(self) -> None:
        acceptance = Acceptance()
        for _ in range(50):
            acceptance.observe("device", 1.0)
        acceptance.observe("device", 0.0)
        assert acceptance.of("device") == pytest.approx(0.9, abs=0.01)

    def test_the_upper_estimate_comes_down_slowly_and_goes_up_soon(self) -> None:
        """A dozen rejections leave it above the truth; a stretch of acceptance is believed at once."""
        acceptance = Acceptance()
        assert acceptance.at_most("device") == 1.0
        for _ in range(12):
            acceptance.observe("device", 0.0)
        assert acceptance.of("device") < 0.2 < 0.6 < acceptance.at_most("device")
        for _ in range(200):
            acceptance.observe("device", 0.0)
        assert acceptance.at_most("device") < 0.01
        for _ in range(20):
            acceptance.observe("device", 1.0)
        assert acceptance.at_most("device") == acceptance.of("device") > 0.8

    @pytest.mark.parametrize("value", [-0.01, 1.01, math.nan])
    def test_nonsense_is_refused(self, value: float) -> None:
        acceptance = Acceptance()
        with pytest.raises(ValueError, match="acceptance rate"):
            acceptance.observe("device", value)
        with pytest.raises(ValueError, match="acceptance rate"):
            Acceptance(prior=value)
