"""Estimates of the network and the machines out of rounds. Errors that are allowed are stated with each case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from common.draft_policy.times import PROBES, WINDOW, RoundEstimates, RoundTimes, UplinkRate, line_below
from scripts.simulation.rounds import HIGH, LOW, TwoStateRate
from tests.common.draft_policy.rounds_of import outcome


class TestUplinkRate:
    def test_equal_sizes_need_the_probed_round_trip(self) -> None:
        estimate = UplinkRate()
        estimate.probed(0.05)
        for _ in range(3):
            estimate.observe(270, 0.05 + 0.032 + 270 / LOW, 0.032)
        assert estimate.rate == pytest.approx(LOW)
        assert estimate.round_trip == 0.05

    def test_a_wrong_round_trip_s_error(self) -> None:
        """The factor that the class tells: 1 + e · rate / size."""
        for wrong in (0.002, 0.01):
            estimate = UplinkRate()
            estimate.probed(0.05 - wrong)
            estimate.observe(270, 0.05 + 270 / LOW, 0.0)
            assert LOW / estimate.rate == pytest.approx(1 + wrong * LOW / 270)

    def test_a_round_trip_that_grows_is_not_put_down_to_size_for_long(self) -> None:
        estimate = UplinkRate()
        for _ in range(WINDOW):
            estimate.probed(0.0)
            estimate.observe(40, 0.032 + 40 / HIGH, 0.032)
        for _ in range(PROBES):
            estimate.probed(0.1)
            estimate.observe(40, 0.1 + 0.032 + 40 / HIGH, 0.032)
        assert estimate.round_trip == 0.1
        assert estimate.rate == pytest.approx(HIGH)

    def test_a_round_trip_that_shrinks_is_not_put_down_to_size(self) -> None:
        """However long nothing is sent: what was sent last took its time on the longer way."""
        estimate = UplinkRate()
        estimate.probed(0.06)
        for size in (60.0, 62.0):
            estimate.observe(size, 0.06 + size / 5000 + 0.03, 0.03)
        for _ in range(2 * PROBES):
            estimate.probed(0.04)
            assert estimate.rate == pytest.approx(5000)

    @pytest.mark.parametrize("trips", [(0.3, 0.002), (0.002, 0.3), (0.02, 0.05)])
    def test_another_round_trip_is_another_link(self, trips: tuple[float, float]) -> None:
        """Of which nothing is known, and which one round tells, whatever the former one was."""
        estimate = UplinkRate()
        for trip in trips:
            estimate.probed(trip)
            assert (estimate.round_trip, estimate.rate) == (trip, float("inf"))
            for size in (60.0, 62.0):
                estimate.observe(size, trip + size / 5000 + 0.03, 0.03)
                assert (estimate.round_trip, estimate.rate) == pytest.approx((trip, 5000))

    @pytest.mark.parametrize("trips", [(0.1, 0.14, 0.08), (0.002, 0.011, 0.003)])
    def test_jitter_is_no_other_link(self, trips: tuple[float, ...]) -> None:
        estimate = UplinkRate()
        estimate.probed(min(trips))
        estimate.observe(60.0, min(trips) + 60 / 1000, 0.0)
        for trip in trips:
            estimate.probed(trip)
            assert estimate.rate == pytest.approx(1000)

    @pytest.mark.parametrize("rate", [LOW, HIGH, 1e6])
    def test_sizes_that_differ_need_no_probe(self, rate: float) -> None:
        """With .1 ms of jitter the round trip is right to .2 ms, rates below 500 bytes/ms to 10 %."""
        random = np.random.default_rng(1)
        estimate = UplinkRate()
        for size in random.integers(90, 1500, 64):
            estimate.observe(int(size), 0.05 + 0.032 + size / rate + random.exponential(1e-4), 0.032)
        assert estimate.round_trip == pytest.approx(0.05, abs=2e-4)
        if rate < 5e5:
            assert estimate.rate == pytest.approx(rate, rel=0.1)

    def test_what_nothing_tells_is_put_down_to_size(self) -> None:
        estimate = UplinkRate()
        estimate.observe(100, 0.1, 0.0)
        assert estimate.rate == pytest.approx(1000.0)

    def test_fast_links_are_unlimited(self) -> None:
        estimate = UplinkRate()
        assert estimate.rate == float("inf")
        estimate.probed(0.05)
        estimate.observe(100, 0.0501, 0.0)
        assert estimate.rate == float("inf")

    def test_one_stall_is_not_a_slow_link(self) -> None:
        estimate = UplinkRate()
        estimate.probed(0.02)
        for delay in (0.0, 0.0, 0.3, 0.0):
            estimate.observe(270, 0.02 + 270 / HIGH + delay, 0.0)
            assert estimate.rate == pytest.approx(HIGH)

    def test_follows_two_states_within_two_rounds(self) -> None:
        estimate = UplinkRate()
        estimate.probed(0.02)
        found = []
        for rate in [HIGH] * 3 + [LOW] * 3 + [HIGH] * 2:
            estimate.observe(270, 0.02 + 270 / rate, 0.0)
            found.append(estimate.rate)
        assert found == pytest.approx([HIGH, HIGH, HIGH, HIGH, LOW, LOW, HIGH, HIGH])

    @pytest.mark.parametrize("change", [0.02, 0.1])
    def test_error_on_a_markov_link(self, change: float) -> None:
        """Rounds of 60 ms, half a millisecond of jitter: within a fifth of the rate in most rounds.

        In .9 of them where a state lasts 5 s on average, in .7 where it lasts 1 s; what is missing are the second
        rounds of slow states and messages that saw both.
        """
        uplink, random, estimate = TwoStateRate(change, change).draw(3), np.random.default_rng(2), UplinkRate()
        good, rounds, now = 0, 4000, 0.0
        for number in range(rounds):
            if number % 30 == 0:
                estimate.probed(0.02 + random.exponential(5e-4))
            sent = uplink.finish(now, 270) - now
            estimate.observe(270, sent + 0.02 + random.exponential(5e-4), 0.0)
            state = 270 / (uplink.finish(now + sent, 270) - now - sent)  # what the next message will get
            good += 0.8 < estimate.rate / state < 1.25
            now += sent + 0.04
        assert good / rounds > (0.9 if change < 0.1 else 0.7)

    def test_impossible_rounds_are_refused(self) -> None:
        estimate = UplinkRate()
        with pytest.raises(ValueError, match="not possible"):
            estimate.probed(-1.0)
        with pytest.raises(ValueError, match="not possible"):
            estimate.observe(0, 1.0, 0.0)


class TestLineBelow:
    def test_points_on_a_line_and_above(self) -> None:
        assert line_below([(1, 3), (2, 5), (2, 9), (4, 9), (3, 20)]) == pytest.approx((1.0, 2.0))

    def test_no_coefficient_is_negative(self) -> None:
        assert line_below([(1, 5), (2, 3)]) == (3.0, 0.0)
        assert line_below([(1, 1), (2, 4)]) == (0.0, 1.0)

    def test_no_point_is_below(self) -> None:
        random = np.random.default_rng(5)
        for _ in range(200):
            points = [(float(x), float(y)) for x, y in random.random((random.integers(1, 20), 2))]
            intercept, slope = line_below(points)
            assert all(y >= intercept + slope * x - 1e-12 for x, y in points)

    def test_needs_points(self) -> None:
        with pytest.raises(ValueError, match="no points"):
            line_below([])


class TestRoundEstimates:
    PRIOR = RoundTimes(draft=0.1, verify=0.1, verify_token=0.001, rtt=0.3, up_overhead=150.0)

    def test_begins_with_what_is_believed(self) -> None:
        assert RoundEstimates(self.PRIOR).times() == replace(self.PRIOR, draft_least=0.1)

    def test_converges(self) -> None:
        """Without noise all four times are exact after one round and a probe; overheads stay."""
        estimates = RoundEstimates(self.PRIOR)
        estimates.probed(0.05)
        estimates.observe(outcome(4, 4, draft=0.005, verify=0.036, rtt=0.05, rate=LOW))
        times = estimates.times()
        assert (times.draft, times.verify) == pytest.approx((0.005, 0.032))
        assert (times.rtt, times.up_rate) == pytest.approx((0.05, LOW))
        assert times.up_overhead == 150.0

    def test_a_slow_time_is_not_believed_for_ever(self) -> None:
        """Steps that were slow while the device did something else: where nothing is drafted, nothing corrects them."""
        estimates = RoundEstimates(self.PRIOR)
        for draft in [0.005] * 3 + [0.08] * 40:
            estimates.observe(outcome(4, 4, draft=draft))
        assert estimates.times().draft == pytest.approx(0.08, rel=0.05)
        assert estimates.times().draft_least == pytest.approx(0.005)
        estimates.observe(outcome(4, 4, draft=0.005, rested=True))
        assert estimates.times().draft == pytest.approx(0.005)

    def test_noisy_steps(self) -> None:
        """A fifth of noise on each round's times: the averages are right to 15 % at any time after ten rounds."""
        random, estimates = np.random.default_rng(4), RoundEstimates(self.PRIOR)
        for number in range(300):
            draft, verify = 0.005 * random.uniform(0.8, 1.2), 0.034 * random.uniform(0.8, 1.2)
            estimates.observe(outcome(2, 1, draft=draft, verify=verify, rtt=0.05))
            if number >= 10:
                assert estimates.times().draft == pytest.approx(0.005, rel=0.15)
                assert estimates.times().verify == pytest.approx(0.032, rel=0.15)
