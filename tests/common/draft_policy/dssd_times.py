"""The analysis of DSSD and of the scheme that it is compared with (Ning et al. 2025), equation by equation.

DSD sends every drafted token's whole distribution up; DSSD sends one of the verifier's down, after a rejection.
V is the vocabulary, `value_bits` the paper's b_prob, rates are bits per second, times seconds. A token is accepted
with min(1, p/q): the paper prints the ratio the other way round throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

from common.draft_policy.times import expected_tokens


@dataclass(frozen=True, slots=True)
class Dense:
    """The paper's link and payload: distributions of V values of `value_bits` each."""

    vocabulary: int
    value_bits: int
    rate: float  # bits per second of the direction that they travel
    non_transmission: float  # T_NTT: propagation, processing and queues, both ways

    @property
    def transmission(self) -> float:
        """Seconds of one distribution: |V| b_prob / R, Eqs. 1, 2 and 8."""
        return self.vocabulary * self.value_bits / self.rate


def dsd_uplink_bits(length: int, vocabulary: int, value_bits: int) -> int:
    """D_up = γ |V| b_prob, Eq. 4."""
    return length * vocabulary * value_bits


def dsd_communication(link: Dense, length: int) -> float:
    """T_comm of a round of DSD, Eqs. 3 and 5."""
    return dsd_uplink_bits(length, link.vocabulary, link.value_bits) / link.rate + link.non_transmission


def dsd_round(link: Dense, length: int, draft: float, verify: float) -> float:
    """T_inf of a round of DSD, Eqs. 6 and 7."""
    return length * draft + verify + dsd_communication(link, length)


def rejection(acceptance: float, length: int) -> float:
    """1 - α^γ, the probability that a round rejects."""
    return 1.0 - acceptance**length


def dssd_communication(link: Dense, acceptance: float, length: int) -> float:
    """T_comm of a round of DSSD on average, Eq. 9."""
    return rejection(acceptance, length) * link.transmission + link.non_transmission


def dssd_bounds(link: Dense) -> tuple[float, float]:
    """Eq. 10: T_comm is T_NTT at least, reached at α = 1 (Eq. 12), and T_down + T_NTT at most, for long γ (Eq. 11)."""
    return link.non_transmission, link.transmission + link.non_transmission


def dssd_round(link: Dense, acceptance: float, length: int, draft: float, verify: float) -> float:
    """T_inf of a round of DSSD on average, Eq. 13."""
    return length * draft + verify + dssd_communication(link, acceptance, length)


def speed_up(round_seconds: float, acceptance: float, length: int, verify: float) -> float:
    """Eqs. 14 and 15: throughput over that of the target alone, which takes `verify` seconds per token."""
    return expected_tokens(acceptance, length) * verify / round_seconds
