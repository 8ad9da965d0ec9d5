"""Latency per token, who should aggregate, and how many drafts a side makes ahead (DRAGON §5.1).

`local` is the side that aggregates, `remote` the other one, whose drafts travel: after a rejection the
next one is a decode step and a round trip away (Table 1). So the acceptance that counts is the remote side's.
Times are seconds of a decode step; `rtt` is the transmission delay of both directions together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from proto.messages import Placement, Side

_OTHER: dict[Side, Side] = {"device": "cloud", "cloud": "device"}


def latency_per_token(local_decode: float, remote_decode: float, rtt: float, remote_acceptance: float) -> float:
    """Z^l, the expected seconds between two aggregations that `local` makes (Eq. 7).

    α^r max(c^l, c^r) + (1 - α^r) max(c^l, c^r + rtt)
    """
    accepted = max(local_decode, remote_decode)
    rejected = max(local_decode, remote_decode + rtt)
    return remote_acceptance * accepted + (1.0 - remote_acceptance) * rejected


def delta_z(
    local_decode: float, remote_decode: float, rtt: float, local_acceptance: float, remote_acceptance: float
) -> float:
    """ΔZ = Z^l - Z^r, seconds per token by which the other side is the better aggregator (Eq. 8)."""
    difference = remote_decode - local_decode
    if local_decode <= remote_decode - rtt:
        return (1.0 - remote_acceptance) * rtt
    if local_decode <= remote_decode:
        return (1.0 - local_acceptance) * difference + (local_acceptance - remote_acceptance) * rtt
    if local_decode <= remote_decode + rtt:
        return (1.0 - remote_acceptance) * difference + (local_acceptance - remote_acceptance) * rtt
    return (local_acceptance - 1.0) * rtt


def speed_up(device_decode: float, cloud_decode: float, rtt: float, cloud_acceptance: float) -> float:
    """S, how many times faster speculation is than token-wise exchange when the device aggregates (Eq. 9)."""
    if device_decode <= cloud_decode:
        inverse = 1.0 - cloud_acceptance * rtt / (rtt + cloud_decode)
    elif device_decode <= cloud_decode + rtt:
        inverse = 1.0 - (1.0 - device_decode / (cloud_decode + rtt)) * cloud_acceptance
    else:
        inverse = 1.0
    return 1.0 / inverse


def best_aggregator(
    current: Side,
    local_decode: float,
    remote_decode: float,
    rtt: float,
    local_acceptance: float,
    remote_acceptance: float,
) -> Side:
    """The next aggregator when `current`, the local side, aggregates now (Eq. 6). A tie leaves the role where it is."""
    stay = latency_per_token(local_decode, remote_decode, rtt, remote_acceptance)
    move = latency_per_token(remote_decode, local_decode, rtt, local_acceptance)
    return _OTHER[current] if move < stay else current


# --- estimates
# Measured times, round trip and acceptance of both sides, as placement rules take them.


@dataclass(frozen=True, slots=True)
class Estimates:
    """Inputs of Eq. 7 at one moment. Times are seconds."""

    device_decode: float
    cloud_decode: float
    rtt: float
    device_acceptance: float
    cloud_acceptance: float

    def __post_init__(self) -> None:
        if not all(0.0 <= seconds < math.inf for seconds in (self.device_decode, self.cloud_decode, self.rtt)):
            raise ValueError(f"times must be finite and not negative: {self}")
        if not all(0.0 <= share <= 1.0 for share in (self.device_acceptance, self.cloud_acceptance)):
            raise ValueError(f"acceptance rates must be in [0, 1]: {self}")


# --- hand_over
# Chooses the next aggregator from the verdicts just made (DRAGON Table 1, with the price of moving the role).
#
# Eq. 6 compares what each side would need per token if it aggregated for ever. Moving the role is not free, though: its
# new holder learns of it with the target, one way later. What that costs depends on the position just decided. A side
# whose draft was rejected waits for the target anyway, so the role may as well come with it, and its next draft, being
# local now, need not travel. After two accepted drafts both pipelines would have run on, and the one way is lost. So
# the choice after each position is a decision process with two states, who aggregates, and four outcomes, which drafts
# were accepted; it is solved for the least time per token in the long run.

Accepted = tuple[bool, bool]  # whether the draft of (device, cloud) was the target
_Waits = dict[Side, list[tuple[float, float, float]]]  # who decides: (chance, wait if the device follows, if the cloud)

STEP_MARGIN: Final = 0.4  # of the slower decode step; what the waits leave out is of this order
RTT_MARGIN: Final = 0.3  # of the round trip, where that is less
FIRST_MARGIN: Final = 0.2  # of one way: gained on average, or the device begins

OUTCOMES: Final[tuple[Accepted, ...]] = ((True, True), (True, False), (False, True), (False, False))
_SIDES: Final[tuple[Side, Side]] = ("device", "cloud")
_HORIZON: Final = 16  # positions until an answer may end; beyond ten or so it makes no difference
_SWEEPS: Final = 40  # at most; the relative value settles in ten to twenty
_SETTLED: Final = 1e-3  # seconds per second of the longest wait
_ALWAYS: Final = 0.999  # an acceptance of 1 would make up for any stall


def wait_for_next(estimates: Estimates, current: Side, following: Side, accepted: Accepted) -> float:
    """Seconds between a decision of `current` that found `accepted`, and the next one, which `following` makes.

    As in Table 1, with φ simplified as for Eq. 7. A stall of the faster side is made up for in part: while it lasts
    the slower one drafts ahead, and what follows is decided at the faster side's pace until a rejection.
    """
    decode = (estimates.device_decode, estimates.cloud_decode)
    here = _SIDES.index(current)
    local, remote = decode[here], decode[1 - here]
    local_right, remote_right = accepted[here], accepted[1 - here]
    one_way = 0.5 * estimates.rtt
    if following == current:
        if remote_right:
            return max(local, remote)
        stall = max(remote + estimates.rtt - local, 0.0)
        both = estimates.device_acceptance * estimates.cloud_acceptance
        return max(local, remote + estimates.rtt) - _won_back(stall, local - remote, both)
    if local_right and not remote_right:
        return max(local, one_way + remote)
    if remote_right and not local_right:
        return max(one_way + local, remote)
    return one_way + max(local, remote)


def best_after(current: Side, estimates: Estimates, accepted: Accepted) -> Side:
    """The side that should decide the next position. The role moves for more than a margin only."""
    gain = relative_value(estimates)
    following: Side = "cloud" if current == "device" else "device"
    stay = wait_for_next(estimates, current, current, accepted)
    move = wait_for_next(estimates, current, following, accepted)
    if current == "device":
        move += gain
    else:
        stay += gain
    slower = max(estimates.device_decode, estimates.cloud_decode)
    margin = min(STEP_MARGIN * slower, RTT_MARGIN * estimates.rtt)
    return following if move + margin < stay else current


def best_first(estimates: Estimates) -> Side:
    """The side that should decide the first position.

    The cloud can decide it one way sooner, once the device's first draft is there. It gives that back only if it still
    decides when the answer ends, since the device has to learn of the end; an answer whose role moves back keeps it.
    """
    device, cloud, one_way = estimates.device_decode, estimates.cloud_decode, 0.5 * estimates.rtt
    both = estimates.device_acceptance * estimates.cloud_acceptance
    stall = max(cloud + estimates.rtt - device, 0.0)
    sooner = device + stall - _won_back(stall, device - cloud, both) - (one_way + max(device, cloud))
    waits = _waits(estimates)
    later = one_way  # how much later the device has the whole answer if the cloud decides its end
    for _ in range(_HORIZON):
        of_device, of_cloud = _next_values(waits, later)
        later = of_cloud - of_device
    return "cloud" if later + FIRST_MARGIN * one_way < sooner else "device"


def relative_value(estimates: Estimates) -> float:
    """Seconds that the rest of an answer takes longer when the cloud aggregates than when the device does.

    Relative value iteration; the two sides' drafts are taken to be accepted independently of each other.
    """
    waits = _waits(estimates)
    longest = max(max(to_device, to_cloud) for rows in waits.values() for _, to_device, to_cloud in rows)
    value = 0.0
    for _ in range(_SWEEPS):
        device, cloud = _next_values(waits, value)
        change = 0.5 * (cloud - device - value)  # undamped it may swing for ever
        value += change
        if abs(change) <= _SETTLED * longest:
            break
    return value


def _waits(estimates: Estimates) -> _Waits:
    chances = [
        (accepted, _chance(estimates.device_acceptance, accepted[0]) * _chance(estimates.cloud_acceptance, accepted[1]))
        for accepted in OUTCOMES
    ]
    return {
        side: [
            (
                chance,
                wait_for_next(estimates, side, "device", accepted),
                wait_for_next(estimates, side, "cloud", accepted),
            )
            for accepted, chance in chances
        ]
        for side in _SIDES
    }


def _next_values(waits: _Waits, value: float) -> tuple[float, float]:
    """Seconds to go when (device, cloud) decides, one position earlier than `value` is for."""
    device, cloud = (
        sum(chance * min(to_device, to_cloud + value) for chance, to_device, to_cloud in waits[side]) for side in _SIDES
    )
    return device, cloud


def _won_back(stall: float, pace: float, both: float) -> float:
    """Seconds of a `stall` won back at `pace` per token, for as long as both sides' drafts go on being accepted."""
    if pace <= 0.0 or stall <= 0.0:
        return 0.0
    again = min(both, _ALWAYS)
    tokens = stall / pace  # that it takes to catch up
    return min(stall, pace * again * (1.0 - math.pow(again, tokens)) / (1.0 - again))


def _chance(rate: float, accepted: bool) -> float:
    return rate if accepted else 1.0 - rate


# --- policy

SURVIVAL = 0.01  # of a draft's predecessors, all of them; at most this share of the latency is lost by not making it
MINIMUM_RUN_AHEAD = 2  # the draft that waits for its verdict, and the one being decoded meanwhile


@dataclass(frozen=True, slots=True)
class FixedSide:
    """The same side throughout. For `mirrored`, where both compute the target, the one of record."""

    side: Side

    def next_aggregator(self, position: int, accepted: Mapping[Side, bool]) -> Side:
        return self.side


@dataclass(frozen=True, slots=True)
class RandomSide:
    """Either side with equal probability, anew at every position (§7.4); `draw` gives its uniform number."""

    draw: Callable[[int], float]

    def next_aggregator(self, position: int, accepted: Mapping[Side, bool]) -> Side:
        return "device" if self.draw(position) < 0.5 else "cloud"


@dataclass(frozen=True, slots=True)
class FasterSide:
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
) -> FixedSide | RandomSide | FasterSide:
    """The policy of `role` in one session; `paper` and `first` are those of `FasterSide`.

    Only `greedy` asks for estimates, only `random` uses the seed.
    """
    match placement:
        case "device" | "mirrored":
            return FixedSide("device")
        case "cloud":
            return FixedSide("cloud")
        case "random":
            from common.sampling.compiled import (
                Purpose,
                uniform,  # here, as it imports torch
            )

            return RandomSide(lambda position: uniform(seed, position, Purpose.PLACEMENT))
        case "greedy":
            return FasterSide(role, estimates, paper, first)


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
