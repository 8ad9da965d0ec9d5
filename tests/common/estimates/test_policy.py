"""Choice of the next aggregator, and of the number of drafts that a side makes ahead."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.estimates.policy import Estimates, FasterSide, RandomSide, first_aggregator, placement_policy, run_ahead
from proto.messages import Placement, Side

SIDES: tuple[Side, Side] = ("device", "cloud")
CLOUD_BETTER = Estimates(device_decode=0.3, cloud_decode=0.05, rtt=0.5, device_acceptance=1.0, cloud_acceptance=0.0)
CLOUD_SLOWER = Estimates(device_decode=0.05, cloud_decode=0.1, rtt=0.3, device_acceptance=0.9, cloud_acceptance=0.6)
DEVICE_SLOWER = Estimates(device_decode=0.1, cloud_decode=0.05, rtt=0.3, device_acceptance=0.6, cloud_acceptance=0.9)
DEVICE_BETTER = Estimates(device_decode=0.3, cloud_decode=0.05, rtt=0.1, device_acceptance=0.5, cloud_acceptance=0.5)


def unasked() -> Estimates:
    raise AssertionError("this placement needs no estimates")


class TestPlacement:
    @pytest.mark.parametrize(("placement", "side"), [("device", "device"), ("cloud", "cloud"), ("mirrored", "device")])
    @pytest.mark.parametrize("role", ["device", "cloud"])
    def test_fixed(self, placement: Placement, side: Side, role: Side) -> None:
        policy = placement_policy(placement, 7, unasked, role)
        assert {policy.next_aggregator(position, {}) for position in range(50)} == {side}

    def test_greedy_follows_the_estimates_of_the_moment(self) -> None:
        current = CLOUD_BETTER
        device = placement_policy("greedy", 0, lambda: current, "device")
        cloud = placement_policy("greedy", 0, lambda: current, "cloud")
        assert device.next_aggregator(1, {}) == "cloud"
        assert cloud.next_aggregator(2, {}) == "cloud"
        current = DEVICE_BETTER
        assert cloud.next_aggregator(3, {}) == "device"
        assert device.next_aggregator(4, {}) == "device"

    def test_greedy_sides_agree_on_the_first_aggregator_without_agreeing_on_estimates(self) -> None:
        for first in SIDES:
            device = placement_policy("greedy", 0, lambda: DEVICE_BETTER, "device", first=first)
            cloud = placement_policy("greedy", 0, lambda: CLOUD_BETTER, "cloud", first=first)
            assert device.next_aggregator(0, {}) == cloud.next_aggregator(0, {}) == first

    def test_greedy_begins_where_the_role_is_worth_more(self) -> None:
        assert first_aggregator("greedy", CLOUD_SLOWER, paper=False) == "cloud"
        assert first_aggregator("greedy", DEVICE_SLOWER, paper=False) == "device"
        assert first_aggregator("greedy", DEVICE_BETTER, paper=False) == "device"
        assert first_aggregator("greedy", CLOUD_SLOWER, paper=True) == "device"
        others: tuple[Placement, ...] = ("device", "cloud", "random", "mirrored")
        assert {first_aggregator(placement, CLOUD_SLOWER, paper=False) for placement in others} == {"device"}

    def test_the_papers_greedy_keeps_a_role_that_is_as_good(self) -> None:
        """Each side keeps what it has; a policy that took itself for the other side would give it away."""
        even = Estimates(0.1, 0.1, 0.3, 0.5, 0.5)
        assert FasterSide("device", lambda: even, paper=True).next_aggregator(1, {}) == "device"
        assert FasterSide("cloud", lambda: even, paper=True).next_aggregator(1, {}) == "cloud"

    def test_greedy_minds_what_was_accepted_unless_it_is_the_papers(self) -> None:
        even = Estimates(0.05, 0.05, 0.3, 0.8, 0.8)
        rejected: dict[Side, bool] = {"device": True, "cloud": False}
        assert FasterSide("device", lambda: even).next_aggregator(1, rejected) == "cloud"
        assert FasterSide("device", lambda: even).next_aggregator(1, rejected | {"cloud": True}) == "device"
        assert FasterSide("cloud", lambda: even).next_aggregator(1, rejected) == "cloud"
        assert FasterSide("device", lambda: even, paper=True).next_aggregator(1, rejected) == "device"

    def test_random_is_the_same_on_both_sides_and_different_for_every_seed(self) -> None:
        def choices(seed: int, role: Side) -> list[Side]:
            policy = placement_policy("random", seed, unasked, role)
            return [policy.next_aggregator(position, {}) for position in range(64)]

        assert choices(5, "device") == choices(5, "cloud")
        assert choices(5, "device") != choices(6, "device")
        assert choices(5, "device") != choices(5 + 2**32, "device")

    def test_random_is_even_and_independent_of_the_position_before(self) -> None:
        """2,000 positions of one fixed seed: each count is within 4.5 standard deviations of its mean."""
        policy = placement_policy("random", 11, unasked, "device")
        devices = [policy.next_aggregator(position, {}) == "device" for position in range(2001)]
        repeats = sum(a == b for a, b in pairwise(devices))
        assert abs(sum(devices) - 1000) < 100
        assert abs(repeats - 1000) < 100

    @pytest.mark.parametrize(("number", "side"), [(0.0, "device"), (0.499, "device"), (0.5, "cloud"), (0.999, "cloud")])
    def test_random_splits_the_unit_interval(self, number: float, side: Side) -> None:
        assert RandomSide(lambda _: number).next_aggregator(3, {}) == side


class TestEstimates:
    @pytest.mark.parametrize(
        "values",
        [
            (-0.1, 0.1, 0.1, 0.5, 0.5),
            (0.1, math.nan, 0.1, 0.5, 0.5),
            (0.1, 0.1, math.inf, 0.5, 0.5),
            (0.1, 0.1, 0.1, 1.1, 0.5),
            (0.1, 0.1, 0.1, 0.5, math.nan),
        ],
    )
    def test_nonsense_is_refused(self, values: tuple[float, float, float, float, float]) -> None:
        with pytest.raises(ValueError, match="must be"):
            Estimates(*values)


def idle_seconds(rtt: float, decode: float, budget: int, tokens: int = 200) -> float:
    """Seconds that a decoder waits for verdicts when every draft is accepted `rtt` after it is decoded."""
    committed = [math.inf] * tokens  # when the verdict on each draft is back
    now = idle = 0.0
    for token in range(tokens):
        # A draft may be started when fewer than `budget` are held, this one not counted.
        if token >= budget:
            wait = max(0.0, committed[token - budget] - now)
            idle, now = idle + wait, now + wait
        now += decode
        committed[token] = now + rtt
    return idle


class TestRunAhead:
    @given(st.floats(0.0, 2.0), st.floats(0.005, 1.0))
    def test_an_accepted_side_never_waits(self, rtt: float, decode: float) -> None:
        assert idle_seconds(rtt, decode, run_ahead(rtt, decode, 1000)) < 1e-9

    @given(st.integers(1, 50), st.floats(0.05, 0.95), st.floats(0.005, 1.0))
    def test_one_draft_less_would_wait(self, steps: int, part: float, decode: float) -> None:
        """The counter-example: a budget without the margin idles on every token."""
        rtt = (steps + part) * decode
        assert idle_seconds(rtt, decode, run_ahead(rtt, decode, 1000, margin=0) - 1) > 0.0
        assert idle_seconds(rtt, decode, run_ahead(rtt, decode, 1000) - 1) > 0.0

    def test_published_settings(self) -> None:
        assert run_ahead(0.3, 0.05, 64) == 7
        assert run_ahead(0.3, 0.02, 64) == 16
        assert run_ahead(0.0, 0.05, 64) == 2

    @given(st.floats(0.0, allow_nan=False), st.floats(0.0, allow_nan=False), st.integers(1, 4096))
    def test_is_bounded(self, rtt: float, decode: float, maximum: int) -> None:
        assert min(2, maximum) <= run_ahead(rtt, decode, maximum) <= maximum

    @given(st.floats(0.0, 10.0), st.floats(0.0, 10.0), st.floats(1e-3, 1.0))
    def test_a_longer_way_never_means_fewer_drafts(self, rtt: float, more: float, decode: float) -> None:
        assert run_ahead(rtt + more, decode, 64) >= run_ahead(rtt, decode, 64)

    def test_one_is_synchronous(self) -> None:
        assert run_ahead(1.0, 0.01, maximum=1) == 1
        assert run_ahead(1.0, 0.01, maximum=1, acceptance=0.0) == 1

    @given(st.floats(0.0, 1.0), st.floats(0.001, 0.5), st.integers(2, 128))
    def test_no_draft_is_made_that_is_hardly_ever_of_use_and_none_is_left_out_that_is(
        self, acceptance: float, survival: float, maximum: int
    ) -> None:
        drafts = run_ahead(math.inf, 0.1, maximum, acceptance, survival=survival)
        # The last of n drafts is of use if the n - 1 before it are accepted.
        assert drafts == 2 or acceptance ** (drafts - 1) >= survival * (1 - 1e-9)
        assert drafts == maximum or acceptance**drafts <= survival * (1 + 1e-9)

    def test_few_are_accepted_few_are_made(self) -> None:
        assert [run_ahead(0.3, 0.01, 64, alpha) for alpha in (0.0, 0.3, 0.5, 0.75, 0.9, 1.0)] == [2, 4, 7, 17, 31, 31]

    @pytest.mark.parametrize(
        "call",
        [
            lambda: run_ahead(-0.1, 0.1, 8),
            lambda: run_ahead(math.nan, 0.1, 8),
            lambda: run_ahead(0.1, math.nan, 8),
            lambda: run_ahead(0.1, 0.1, 0),
            lambda: run_ahead(0.1, 0.1, 8, margin=-1),
            lambda: run_ahead(0.1, 0.1, 8, acceptance=1.1),
            lambda: run_ahead(0.1, 0.1, 8, acceptance=math.nan),
            lambda: run_ahead(0.1, 0.1, 8, survival=0.0),
        ],
    )
    def test_nonsense_is_refused(self, call: Callable[[], int]) -> None:
        with pytest.raises(ValueError, match="must"):
            call()
