"""Payload of `Spans`: times of a side's work in numbers, without tokens or text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from proto.codes import seal, unseal
from proto.errors import malformed

Kind = Literal["retrieve", "prefill", "decode", "send", "receive", "aggregate", "follow", "roll back", "migrate"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
MESSAGES: Final = ("open", "ready", "draft", "target", "resolve", "resolved", "sync", "propose", "verdict", "decided")
DETAILS: Final[dict[Kind, tuple[str, ...]]] = {
    "retrieve": ("",),
    "prefill": ("",),
    "decode": ("drafted", "pre-empted", "late", "branched"),
    "send": MESSAGES,
    "receive": MESSAGES,
    "aggregate": ("both", "alone"),
    "follow": ("",),
    "roll back": ("",),
    "migrate": ("device", "cloud"),
}
VERDICTS: Final = (None, True, False)  # of a draft at a decided position: none, accepted, rejected

SPANS_PER_MESSAGE: Final = 1024
_LONGEST_ESTIMATE: Final = 1e9  # seconds
_ESTIMATES: Final = ("device_decode", "cloud_decode", "rtt", "device_acceptance", "cloud_acceptance")
_RECORD = np.dtype(
    [
        ("kind", "u1"),
        ("detail", "u1"),
        ("verdicts", "u1"),
        ("count", "<u2"),
        ("position", "<u4"),
        ("epoch", "<u4"),
        ("start", "<u8"),
        ("end", "<u8"),
        *((name, "<f4") for name in _ESTIMATES),
    ]
)


@dataclass(frozen=True, slots=True)
class Span:
    """A side's activity from `start` to `end`, in nanoseconds of its monotonic clock.

    Both are equal for a moment.
    """

    kind: Kind
    detail: str  # one of `DETAILS[kind]`
    position: int
    start: int
    end: int
    epoch: int = 0  # of a decode step or a message
    count: int = 1  # tokens of a target or verdict, positions of a decode step
    accepted: tuple[bool | None, bool | None] = (None, None)  # drafts of (device, cloud) at a decided position
    # At an aggregation: seconds of a device step, a cloud step and a round trip, and both acceptance rates.
    estimates: tuple[float, float, float, float, float] | None = None


def encode_spans(spans: Sequence[Span]) -> bytes:
    """Returns the payload of at most `SPANS_PER_MESSAGE` spans. Raises `ValueError` for more."""
    if len(spans) > SPANS_PER_MESSAGE:
        raise ValueError(f"a payload has at most {SPANS_PER_MESSAGE} spans, not {len(spans)}")
    records = np.zeros(len(spans), _RECORD)
    for record, span in zip(records, spans, strict=True):
        device, cloud = (VERDICTS.index(verdict) for verdict in span.accepted)
        record["kind"] = KINDS.index(span.kind)
        record["detail"] = DETAILS[span.kind].index(span.detail)
        record["verdicts"] = len(VERDICTS) * device + cloud
        for name in ("count", "position", "epoch", "start", "end"):
            record[name] = getattr(span, name)
        for name, value in zip(_ESTIMATES, span.estimates or (), strict=False):
            record[name] = value
    return seal(0, records.tobytes())


def decode_spans(data: bytes) -> list[Span]:
    """Returns the spans in a payload. Raises `ProtocolError`."""
    _, body = unseal(data, 1, SPANS_PER_MESSAGE * _RECORD.itemsize)
    if len(body) % _RECORD.itemsize:
        raise malformed(f"spans must be {_RECORD.itemsize} bytes each")
    return [_span(*values) for values in np.frombuffer(body, _RECORD).tolist()]


def _span(
    kind: int,
    detail: int,
    verdicts: int,
    count: int,
    position: int,
    epoch: int,
    start: int,
    end: int,
    *estimates: float,
) -> Span:
    if kind >= len(KINDS) or detail >= len(DETAILS[KINDS[kind]]):
        raise malformed("the kind and the detail of a span must be known ones")
    name = KINDS[kind]
    if verdicts >= len(VERDICTS) ** 2 or (verdicts and name not in ("aggregate", "follow")):
        raise malformed("the verdicts of a span must be known ones, of a decided position")
    if not start <= end < 2**63:
        raise malformed("a span must end after it starts, below 2^63 nanoseconds")
    if position >= 2**20 or not 0 < count <= 4096:
        raise malformed("a span must have a position below 2^20 and 1 to 4096 tokens")
    device, cloud = divmod(verdicts, len(VERDICTS))
    return Span(
        name,
        DETAILS[name][detail],
        position,
        start,
        end,
        epoch,
        count,
        (VERDICTS[device], VERDICTS[cloud]),
        _estimates(name, estimates),
    )


def _estimates(kind: Kind, values: Sequence[float]) -> tuple[float, float, float, float, float] | None:
    if kind != "aggregate":
        if any(values):  # NaN counts as true
            raise malformed("only an aggregation has estimates")
        return None
    device_decode, cloud_decode, rtt, device_acceptance, cloud_acceptance = values
    times, rates = (device_decode, cloud_decode, rtt), (device_acceptance, cloud_acceptance)
    # NaN fails the comparisons
    if not (all(0.0 <= time <= _LONGEST_ESTIMATE for time in times) and all(0.0 <= rate <= 1.0 for rate in rates)):
        raise malformed("the estimates of a span must be times from 0 to 1e9 seconds and rates from 0 to 1")
    return (*times, *rates)
