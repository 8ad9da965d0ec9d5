"""A trace in the Trace Event Format that Chrome (chrome://tracing) and Perfetto (ui.perfetto.dev) open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from common.tracing.trace import Interval, Trace
from proto.fields import Side

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
    """The trace as one JSON object. Times are microseconds of the device's clock since the request."""
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
    """A message under way. Several are at a time, so they are asynchronous slices, which may overlap."""
    event = {
        "name": f"{span.detail} {span.position}",
        "cat": "transmission",
        "id": number,
        "pid": PROCESSES[span.side],
        "tid": LANES["link"],
    }
    yield event | {"ph": "b", "ts": span.start / 1000, "args": _arguments(span)}
    # With clocks that are known to half a round trip, a message can seem to arrive before it was sent.
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
