"""Parts of a trace that the device takes from the cloud: nothing that is malformed, and each part once."""

from __future__ import annotations

import logging
import time

import pytest

from common.answer.recorder import MOST_PARTS, MOST_SPANS, Recorder, span_messages
from common.estimates.policy import Estimates
from common.estimates.profiler import LinkMeter
from common.tracing.trace import Trace
from common.transport.sending import reply_to_probe
from device.tracing import Tracing
from proto.messages import Closed, Probe, Ready, Spans
from proto.payloads.trace import Span, encode_spans


def tracing() -> Tracing:
    """Tracing of a request over a link whose two clocks are equal, after one probe came back."""
    probes: list[Probe] = []
    meter = LinkMeter(probes.append)
    meter.probe(0.0)
    meter.replied(reply_to_probe(probes[0], probes[0].sent))
    recorder = Recorder("device", lambda: Estimates(0, 0, 0, 0, 0), "device")
    return Tracing(recorder, lambda: meter, time.monotonic())


def part(number: int, position: int, at: int, parts: int = 2) -> Spans:
    return Spans(1, number, parts, 0, encode_spans([Span("prefill", "", position, at, at)]))


def prefills(trace: Trace) -> list[int]:
    return [span.position for span in trace.of("prefill", side="cloud")]


def test_parts_may_come_twice_and_in_any_order() -> None:
    collecting = tracing()
    now = collecting.recorder._clock()
    for message in (part(1, 11, now), part(0, 10, now), part(1, 11, now)):
        assert collecting.heard(message)
    assert prefills(collecting.merged()) == [10, 11]


def test_what_is_malformed_costs_a_line_in_the_log_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    collecting = tracing()
    now = collecting.recorder._clock()
    with caplog.at_level(logging.WARNING):
        assert collecting.heard(Spans(1, 0, 2, 0, b"\0junk"))
        assert collecting.heard(part(7, 13, now))  # the eighth of two
    assert len(caplog.records) == 1
    assert "malformed" in caplog.text
    assert collecting.heard(part(1, 11, now))
    assert prefills(collecting.merged()) == [11]


def test_more_than_a_side_notes_is_not_taken() -> None:
    """Telling what became of drafts takes up to the square of their number: minutes for 256 messages."""
    collecting = tracing()
    now = collecting.recorder._clock()
    for number in range(256):
        assert collecting.heard(part(number, number, now, 256))
    assert prefills(collecting.merged()) == list(range(MOST_PARTS))


def test_all_that_a_side_notes_is_taken() -> None:
    collecting = tracing()
    cloud = Recorder("cloud", lambda: Estimates(0, 0, 0, 0, 0), "device")
    for _ in range(MOST_SPANS + 3):
        cloud.since("prefill", cloud._clock())
    messages = list(span_messages(1, cloud))
    for message in messages:
        assert collecting.heard(message)
    trace = collecting.merged()
    assert (len(messages), len(prefills(trace)), trace.dropped) == (MOST_PARTS, MOST_SPANS, 3)


def test_other_messages_go_on_to_whom_they_are_for() -> None:
    collecting = tracing()
    assert not collecting.heard(Ready(1, (), 5, 0.5))
    assert not collecting.heard(Closed(1, 0, 0, 0, 0, 0, 0))
    assert collecting.recorder.spans == []  # the answer notes what it takes in
