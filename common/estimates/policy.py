"""Latency per token, aggregator choice, and drafts ahead (DRAGON §5.1).

`local` aggregates. `remote` sends its drafts, so its next draft after a rejection takes a decode step and a round trip
(Table 1): its acceptance counts. Decode times are seconds per step; `rtt` covers both directions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from proto.messages import Placement, Side

_OTHER: dict[Side, Side] = {"device": "cloud", "cloud": "device"}


def latency_per_token(local_decode: float, remote_decode: float, rtt: float, remote_acceptance: float) -> float:
    """Z^l, the expected seconds between `local`'s aggregations (Eq. 7).

    α^r max(c^l, c^r) + (1 - α^r) max(c^l, c^r + rtt)
    """
    accepted = max(local_decode, remote_decode)
    rejected = max(local_decode, remote_decode + rtt)
    return remote_acceptance * accepted + (1.0 - remote_acceptance) * rejected


def delta_z(
    local_decode: float, remote_decode: float, rtt: float, local_acceptance: float, remote_acceptance: float
) -> float:
    """ΔZ = Z^l - Z^r, seconds per token saved by moving (Eq. 8)."""
    difference = remote_decode - local_decode
    if local_decode <= remote_decode - rtt:
        return (1.0 - remote_acceptance) * rtt
    if local_decode <= remote_decode:
        return (1.0 - local_acceptance) * difference + (local_acceptance - remote_acceptance) * rtt
    if local_decode <= remote_decode + rtt:
        return (1.0 - remote_acceptance) * difference + (local_acceptance - remote_acceptance) * rtt
    return (local_acceptance - 1.0) * rtt


def speed_up(device_decode: float, cloud_decode: float, rtt: float, cloud_acceptance: float) -> float:
    """S, the speed-up over token-wise exchange, aggregating on the device (Eq. 9)."""
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
    """The next aggregator (Eq. 6); `current` is local, and keeps a tie."""
    stay = latency_per_token(local_decode, remote_decode, rtt, remote_acceptance)
    move = latency_per_token(remote_decode, local_decode, rtt, local_acceptance)
    return _OTHER[current] if move < stay else current


# --- estimates


@dataclass(frozen=True, slots=True)
class Estimates:
    """Inputs of Eq. 7 at one moment, in seconds."""

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
# Choice of the next aggregator by the latest verdicts (DRAGON Table 1, with the cost of moving).
#
# Eq. 6 compares permanent aggregators. But a new aggregator learns of its role with the target, one way later. A side
# with a rejected draft waits for the target anyway: its role costs nothing, and its next draft is local. After two
# accepted drafts both pipelines would have continued, so one way is lost. This is a decision process with two states
# (the aggregator) and four outcomes (the accepted drafts), solved for the least long-run time per token.

Accepted = tuple[bool, bool]  # of (device, cloud)
_Waits = dict[Side, list[tuple[float, float, float]]]  # by decider: (chance, wait for the device, for the cloud)

STEP_MARGIN: Final = 0.4  # of the slower step, the order of neglected waits
RTT_MARGIN: Final = 0.3  # of the round trip, if less
FIRST_MARGIN: Final = 0.2  # of one way: average gain, else the device begins

OUTCOMES: Final[tuple[Accepted, ...]] = ((True, True), (True, False), (False, True), (False, False))
_SIDES: Final[tuple[Side, Side]] = ("device", "cloud")
_HORIZON: Final = 16  # positions until a possible end; ten suffice
_SWEEPS: Final = 40  # the value settles in ten to twenty
_SETTLED: Final = 1e-3  # seconds per second of the longest wait
_ALWAYS: Final = 0.999  # 1 would recover any stall


def wait_for_next(estimates: Estimates, current: Side, following: Side, accepted: Accepted) -> float:
    """Seconds between the decisions of `current`, with outcome `accepted`, and `following`.

    As in Table 1, with φ simplified as for Eq. 7. A stall of the faster side is partly recovered: the slower one drafts
    ahead meanwhile, and decisions then follow the faster pace until a rejection.
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
    """The best next decider; the role moves only beyond a margin."""
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
    """The best first decider.

    The cloud can decide one way earlier, after the device's first draft. It loses that by deciding the answer's end,
    which the device must learn.
    """
    device, cloud, one_way = estimates.device_decode, estimates.cloud_decode, 0.5 * estimates.rtt
    both = estimates.device_acceptance * estimates.cloud_acceptance
    stall = max(cloud + estimates.rtt - device, 0.0)
    sooner = device + stall - _won_back(stall, device - cloud, both) - (one_way + max(device, cloud))
    waits = _waits(estimates)
    later = one_way  # the device's delay if the cloud decides the end
    for _ in range(_HORIZON):
        of_device, of_cloud = _next_values(waits, later)
        later = of_cloud - of_device
    return "cloud" if later + FIRST_MARGIN * one_way < sooner else "device"


def relative_value(estimates: Estimates) -> float:
    """Extra seconds of the rest if the cloud aggregates, not the device.

    Relative value iteration; acceptances count as independent.
    """
    waits = _waits(estimates)
    longest = max(max(to_device, to_cloud) for rows in waits.values() for _, to_device, to_cloud in rows)
    value = 0.0
    for _ in range(_SWEEPS):
        device, cloud = _next_values(waits, value)
        change = 0.5 * (cloud - device - value)  # damped against oscillation
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
    """Remaining seconds for (device, cloud), one position before `value`."""
    device, cloud = (
        sum(chance * min(to_device, to_cloud + value) for chance, to_device, to_cloud in waits[side]) for side in _SIDES
    )
    return device, cloud


def _won_back(stall: float, pace: float, both: float) -> float:
    """Seconds of a `stall` recovered at `pace` per token while drafts are accepted."""
    if pace <= 0.0 or stall <= 0.0:
        return 0.0
    again = min(both, _ALWAYS)
    tokens = stall / pace  # to catch up
    return min(stall, pace * again * (1.0 - math.pow(again, tokens)) / (1.0 - again))


def _chance(rate: float, accepted: bool) -> float:
    return rate if accepted else 1.0 - rate


# --- policy

SURVIVAL = 0.01  # chance that all earlier drafts are accepted; skipping others costs at most this share
MINIMUM_RUN_AHEAD = 2  # one waiting for its verdict, and the next


@dataclass(frozen=True, slots=True)
class FixedSide:
    """Always one side; for `mirrored`, the side of record."""

    side: Side

    def next_aggregator(self, position: int, accepted: Mapping[Side, bool]) -> Side:
        return self.side


@dataclass(frozen=True, slots=True)
class RandomSide:
    """A random side per position (§7.4) by the uniform number `draw`."""

    draw: Callable[[int], float]

    def next_aggregator(self, position: int, accepted: Mapping[Side, bool]) -> Side:
        return "device" if self.draw(position) < 0.5 else "cloud"


@dataclass(frozen=True, slots=True)
class FasterSide:
    """The fastest side by `role`'s estimates and the latest outcomes.

    `paper`: the smaller expected latency, for any outcomes (Eq. 6). The aggregating side asks, so it is `role`. The
    device chooses `first` at the opening, as estimates differ.
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
    """Eq. 6 from a snapshot."""
    device = estimates.device_decode, estimates.device_acceptance
    cloud = estimates.cloud_decode, estimates.cloud_acceptance
    (local_decode, local_acceptance), (remote_decode, remote_acceptance) = (
        (device, cloud) if current == "device" else (cloud, device)
    )
    return best_aggregator(current, local_decode, remote_decode, estimates.rtt, local_acceptance, remote_acceptance)


def first_aggregator(placement: Placement, estimates: Estimates, paper: bool) -> Side:
    """The device's choice for the first position; the device in the paper (§7.4)."""
    return best_first(estimates) if placement == "greedy" and not paper else "device"


def placement_policy(
    placement: Placement,
    seed: int,
    estimates: Callable[[], Estimates],
    role: Side,
    paper: bool = False,
    first: Side = "device",
) -> FixedSide | RandomSide | FasterSide:
    """Make `role`'s policy; `paper` and `first` as in `FasterSide`.

    Only `greedy` uses estimates, only `random` the seed.
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
    """Drafts that keep a side busy without wasted work.

    A verdict of `rtt` seconds allows ceil(rtt / decode_seconds) more drafts; `margin` keeps the decoder busy. Others
    are rejected work. A draft after n others is useful with probability `acceptance`^n, and not made below `survival`.
    At least 2, at most `maximum` (1 is synchronous). Pass upper estimates of varying `rtt` and `acceptance`.
    """
    if maximum < 1 or margin < 0:
        raise ValueError(f"maximum must be at least 1 and margin not negative, got {maximum} and {margin}")
    if not (rtt >= 0.0 and decode_seconds >= 0.0):
        raise ValueError(f"times must not be negative, got {rtt} and {decode_seconds}")
    if not (0.0 <= acceptance <= 1.0 and 0.0 < survival < 1.0):
        raise ValueError(f"acceptance and survival must be probabilities, got {acceptance} and {survival}")
    maximum = min(maximum, max(MINIMUM_RUN_AHEAD, _worthwhile(acceptance, survival, maximum)))
    if rtt >= decode_seconds * maximum:  # also if the quotient is too large
        return maximum
    return min(maximum, max(MINIMUM_RUN_AHEAD, math.ceil(rtt / decode_seconds) + margin))


def _worthwhile(acceptance: float, survival: float, maximum: int) -> int:
    """Most drafts whose last one is still useful with probability `survival`."""
    if acceptance <= survival:
        return 1
    if acceptance**maximum >= survival:
        return maximum
    return 1 + math.floor(math.log(survival) / math.log(acceptance))
