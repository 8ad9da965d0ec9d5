"""Latency per token, and who should aggregate (DRAGON §5.1).

`local` is the side that aggregates, `remote` the other one, whose drafts travel: after a rejection the
next one is a decode step and a round trip away (Table 1). So the acceptance that counts is the remote side's.
Times are seconds of a decode step; `rtt` is the transmission delay of both directions together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from proto.messages import Side

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
