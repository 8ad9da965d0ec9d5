"""Eq. 6-8 against each other, against the pipelines of Appendix A.3, and against the paper's case study."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.estimates.policy import Estimates, best_aggregator, delta_z, greedy_aggregator, latency_per_token, speed_up
from proto.messages import Side

seconds = st.floats(1e-4, 2.0)
shares = st.floats(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Case:
    local_decode: float
    remote_decode: float
    rtt: float
    local_acceptance: float
    remote_acceptance: float

    def delta(self) -> float:
        return delta_z(self.local_decode, self.remote_decode, self.rtt, self.local_acceptance, self.remote_acceptance)

    def stay(self) -> float:
        return latency_per_token(self.local_decode, self.remote_decode, self.rtt, self.remote_acceptance)

    def move(self) -> float:
        return latency_per_token(self.remote_decode, self.local_decode, self.rtt, self.local_acceptance)

    def best(self, current: Side) -> Side:
        return best_aggregator(
            current,
            self.local_decode,
            self.remote_decode,
            self.rtt,
            self.local_acceptance,
            self.remote_acceptance,
        )

    def mirrored(self) -> Case:
        return Case(self.remote_decode, self.local_decode, self.rtt, self.remote_acceptance, self.local_acceptance)


cases = st.builds(Case, seconds, seconds, st.floats(0.0, 2.0), shares, shares)


def pipeline_period(
    decode: tuple[float, float], transmission: tuple[float, float], accepted: tuple[bool, bool]
) -> float:
    """Seconds per aggregation of the pipelines of Appendix A.3, (local, remote), event by event.

    A side whose draft was accepted decodes on; a rejected one starts over when it learns of the target.
    """
    rounds = 4000
    local_ready, remote_ready = decode
    aggregated = first = 0.0
    for step in range(rounds):
        aggregated = max(local_ready, remote_ready + transmission[1], aggregated)
        if step == rounds // 2:
            first = aggregated
        local_ready = (local_ready if accepted[0] else aggregated) + decode[0]
        remote_ready = (remote_ready if accepted[1] else aggregated + transmission[0]) + decode[1]
    return (aggregated - first) / (rounds - 1 - rounds // 2)


@pytest.mark.parametrize(
    ("decode", "transmission", "accepted", "period"),
    [
        ((1.0, 1.5), (1.2, 1.8), (False, True), 1.5),  # Fig. 10
        ((2.0, 2.0), (1.5, 1.0), (True, False), 4.5),  # Fig. 11
        ((1.0, 1.5), (1.5, 1.8), (True, True), 1.5),  # Fig. 12
        ((3.0, 0.5), (0.5, 1.0), (False, True), 3.0),
        ((5.0, 0.5), (0.5, 1.0), (True, False), 5.0),
        ((1.0, 0.5), (0.5, 1.0), (False, False), 2.0),
    ],
)
def test_certain_outcomes_give_the_period_of_the_pipeline(
    decode: tuple[float, float], transmission: tuple[float, float], accepted: tuple[bool, bool], period: float
) -> None:
    """The local draft's fate is without effect: Eq. 7 with the local acceptance fails Fig. 10 and 11."""
    assert pipeline_period(decode, transmission, accepted) == pytest.approx(period, rel=1e-3)
    assert latency_per_token(*decode, sum(transmission), float(accepted[1])) == pytest.approx(period)


@given(
    st.tuples(seconds, seconds),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.tuples(st.booleans(), st.booleans()),
)
def test_any_pipeline_has_the_latency_of_the_formula(
    decode: tuple[float, float], transmission: tuple[float, float], accepted: tuple[bool, bool]
) -> None:
    # A pipeline may keep a lead from its first rounds; the average over the later ones hardly shows it.
    expected = latency_per_token(*decode, sum(transmission), float(accepted[1]))
    assert pipeline_period(decode, transmission, accepted) == pytest.approx(expected, rel=5e-3, abs=2e-3)


@given(cases)
def test_eq8_is_the_difference_of_eq7(case: Case) -> None:
    assert case.delta() == pytest.approx(case.stay() - case.move(), abs=1e-12)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # c_l <= c_r - rtt: (1 - a_r) rtt
        (Case(0.1, 0.5, 0.3, 0.2, 0.6), 0.4 * 0.3),
        # c_r - rtt < c_l <= c_r: (1 - a_l) (c_r - c_l) + (a_l - a_r) rtt
        (Case(0.3, 0.5, 0.3, 0.2, 0.6), 0.8 * 0.2 - 0.4 * 0.3),
        # c_r < c_l <= c_r + rtt: (1 - a_r) (c_r - c_l) + (a_l - a_r) rtt
        (Case(0.5, 0.3, 0.3, 0.2, 0.6), 0.4 * -0.2 - 0.4 * 0.3),
        # c_r + rtt < c_l: (a_l - 1) rtt
        (Case(0.9, 0.5, 0.3, 0.2, 0.6), -0.8 * 0.3),
    ],
)
def test_eq8_case_by_case(case: Case, expected: float) -> None:
    assert case.delta() == pytest.approx(expected)


@given(cases)
def test_seen_from_the_other_side_the_difference_has_the_other_sign(case: Case) -> None:
    assert case.mirrored().delta() == pytest.approx(-case.delta(), abs=1e-12)


@given(seconds, st.floats(1e-3, 2.0), shares, shares)
def test_eq8_is_continuous_where_its_cases_meet(
    decode: float, rtt: float, local_acceptance: float, remote_acceptance: float
) -> None:
    for meeting in (decode, decode + rtt):
        below, above = (
            Case(local, decode, rtt, local_acceptance, remote_acceptance).delta()
            for local in (meeting, math.nextafter(meeting, math.inf))
        )
        assert below == pytest.approx(above, abs=1e-9)


@given(cases, st.sampled_from(["device", "cloud"]))
def test_the_side_with_the_smaller_latency_aggregates(case: Case, current: Side) -> None:
    other: Side = "cloud" if current == "device" else "device"
    if abs(case.stay() - case.move()) > 1e-12:
        assert case.best(current) == (current if case.stay() < case.move() else other)


@given(cases)
def test_greedy_is_the_same_from_either_side(case: Case) -> None:
    estimates = Estimates(
        case.local_decode, case.remote_decode, case.rtt, case.local_acceptance, case.remote_acceptance
    )
    if abs(case.delta()) > 1e-12:
        chosen = greedy_aggregator("device", estimates)
        assert chosen == greedy_aggregator("cloud", estimates)
        assert chosen == ("device" if case.stay() < case.move() else "cloud")


def test_swapped_acceptances_would_choose_wrongly() -> None:
    """The case study of §7.4: device drafts accepted, cloud drafts rejected, so the cloud aggregates."""
    case = Case(local_decode=0.3, remote_decode=0.05, rtt=0.5, local_acceptance=1.0, remote_acceptance=0.0)
    assert case.best("device") == "cloud"
    swapped = Case(0.3, 0.05, 0.5, local_acceptance=0.0, remote_acceptance=1.0)
    assert swapped.best("device") == "device"


@given(seconds, st.floats(1e-3, 1.0), st.floats(1.001, 3.0), st.floats(0.0, 0.99), st.floats(0.0, 0.99))
def test_the_bottleneck_aggregates_whatever_the_acceptance(
    decode: float, rtt: float, factor: float, slow_acceptance: float, fast_acceptance: float
) -> None:
    case = Case((decode + rtt) * factor, decode, rtt, slow_acceptance, fast_acceptance)
    assert case.best("device") == "device"
    assert case.mirrored().best("cloud") == "device"


@given(cases)
def test_speed_up_over_the_synchronous_mode_is_eq9(case: Case) -> None:
    rtt = max(case.rtt, 1e-3)
    local, remote, acceptance = case.local_decode, case.remote_decode, case.remote_acceptance
    if local <= remote:
        inverse = 1.0 - acceptance / (1.0 + remote / rtt)
    elif local <= remote + rtt:
        inverse = 1.0 - (1.0 - local / (remote + rtt)) * acceptance
    else:
        inverse = 1.0
    synchronous = latency_per_token(local, remote, rtt, 0.0)
    assert latency_per_token(local, remote, rtt, acceptance) == pytest.approx(inverse * synchronous)


class TestStaying:
    def test_equals_stay(self) -> None:
        case = Case(0.1, 0.1, 0.3, 0.5, 0.5)
        assert case.best("device") == "device"
        assert case.best("cloud") == "cloud"

    @given(cases)
    def test_never_moves_to_and_fro_on_the_same_estimates(self, case: Case) -> None:
        if case.best("device") == "cloud":
            assert case.mirrored().best("cloud") == "cloud"


class TestSpeedUp:
    """Theorem 6.2."""

    @given(device=seconds, cloud=seconds, rtt=st.floats(1e-3, 2.0), alpha=shares)
    def test_is_the_ratio_of_eq_7_without_and_with_accepted_drafts(
        self, device: float, cloud: float, rtt: float, alpha: float
    ) -> None:
        ratio = latency_per_token(device, cloud, rtt, 0.0) / latency_per_token(device, cloud, rtt, alpha)
        assert speed_up(device, cloud, rtt, alpha) == pytest.approx(ratio)

    def test_limits(self) -> None:
        assert speed_up(0.05, 0.05, 0.3, 0.0) == 1.0
        assert speed_up(0.05, 0.05, 0.3, 1.0) == pytest.approx(7.0)
        assert speed_up(0.01, 0.05, 0.3, 0.9) == speed_up(0.05, 0.05, 0.3, 0.9)
        assert speed_up(0.5, 0.05, 0.3, 1.0) == 1.0
