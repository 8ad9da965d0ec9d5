"""The trace of a request: what both sides did, on the device's clock, as it stands in the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from proto.fields import Side

# As in proto/payloads/trace.py, but with a message's way as one span where both ends of it are known.
IntervalKind = Literal[
    "retrieve", "prefill", "decode", "send", "receive", "transmit", "aggregate", "follow", "roll back", "migrate"
]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Estimates of the aggregating side when it decided a position. Seconds, and shares of drafts."""

    device_decode: float
    cloud_decode: float
    rtt: float
    device_acceptance: float
    cloud_acceptance: float
    delta_z: float  # Eq. 8, from the side that decided: above 0 the other one would be the better aggregator


@dataclass(frozen=True, slots=True)
class Interval:
    """Something that took from `start` to `end`: nanoseconds of the device's clock since the request."""

    side: Side  # who did it; of a transmission, who sent
    kind: IntervalKind
    # Of a decode step what became of its draft: kept, rejected, discarded (it followed a rejected one), unused, late,
    # pre-empted. Of a transmission which message, of an aggregation both or alone, of a migration to whom.
    detail: str
    position: int
    start: int
    end: int
    epoch: int = 0
    count: int = 1  # tokens of a target
    device_accepted: bool | None = None  # of a decided position; None: this side did not know the draft
    cloud_accepted: bool | None = None
    estimates: Snapshot | None = None  # of an aggregation


@dataclass(frozen=True, slots=True)
class Probed:
    """A round trip of the link that was measured meanwhile."""

    at: int  # nanoseconds, as in `Interval`
    rtt: float  # seconds


@dataclass(frozen=True, slots=True)
class Trace:
    """Both sides' spans in the order in which they began.

    The cloud's times are known up to `uncertainty`: its clock is taken to be `ahead` of the device's by what the
    shortest probe tells, which is off by half of what the two directions differ by. Without a probe, or without the
    cloud's half, there are the device's spans alone and `notes` says why.
    """

    ahead: int | None  # nanoseconds
    uncertainty: int | None
    spans: tuple[Interval, ...]
    probes: tuple[Probed, ...] = ()
    dropped: int = 0  # spans that are missing: too many, or impossible
    notes: tuple[str, ...] = ()

    def of(self, *kinds: IntervalKind, side: Side | None = None) -> list[Interval]:
        """The spans of these kinds, of one side or of both."""
        return [span for span in self.spans if span.kind in kinds and side in (None, span.side)]

    @property
    def cloud_known(self) -> bool:
        """Whether the cloud's half is in it."""
        return any(span.side == "cloud" and span.kind != "transmit" for span in self.spans)


def from_json(value: Mapping[str, Any]) -> Trace:
    """The trace in a report as JSON. Raises `ValueError` when it isn't one."""
    try:
        spans = [
            Interval(**{**item, "estimates": None if item["estimates"] is None else Snapshot(**item["estimates"])})
            for item in value["spans"]
        ]
        probes = [Probed(**item) for item in value["probes"]]
        rest = {name: value[name] for name in ("ahead", "uncertainty", "dropped")}
        return Trace(spans=tuple(spans), probes=tuple(probes), notes=tuple(value["notes"]), **rest)
    except (TypeError, KeyError, AttributeError):
        raise ValueError("the report's trace is not one that this version of dragon reads") from None
