"""Chooses the next aggregator from the verdicts just made (DRAGON Table 1, with the price of moving the role).

Eq. 6 compares what each side would need per token if it aggregated for ever. Moving the role is not free, though: its
new holder learns of it with the target, one way later. What that costs depends on the position just decided. A side
whose draft was rejected waits for the target anyway, so the role may as well come with it, and its next draft, being
local now, need not travel. After two accepted drafts both pipelines would have run on, and the one way is lost. So the
choice after each position is a decision process with two states, who aggregates, and four outcomes, which drafts were
accepted; it is solved for the least time per token in the long run.
"""

from __future__ import annotations

import math
from typing import Final

from common.estimates.estimates import Estimates
from proto.fields import Side

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
