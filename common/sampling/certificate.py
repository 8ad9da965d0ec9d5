"""A view of one side's race, the outcome of an aggregation, and its certificate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from proto.codes import RaceEntries, decode_probabilities

WHOLE: Final = 1 << 16  # η = 1


@dataclass(frozen=True, slots=True, eq=False)
class RaceView:
    """A side's fastest tokens, bit for bit equal for sender and receiver.

    An unlisted token is no faster than `threshold`. A token listed on request may be slower.
    """

    position: int
    entries: RaceEntries  # ids strictly increasing
    speeds: NDArray[np.float64]  # [n], p / E of each entry
    threshold: float
    token: int = field(init=False)  # the side's draft: its fastest token, the lowest id of ties
    speed_of: dict[int, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "token", int(self.entries.ids[int(self.speeds.argmax())]))
        speed_of = dict(zip(self.entries.ids.tolist(), self.speeds.tolist(), strict=True))
        object.__setattr__(self, "speed_of", speed_of)

    def fastest(self, count: int) -> list[tuple[int, float]]:
        """The fastest tokens with log speeds, the draft first, without those of speed 0."""
        order = np.lexsort((self.entries.ids, -self.speeds))[:count]
        order = order[self.speeds[order] > 0.0]
        return list(zip(self.entries.ids[order].tolist(), np.log(self.speeds[order]).tolist(), strict=True))

    @property
    def listed(self) -> NDArray[np.integer]:
        """Ids, increasing."""
        return self.entries.ids


# --- outcome
# The outcome of aggregating both sides' views.


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural logarithms of probabilities before the temperature."""

    token: float
    top: tuple[tuple[int, float], ...]  # the most probable tokens with logarithms, in descending order


@dataclass(frozen=True, slots=True)
class JointToken:
    """A token decided from both mixtures; the session's draft of the device."""

    token: int
    logprobs: Logprobs | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    token: int
    cloud_share: float | None = None  # the cloud's share in the token's probability
    expected: tuple[float, float] | None = None  # Eq. 5: alpha of (device, cloud), if the sampler has them
    logprobs: Logprobs | None = None  # if requested
    degraded: bool = False  # without the other side's draft, which changed


@dataclass(frozen=True, slots=True)
class MissingThere:
    """A failed certificate: the remote view lacks values."""

    ids: tuple[int, ...]
    depth: int  # wanted length of the remote list, or 0 for `ids`


@dataclass(frozen=True, slots=True)
class MissingHere:
    """A failed certificate: the local view lacks values. This side can look them up."""

    ids: tuple[int, ...]
    depth: int  # wanted length of the local list, or 0 for `ids`


Outcome = Decision | MissingThere | MissingHere


# --- logprobs
# Log-probabilities in both sides' mixture, from the session's known values.

_LEAST: Final = 2.0**-33  # code 0 means less than this


def logprobs(device: RaceView | None, cloud: RaceView | None, eta_device: int, token: int, count: int) -> Logprobs:
    """Log-probabilities of `token` and the `count` most probable tokens in two views' mixture.

    A view of None has no weight; `eta_device` is `eta_fixed`'s. Unlisted tokens count as 0: they are less probable than
    any token listed as probable.
    """
    mixture: dict[int, float] = {}
    for view, weight in ((device, eta_device if cloud else WHOLE), (cloud, WHOLE - eta_device if device else WHOLE)):
        if view is None:
            continue
        for name, probability in zip(
            view.entries.ids.tolist(), decode_probabilities(view.entries.codes).tolist(), strict=True
        ):
            mixture[name] = mixture.get(name, 0.0) + weight / WHOLE * probability
    return of_mixture(mixture, token, count)


def of_mixture(mixture: Mapping[int, float], token: int, count: int) -> Logprobs:
    """As `logprobs`, for tokens in `mixture`; ties by lowest id."""
    ordered = sorted(mixture, key=lambda name: (-mixture[name], name))[:count]
    top = tuple((name, _log(mixture[name])) for name in ordered if mixture[name] > 0)
    return Logprobs(_log(mixture.get(token, 0.0)), top)


def _log(probability: float) -> float:
    return min(0.0, math.log(max(probability, _LEAST)))


# --- certificate
# Certifies the winning token from two lists of fastest tokens: a distributed top-1 query.
#
# The target is the token with the highest score, the lowest id of ties:
#
#     score_i = η_device · speed_i^device + η_cloud · speed_i^cloud
#
# A list bounds unlisted tokens by its threshold τ:
#
#     lower_i = Σ_s η^s · (speed_i^s if listed by s else 0)
#     upper_i = Σ_s η^s · (speed_i^s if listed by s else τ_s)
#
# A token whose lower bound beats every other upper bound has won (threshold algorithm: Fagin, Lotem, Naor 2003). Scores
# are float64 sums of two products. Rounding is monotone, so the bounds are valid for rounded scores, too.

NO_EVIDENCE: Final = -1e30  # log h of a side without documents
_ABSENT_BELOW: Final = -9e29  # float32 changes -1e30 slightly


@dataclass(frozen=True, slots=True)
class MissingValues:
    """Missing values: the device's of `device_ids`, the cloud's of `cloud_ids` (both sorted).

    `deeper`: an unlisted token could win, so every list with a threshold above 0 must grow.
    """

    device_ids: tuple[int, ...]
    cloud_ids: tuple[int, ...]
    deeper: bool


def has_documents(log_h: float) -> bool:
    """Whether a side's evidence comes from documents and is not `NO_EVIDENCE`."""
    return log_h >= _ABSENT_BELOW


def eta_fixed(log_h_device: float, log_h_cloud: float) -> int:
    """η^device = softmax([log_h^device, log_h^cloud])_device in 2**-16, 0 to 65536 (Appendix A.1).

    η^cloud is the rest. A side without documents (`NO_EVIDENCE`) has no weight. If both lack them, the device has all.
    """
    if not has_documents(log_h_cloud):
        return WHOLE
    if not has_documents(log_h_device):
        return 0
    difference = log_h_cloud - log_h_device
    if difference > 0:
        ratio = math.exp(-difference)
        return round(WHOLE * (ratio / (1.0 + ratio)))
    return round(WHOLE / (1.0 + math.exp(difference)))


def certify(device: RaceView, cloud: RaceView, eta_device: int) -> int | MissingValues:
    """The target, or the values needed to find it. `eta_device` is `eta_fixed`'s."""
    device_weight, cloud_weight = float(eta_device), float(WHOLE - eta_device)
    device_speed, cloud_speed = device.speed_of, cloud.speed_of
    device_cap, cloud_cap = device_weight * device.threshold, cloud_weight * cloud.threshold
    winner, best = _leader(device, cloud, eta_device)
    device_ids: list[int] = []
    cloud_ids: list[int] = []
    for token, speed in device_speed.items():
        if token not in cloud_speed and token != winner:
            upper = device_weight * speed + cloud_cap
            if upper > best or (upper == best and token < winner):
                cloud_ids.append(token)
    for token, speed in cloud_speed.items():
        if token not in device_speed and token != winner:
            upper = device_cap + cloud_weight * speed
            if upper > best or (upper == best and token < winner):
                device_ids.append(token)
    # An unlisted token may have any id, and so could win a tie.
    deeper = device_cap + cloud_cap >= best
    if not (device_ids or cloud_ids or deeper):
        return winner
    if device_cap > 0 and winner not in device_speed:
        device_ids.append(winner)
    if cloud_cap > 0 and winner not in cloud_speed:
        cloud_ids.append(winner)
    return MissingValues(tuple(sorted(device_ids)), tuple(sorted(cloud_ids)), deeper)


def lower_bound_winner(device: RaceView, cloud: RaceView, eta_device: int) -> int:
    """The token with the highest lower bound, for `exact = false`."""
    return _leader(device, cloud, eta_device)[0]


def _leader(device: RaceView, cloud: RaceView, eta_device: int) -> tuple[int, float]:
    """The highest lower bound and its token. Views list tokens in increasing order."""
    device_weight, cloud_weight = float(eta_device), float(WHOLE - eta_device)
    device_speed, cloud_speed = device.speed_of, cloud.speed_of
    winner, best = -1, -1.0
    for token, speed in device_speed.items():
        lower = device_weight * speed + cloud_weight * cloud_speed.get(token, 0.0)
        if lower > best:
            winner, best = token, lower
    for token, speed in cloud_speed.items():
        if token not in device_speed:
            lower = cloud_weight * speed
            if lower > best or (lower == best and token < winner):
                winner, best = token, lower
    return winner, best
