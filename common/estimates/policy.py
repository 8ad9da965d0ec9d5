"""The scheduler's decisions: the next aggregator, and the number of drafts that a side makes ahead."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from common.estimates.cost import best_aggregator
from common.estimates.estimates import Estimates
from common.estimates.hand_over import best_after, best_first
from proto.fields import Placement, Side

SURVIVAL = 0.01  # of a draft's predecessors, all of them; at most this share of the latency is lost by not making it
MINIMUM_RUN_AHEAD = 2  # the draft that waits for its verdict, and the one being decoded meanwhile


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same side throughout. For `mirrored`, where both compute the target, the one of record."""

    side: Side

    def next_aggregator(self, position: int, accepted: Mapping[Side, bool]) -> Side:
        return self.side


@dataclass(frozen=True, slots=True)
class Random:
    """Either side with equal probability, anew at every position (§7.4); `draw` gives its uniform number."""

    draw: Callable[[int], float]

    def next_aggregator(self, position: int, accepted: Mapping[Side, bool]) -> Side:
        return "device" if self.draw(position) < 0.5 else "cloud"


@dataclass(frozen=True, slots=True)
class Greedy:
    """The side that the answer goes on fastest with, by the estimates of `role` and what was just accepted.

    `paper`: the one with the smaller expected latency per token, whatever was accepted (Eq. 6). Asked by the side that
    aggregates, so `role` is the one that has the aggregation now. `first` decides the first position: the two sides
    have different estimates, so the device chooses it when it opens the answer.
    """

    role: Side
    estimates: Callable[[], Estimates]
    paper: bool = False
    first: Side = "device"

    def next_aggregator(self, position: int, accepted: Mapping[Side, bool]) -> Side:
        if position == 0:
            return self.first
        if self.paper or len(accepted) < 2:
            return greedy_aggregator(self.role, self.estimates())
        return best_after(self.role, self.estimates(), (accepted["device"], accepted["cloud"]))


def greedy_aggregator(current: Side, estimates: Estimates) -> Side:
    """Eq. 6 from a snapshot, when `current` aggregates now."""
    device = estimates.device_decode, estimates.device_acceptance
    cloud = estimates.cloud_decode, estimates.cloud_acceptance
    (local_decode, local_acceptance), (remote_decode, remote_acceptance) = (
        (device, cloud) if current == "device" else (cloud, device)
    )
    return best_aggregator(current, local_decode, remote_decode, estimates.rtt, local_acceptance, remote_acceptance)


def first_aggregator(placement: Placement, estimates: Estimates, paper: bool) -> Side:
    """The side that decides the first position of an answer, as the device sees it; the device in the paper (§7.4)."""
    return best_first(estimates) if placement == "greedy" and not paper else "device"


def placement_policy(
    placement: Placement,
    seed: int,
    estimates: Callable[[], Estimates],
    role: Side,
    paper: bool = False,
    first: Side = "device",
) -> Fixed | Random | Greedy:
    """The policy of `role` in one session; `paper` and `first` are those of `Greedy`.

    Only `greedy` asks for estimates, only `random` uses the seed.
    """
    match placement:
        case "device" | "mirrored":
            return Fixed("device")
        case "cloud":
            return Fixed("cloud")
        case "random":
            from common.sampling.noise import Purpose, uniform  # here, as it imports torch

            return Random(lambda position: uniform(seed, position, Purpose.PLACEMENT))
        case "greedy":
            return Greedy(role, estimates, paper, first)


def run_ahead(
    rtt: float,
    decode_seconds: float,
    maximum: int,
    acceptance: float = 1.0,
    margin: int = 1,
    survival: float = SURVIVAL,
) -> int:
    """Drafts a side may hold beyond the committed prefix: enough to be busy while verdicts are under way, none in vain.

    While the verdict on a draft is under way, `rtt` seconds, ceil(rtt / decode_seconds) more are decoded;
    `margin` 1 is what keeps the decoder busy then. Further drafts only add work that a rejection throws away.
    A draft behind n others is of use if all of them are accepted, with probability `acceptance`^n; those with less
    than `survival` are not made. Not below 2, not above `maximum` (1 is synchronous). Give upper estimates of `rtt`
    and `acceptance` where they vary.
    """
    if maximum < 1 or margin < 0:
        raise ValueError(f"maximum must be at least 1 and margin not negative, got {maximum} and {margin}")
    if not (rtt >= 0.0 and decode_seconds >= 0.0):
        raise ValueError(f"times must not be negative, got {rtt} and {decode_seconds}")
    if not (0.0 <= acceptance <= 1.0 and 0.0 < survival < 1.0):
        raise ValueError(f"acceptance and survival must be probabilities, got {acceptance} and {survival}")
    maximum = min(maximum, max(MINIMUM_RUN_AHEAD, _worthwhile(acceptance, survival, maximum)))
    if rtt >= decode_seconds * maximum:  # also where the quotient would be too large for an integer
        return maximum
    return min(maximum, max(MINIMUM_RUN_AHEAD, math.ceil(rtt / decode_seconds) + margin))


def _worthwhile(acceptance: float, survival: float, maximum: int) -> int:
    """Drafts of which the last is still of use with the probability `survival`, up to `maximum`."""
    if acceptance <= survival:
        return 1
    if acceptance**maximum >= survival:
        return maximum
    return 1 + math.floor(math.log(survival) / math.log(acceptance))
