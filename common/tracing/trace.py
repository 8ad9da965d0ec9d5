"""A request's trace in the report: both sides' actions on the device's clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from common.estimates.estimators import ClockOffset, RoundTrip
from common.estimates.policy import delta_z
from proto.messages import OTHER, Side
from proto.payloads.trace import Span

# As in proto/payloads/trace.py, but a message is one span if both its ends are known.
IntervalKind = Literal[
    "retrieve", "prefill", "decode", "send", "receive", "transmit", "aggregate", "follow", "roll back", "migrate"
]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The aggregating side's estimates at a decision, in seconds and shares of drafts."""

    device_decode: float
    cloud_decode: float
    rtt: float
    device_acceptance: float
    cloud_acceptance: float
    delta_z: float  # Eq. 8 from the deciding side: above 0 the other side would be the better aggregator


@dataclass(frozen=True, slots=True)
class Interval:
    """An action from `start` to `end`, nanoseconds on the device's clock since the request."""

    side: Side  # actor; sender of a transmission
    kind: IntervalKind
    # Decode step: its draft's result (kept, rejected, discarded after a rejected one, unused, late, pre-empted).
    # Transmission: message. Aggregation: both or alone. Migration: receiver.
    detail: str
    position: int
    start: int
    end: int
    epoch: int = 0
    count: int = 1  # tokens of a target
    device_accepted: bool | None = None  # at a decided position; None: this side did not know the draft
    cloud_accepted: bool | None = None
    estimates: Snapshot | None = None  # at an aggregation


@dataclass(frozen=True, slots=True)
class Probed:
    """A measured round trip of the link."""

    at: int  # nanoseconds, as in `Interval`
    rtt: float  # seconds


@dataclass(frozen=True, slots=True)
class Trace:
    """Both sides' spans in order of beginning.

    The cloud's times are known up to `uncertainty`. The shortest probe estimates how far its clock is `ahead`, wrong by
    half the difference between the two directions. Without a probe or the cloud's half, there are only the device's
    spans, and `notes` says why.
    """

    ahead: int | None  # nanoseconds
    uncertainty: int | None
    spans: tuple[Interval, ...]
    probes: tuple[Probed, ...] = ()
    dropped: int = 0  # missing spans: too many, or impossible
    notes: tuple[str, ...] = ()

    def of(self, *kinds: IntervalKind, side: Side | None = None) -> list[Interval]:
        """Spans of these kinds, of one side or both."""
        return [span for span in self.spans if span.kind in kinds and side in (None, span.side)]

    @property
    def cloud_known(self) -> bool:
        """Whether it includes the cloud's half."""
        return any(span.side == "cloud" and span.kind != "transmit" for span in self.spans)


def from_json(value: Mapping[str, Any]) -> Trace:
    """Reads a trace from a report's JSON. Raises `ValueError` for other content."""
    try:
        spans = [
            Interval(**{**item, "estimates": None if item["estimates"] is None else Snapshot(**item["estimates"])})
            for item in value["spans"]
        ]
        probes = [Probed(**item) for item in value["probes"]]
        rest = {name: value[name] for name in ("ahead", "uncertainty", "dropped")}
        return Trace(spans=tuple(spans), probes=tuple(probes), notes=tuple(value["notes"]), **rest)
    except (TypeError, KeyError, AttributeError):
        raise ValueError("this version of dragon can't read the report's trace") from None


# --- merge
# Merges both sides' spans into one trace on one clock.

SLACK = 1_000_000_000  # ns that a cloud span may exceed the request, beyond the clocks' uncertainty
NO_CLOCK = "The clocks could not be compared, because no probe was answered: the cloud's half is left out."
NO_CLOUD = "The cloud's half of the trace is missing."

_Key = tuple[str, int, int, int]  # message, position, epoch, tokens


@dataclass(frozen=True, slots=True)
class Notes:
    """Recorded spans of one side."""

    spans: Sequence[Span]
    dropped: int = 0


@dataclass(slots=True)
class _Ends:
    sent: list[Interval] = field(default_factory=list)
    received: list[Interval] = field(default_factory=list)


def merge(
    device: Notes,
    cloud: Notes | None,
    clock: ClockOffset | None,
    started: int,
    ended: int,
    trips: Iterable[RoundTrip] = (),
) -> Trace:
    """Merges the trace of a request from `started` to `ended`, device nanoseconds.

    `clock` is the lead of the cloud's clock, which is subtracted. Cloud spans outside the request by more than the
    uncertainty are dropped: the clock is wrong, or the cloud invents them.
    """
    spans = _placed("device", judged("device", device.spans), started)
    dropped = device.dropped
    notes: tuple[str, ...] = ()
    if cloud is None:
        notes = (NO_CLOUD,)
    elif clock is None:
        notes = (NO_CLOCK,)
    else:
        found = _placed("cloud", judged("cloud", cloud.spans), started + clock.ahead)
        first, last = -clock.uncertainty - SLACK, ended - started + clock.uncertainty + SLACK
        possible = [span for span in found if first <= span.start and span.end <= last]
        dropped += cloud.dropped + len(found) - len(possible)
        spans += possible
    probes = [Probed(1000 * trip.sent - started, trip.rtt) for trip in trips]
    return Trace(
        ahead=None if clock is None else clock.ahead,
        uncertainty=None if clock is None else clock.uncertainty,
        spans=tuple(sorted(joined(spans), key=lambda span: (span.start, span.end))),
        probes=tuple(probe for probe in probes if probe.at >= -SLACK),
        dropped=dropped,
        notes=notes,
    )


def judged(side: Side, spans: Sequence[Span]) -> list[tuple[Span, str]]:
    """One side's spans in recorded order, each draft with its result."""
    details = [span.detail for span in spans]
    pending: dict[int, int] = {}  # position -> index of the draft without a verdict
    branches: dict[int, int] = {}  # the same for the latest branch
    for index, span in enumerate(spans):
        if span.kind == "decode" and span.detail == "drafted":
            pending[span.position] = index
            details[index] = "unused"
        elif span.kind == "decode" and span.detail == "branched":
            branches[span.position] = index
        elif span.kind in ("aggregate", "follow"):
            verdict = span.accepted[0 if side == "device" else 1]
            draft, branch = pending.pop(span.position, None), branches.pop(span.position, None)
            judged_one = branch if draft is None else draft
            if verdict is not None and judged_one is not None:
                details[judged_one] = "kept" if verdict else "rejected"
        elif span.kind == "roll back":
            for position in [position for position in pending if position >= span.position]:
                details[pending.pop(position)] = "discarded"
    return list(zip(spans, details, strict=True))


def joined(spans: Iterable[Interval]) -> list[Interval]:
    """Joins the two ends of each message into one span.

    Messages with equal keys are paired in order. If their numbers of ends differ (lost and resent, or in transit), the
    ends stay single.
    """
    rest: list[Interval] = []
    messages: Mapping[tuple[Side, _Key], _Ends] = defaultdict(_Ends)
    for span in spans:
        key = (span.detail, span.position, span.epoch, span.count)
        if span.kind == "send":
            messages[span.side, key].sent.append(span)
        elif span.kind == "receive":
            messages[OTHER[span.side], key].received.append(span)
        else:
            rest.append(span)
    for ends in messages.values():
        if len(ends.sent) == len(ends.received):
            pairs = zip(ends.sent, ends.received, strict=True)
            rest += [replace(sent, kind="transmit", end=received.end) for sent, received in pairs]
        else:
            rest += ends.sent + ends.received
    return rest


def _placed(side: Side, spans: Iterable[tuple[Span, str]], zero: int) -> list[Interval]:
    return [
        Interval(
            side,
            span.kind,
            detail,
            span.position,
            span.start - zero,
            span.end - zero,
            span.epoch,
            span.count,
            *span.accepted,
            _snapshot(side, span),
        )
        for span, detail in spans
    ]


def _snapshot(side: Side, span: Span) -> Snapshot | None:
    if span.estimates is None:
        return None
    device_decode, cloud_decode, rtt, device_acceptance, cloud_acceptance = span.estimates
    device, cloud = (device_decode, device_acceptance), (cloud_decode, cloud_acceptance)
    local, remote = (device, cloud) if side == "device" else (cloud, device)
    score = delta_z(local[0], remote[0], rtt, local[1], remote[1])
    return Snapshot(*span.estimates, delta_z=score)


# --- chrome
# The Trace Event Format of Chrome (chrome://tracing) and Perfetto (ui.perfetto.dev).

PROCESSES: Final[dict[Side, int]] = {"device": 1, "cloud": 2}
LANES: Final = {"decoder": 1, "aggregator": 2, "link": 3}
_LANE_OF: Final = {
    "retrieve": "decoder",
    "prefill": "decoder",
    "decode": "decoder",
    "aggregate": "aggregator",
    "follow": "aggregator",
    "roll back": "aggregator",
    "migrate": "aggregator",
    "send": "link",
    "receive": "link",
}
_MOMENTS: Final = ("roll back", "migrate", "send", "receive")


def chrome_trace(trace: Trace) -> dict[str, Any]:
    """The trace as a JSON object; times are device microseconds since the request."""
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "cloud clock ahead, ns": trace.ahead,
            "uncertainty of the cloud's times, ns": trace.uncertainty,
            "spans left out": trace.dropped,
            "notes": list(trace.notes),
        },
        "traceEvents": [*_names(), *_events(trace), *_counters(trace)],
    }


def _names() -> Iterator[dict[str, Any]]:
    for side, process in PROCESSES.items():
        yield {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": side}}
        for lane, thread in LANES.items():
            yield {"ph": "M", "pid": process, "tid": thread, "name": "thread_name", "args": {"name": lane}}


def _events(trace: Trace) -> Iterator[dict[str, Any]]:
    for number, span in enumerate(trace.spans):
        if span.kind == "transmit":
            yield from _way(number, span)
            continue
        event = {
            "name": f"{span.kind} {span.position}",
            "cat": f"{span.kind},{span.detail}" if span.detail else span.kind,
            "pid": PROCESSES[span.side],
            "tid": LANES[_LANE_OF[span.kind]],
            "ts": span.start / 1000,
            "args": _arguments(span),
        }
        if span.kind in _MOMENTS:
            yield event | {"ph": "i", "s": "t"}
        else:
            yield event | {"ph": "X", "dur": (span.end - span.start) / 1000}


def _way(number: int, span: Interval) -> Iterator[dict[str, Any]]:
    """An asynchronous slice, since messages in transit overlap."""
    event = {
        "name": f"{span.detail} {span.position}",
        "cat": "transmission",
        "id": number,
        "pid": PROCESSES[span.side],
        "tid": LANES["link"],
    }
    yield event | {"ph": "b", "ts": span.start / 1000, "args": _arguments(span)}
    # Clocks are known to half a round trip, so a message can seem to arrive before it was sent.
    yield event | {"ph": "e", "ts": max(span.start, span.end) / 1000}


def _counters(trace: Trace) -> Iterator[dict[str, Any]]:
    process = PROCESSES["device"]
    for probe in trace.probes:
        yield _counter(process, "round trip, ms", probe.at, {"rtt": 1000 * probe.rtt})
    for span in trace.of("aggregate"):
        if (known := span.estimates) is not None:
            yield _counter(process, "delta Z, ms", span.end, {span.side: 1000 * known.delta_z})
            rates = {"device": known.device_acceptance, "cloud": known.cloud_acceptance}
            yield _counter(process, "acceptance", span.end, rates)


def _counter(process: int, name: str, at: int, values: dict[str, float]) -> dict[str, Any]:
    return {"ph": "C", "pid": process, "tid": 0, "name": name, "ts": at / 1000, "args": values}


def _arguments(span: Interval) -> dict[str, Any]:
    values: dict[str, Any] = {"position": span.position, "detail": span.detail, "epoch": span.epoch}
    if span.kind in ("aggregate", "follow"):
        values |= {"device accepted": span.device_accepted, "cloud accepted": span.cloud_accepted}
    return values
