"""Two sides' notes on one clock."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from common.estimates.estimators import ClockOffset, RoundTrip
from common.estimates.policy import delta_z
from common.tracing.trace import Notes, Trace, from_json, judged, merge
from proto.payloads.trace import Span
from tests.common.tracing.synthetic import AHEAD, KNOWN, MS, STARTED, at, cloud, device

CLOCK = ClockOffset(AHEAD, 20 * MS)


def merged(device_spans: list[Span], cloud_spans: list[Span], clock: ClockOffset | None = CLOCK) -> Trace:
    return merge(Notes(device_spans, 1), Notes(cloud_spans, 2), clock, STARTED, STARTED + 200 * MS)


def test_the_clouds_times_are_moved_to_the_devices_clock() -> None:
    trace = merged(device(), cloud())
    decodes = {(span.side, span.position): (span.start // MS, span.end // MS) for span in trace.of("decode")}
    assert decodes["device", 0] == (30, 60)
    assert decodes["cloud", 1] == (35, 80)
    assert list(trace.spans) == sorted(trace.spans, key=lambda span: (span.start, span.end))
    assert (trace.ahead, trace.uncertainty, trace.dropped, trace.notes) == (AHEAD, 20 * MS, 3, ())


def test_both_ends_of_a_messages_way_are_one_span() -> None:
    trace = merged(device(), cloud())
    ways = {(span.side, span.detail, span.position): (span.end - span.start) // MS for span in trace.of("transmit")}
    assert ways == {
        ("device", "open", 0): 20,
        ("device", "target", 0): 20,
        ("device", "target", 1): 20,
        ("cloud", "draft", 0): 20,
        ("cloud", "draft", 1): 20,
        ("cloud", "draft", 2): 20,
    }
    assert trace.of("send", "receive") == []


def test_a_repeated_message_is_not_paired_as_nobody_knows_which_one_arrived() -> None:
    trace = merged(
        device(), [*cloud(), replace(cloud()[4], start=STARTED + AHEAD + 50 * MS, end=STARTED + AHEAD + 50 * MS)]
    )
    assert [(span.kind, span.side) for span in trace.spans if span.detail == "draft" and span.position == 0] == [
        ("send", "cloud"),
        ("send", "cloud"),
        ("receive", "device"),
    ]


def test_an_offset_that_is_wrong_moves_one_direction_up_and_the_other_down() -> None:
    trace = merged(device(), cloud(), ClockOffset(AHEAD + 5 * MS, 20 * MS))
    assert {span.end - span.start for span in trace.of("transmit", side="cloud")} == {25 * MS}
    assert {span.end - span.start for span in trace.of("transmit", side="device")} == {15 * MS}


def test_every_draft_has_its_fate() -> None:
    details = [(span.position, detail) for span, detail in judged("device", device()) if span.kind == "decode"]
    assert details == [(0, "kept"), (1, "rejected"), (2, "pre-empted"), (2, "kept")]
    spans = [at("decode", "drafted", position, 0, 1) for position in range(4)]
    verdict = at("follow", "", 1, 2, 2, accepted=(True, False))
    again = [at("roll back", "", 1, 2, 2), at("decode", "drafted", 2, 3, 4, 1)]
    fates = [detail for span, detail in judged("cloud", [*spans, verdict, *again]) if span.kind == "decode"]
    assert fates == ["unused", "rejected", "discarded", "discarded", "unused"]


def test_the_score_is_that_of_the_side_that_decides() -> None:
    known = merged(device(), cloud()).of("aggregate")[0].estimates
    assert known is not None
    assert known.delta_z == delta_z(0.03, 0.01, 0.04, 0.5, 0.9)
    theirs = at("aggregate", "both", 0, 95_000, 95_000, accepted=(True, True), estimates=KNOWN)
    found = merge(Notes([]), Notes([theirs]), ClockOffset(0, 0), 95_000 * MS, 95_001 * MS).spans[0].estimates
    assert found is not None
    assert found.delta_z == delta_z(0.01, 0.03, 0.04, 0.9, 0.5) != known.delta_z


def test_times_that_the_cloud_can_not_have_are_dropped() -> None:
    """A clock that is set while the answer runs, or a cloud that wants the drawing to be useless."""
    liar = at("decode", "drafted", 9, 1, 2**63 // MS - 1)
    trace = merged(device(), [*cloud(), liar])
    assert trace.dropped == 4
    assert 9 not in {span.position for span in trace.spans}


@pytest.mark.parametrize(("notes", "clock"), [(Notes(cloud()), None), (None, CLOCK)])
def test_without_a_clock_or_a_cloud_the_device_is_alone_and_it_is_said(
    notes: Notes | None, clock: ClockOffset | None
) -> None:
    trace = merge(Notes(device()), notes, clock, STARTED, STARTED + 200 * MS)
    assert {span.side for span in trace.spans} == {"device"}
    assert not trace.cloud_known
    assert len(trace.notes) == 1


def test_round_trips_of_long_ago_are_left_out() -> None:
    trips = [RoundTrip(STARTED // 1000 + 1000 * ms, 0, STARTED // 1000 + 1000 * (ms + 4)) for ms in (-5000, 3)]
    (probed,) = merge(Notes([]), None, None, STARTED, STARTED + MS, trips).probes
    assert (probed.at, probed.rtt) == (3 * MS, 0.004)


def test_json_and_back() -> None:
    trace = merged(device(), cloud())
    assert from_json(json.loads(json.dumps(asdict(trace)))) == trace
    for broken in ({}, {"spans": [{"kind": 1}]}, {"spans": 3}):
        with pytest.raises(ValueError, match="trace"):
            from_json(broken)
