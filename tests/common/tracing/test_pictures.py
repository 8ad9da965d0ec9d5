"""A trace for people: Perfetto's format, and Fig. 9."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from common.estimates.estimators import ClockOffset, RoundTrip
from common.tracing.figure import BARS, LINES, ROWS, accumulated_acceptance, draw_timeline
from common.tracing.trace import LANES, PROCESSES, Notes, Trace, chrome_trace, merge
from tests.common.tracing.synthetic import AHEAD, MS, STARTED, cloud, device

NEEDED = {
    "M": {"name", "pid", "tid", "args"},
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "i": {"name", "cat", "pid", "tid", "ts", "s"},
    "b": {"name", "cat", "pid", "id", "ts"},
    "e": {"name", "cat", "pid", "id", "ts"},
    "C": {"name", "pid", "ts", "args"},
}


@pytest.fixture(params=[0, 30])
def trace(request: pytest.FixtureRequest) -> Trace:
    """Traces with a right and a wrong clock, with which messages of one direction arrive before they are sent."""
    clock = ClockOffset(AHEAD + request.param * MS, 40 * MS)
    trips = [RoundTrip(STARTED // 1000, 0, STARTED // 1000 + 40_000)]
    return merge(Notes(device()), Notes(cloud()), clock, STARTED, STARTED + 200 * MS, trips)


def test_every_event_is_one_that_perfetto_reads(trace: Trace) -> None:
    value: dict[str, Any] = json.loads(json.dumps(chrome_trace(trace), allow_nan=False))
    open_ways: dict[tuple[str, int], float] = {}
    for event in value["traceEvents"]:
        assert NEEDED[event["ph"]] <= event.keys(), event
        assert event["pid"] in PROCESSES.values()
        match event["ph"]:
            case "X":
                assert event["dur"] >= 0
            case "b":
                open_ways[event["cat"], event["id"]] = event["ts"]
            case "e":
                assert event["ts"] >= open_ways.pop((event["cat"], event["id"]))
            case "C":
                assert all(isinstance(number, int | float) for number in event["args"].values())
    assert not open_ways


def test_every_span_is_in_its_lane_and_no_two_of_a_lane_overlap(trace: Trace) -> None:
    events = [event for event in chrome_trace(trace)["traceEvents"] if event["ph"] in "Xbi"]
    assert len(events) == len(trace.spans)
    for process in PROCESSES.values():
        lane = [event for event in events if event["pid"] == process and event["tid"] == LANES["decoder"]]
        assert len(lane) > 3
        slices = sorted((event["ts"], event["ts"] + event["dur"]) for event in lane)
        assert all(one[1] <= other[0] for one, other in pairwise(slices))


def test_acceptance_accumulates_over_the_decisions(trace: Trace) -> None:
    assert accumulated_acceptance(trace, "device") == ([0.06, 0.1, 0.132], [1.0, 0.5, 2 / 3])
    assert accumulated_acceptance(trace, "cloud")[1] == [1.0, 1.0, 2 / 3]


def test_the_figure_has_a_bar_for_each_step_and_each_message(trace: Trace) -> None:
    from matplotlib.figure import Figure

    axes = list(Figure().subplots(ROWS, 1))
    draw_timeline(axes, trace)
    steps, ways = trace.of("decode", "prefill", side="cloud"), trace.of("transmit", side="cloud")
    assert len(axes[0].collections) == len(steps) + len(ways)
    assert [len(line.get_xdata()) for line in axes[2].lines] == [1, 3]
    assert axes[2].get_ylim()[1] > max(max(line.get_ydata()) for line in axes[2].lines), "round trips are seen"
    key = axes[0].get_legend()
    assert key is not None
    told = {text.get_text() for text in key.get_texts()}
    assert told == {meaning for _, meaning in BARS.values()} | set(LINES)
    with pytest.raises(ValueError, match="axes"):
        draw_timeline(axes[1:], trace)


def test_a_trace_without_a_cloud_can_be_drawn(trace: Trace) -> None:
    from matplotlib.figure import Figure

    alone = merge(Notes(device()), None, None, STARTED, STARTED + 200 * MS)
    for each in (alone, Trace(None, None, ())):
        draw_timeline(list(Figure().subplots(ROWS, 1)), each)
        json.dumps(chrome_trace(each), allow_nan=False)
