"""Merges two sides' notes into one trace on one clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from common.estimates.cost import delta_z
from common.tracing.trace import Interval, Probed, Snapshot, Trace
from common.transport.probe import ClockOffset, RoundTrip
from proto.fields import OTHER, Side
from proto.payloads.trace import Span

SLACK = 1_000_000_000  # ns beyond the request and the clocks' uncertainty that a span of the cloud may lie
NO_CLOCK = "The clocks could not be compared, for want of a probe: the cloud's half is left out."
NO_CLOUD = "The cloud's half of the trace is missing."

_Key = tuple[str, int, int, int]  # message, position, epoch, tokens


@dataclass(frozen=True, slots=True)
class Notes:
    """Spans that one side noted."""

    spans: Sequence[Span]
    dropped: int = 0


@dataclass(slots=True)
class _Ends:
    """The two ends of all messages that look alike."""

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
    """The trace of a request from `started` to `ended`, nanoseconds of the device's clock.

    `clock` is how far the cloud's clock is ahead. Its spans are moved by that; those which lie outside of the request
    by more than the uncertainty explains are dropped: a wrong clock, or a cloud that makes them up.
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
    """Each of one side's spans, in the order in which they were noted, with what became of it if it is a draft."""
    details = [span.detail for span in spans]
    pending: dict[int, int] = {}  # position -> index of the draft that waits for its verdict
    branches: dict[int, int] = {}  # the same of the latest branch
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
    """The spans, with the two ends of each message's way as one.

    Messages that look alike are paired in order. Where their numbers differ (one was lost and sent again, or is
    still under way) it isn't known which is which, and the ends stay alone.
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
