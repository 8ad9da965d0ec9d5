"""A traced answer of two real daemons on a slow line: everything is in it, and nothing that is private."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from common.tracing.analysis import CAUSES, steps
from common.tracing.trace import Interval, Trace, from_json
from device.cli.main import run_command as dragon
from proto.payloads.trace import DETAILS
from scripts.daemons import Pair, free_port
from scripts.netlab.faulty_proxy import FaultyProxy, Line
from tests.daemons.streaming import TRIES, wait_until

QUESTION = "What is the best-selling game of the kind I like?"
UP, DOWN = 0.03, 0.05  # seconds, one way
STEP_MS = 120.0  # of the cloud: the device waits for it, also where other work makes its own steps several times longer
DELAY = 0.25  # seconds that a busy machine may take for what is done at once
NS = 1e9
FATES = {"kept", "rejected", "discarded", "unused", "late", "pre-empted"}
WORDS = {"device", "cloud", "transmit", *DETAILS, *FATES, *(name for names in DETAILS.values() for name in names)}


@pytest.fixture(scope="module")
def pair(fresh_data: Callable[[], Path]) -> Iterator[Pair]:
    port = free_port()
    with FaultyProxy(port, up=Line(delay=UP), down=Line(delay=DOWN)) as proxy:
        between = int(proxy.address.rpartition(":")[2])
        settings = {"privacy": "balanced", "patience": 60.0}
        with Pair(fresh_data(), settings, {"emulate_decode_ms": STEP_MS}, between=between, cloud_port=port) as pair:
            wait_until(lambda: pair.status()["cloud"]["rtt_ms"] is not None, "the round trip is known")
            yield pair


def ask(pair: Pair, **fields: Any) -> dict[str, Any]:
    # Hot enough for the two sides to disagree often.
    return pair.complete(QUESTION, **{"temperature": 2.0, "seed": 2, "max_tokens": 16} | fields)


@pytest.fixture(scope="module", params=["device", "mirrored", "greedy"])
def traced(pair: Pair, request: pytest.FixtureRequest) -> tuple[dict[str, Any], Trace]:
    """An answer and its trace: of several, the first that the machine did nothing else for long beside."""
    for _ in range(TRIES):
        response = ask(pair, placement=request.param, trace=True)
        trace = from_json(response["dragon"]["trace"])
        if undisturbed(response, trace):
            break
    return response, trace


def undisturbed(response: dict[str, Any], trace: Trace) -> bool:
    """Whether no stall is in it, nor one that the connection was lost by."""
    engine, whole = shares(trace)
    late = abs(steps(trace)[0].end / NS - response["dragon"]["ttft"])
    return late < DELAY and engine < whole / 2 and len(trace.of("retrieve")) == 2 and slowness(trace) < DELAY


def shares(trace: Trace) -> tuple[float, float]:
    """Time in the engine, and all of it."""
    found = steps(trace)
    return sum(step.spent("engine") for step in found), sum(step.end - step.start for step in found)


def slowness(trace: Trace) -> float:
    """Seconds by which the quickest probe was slower than the line, halved."""
    assert trace.uncertainty is not None
    return trace.uncertainty / NS - (UP + DOWN) / 2


def test_tracing_takes_no_token_and_is_off_unless_asked_for(pair: Pair, traced: tuple[dict[str, Any], Trace]) -> None:
    untraced = ask(pair, placement=traced[0]["dragon"]["placement"])
    assert untraced["dragon"]["trace"] is None
    assert untraced["choices"] == traced[0]["choices"]


def test_every_position_was_decoded_on_both_sides_and_aggregated(traced: tuple[dict[str, Any], Trace]) -> None:
    response, trace = traced
    positions = set(range(response["dragon"]["tokens"]))
    for side in ("device", "cloud"):
        assert positions <= {span.position for span in trace.of("decode", side=side)}
        assert len(trace.of("retrieve", side=side)) == len(trace.of("prefill", side=side)) == 1
    aggregations = trace.of("aggregate")
    assert positions == {span.position for span in aggregations}
    assert all(span.estimates is not None and span.estimates.rtt > UP + DOWN - 0.01 for span in aggregations)
    assert any(span.detail == "rejected" for span in trace.of("decode"))
    assert [span for span in trace.of("roll back") if span.side == "device"]


def test_no_message_was_faster_than_the_line(traced: tuple[dict[str, Any], Trace]) -> None:
    """Clocks are told apart only so far. Here they are one, and the ways differ: the offset is half of that."""
    _, trace = traced
    assert trace.uncertainty is not None and trace.ahead is not None
    late = slowness(trace)
    assert 0 <= late < DELAY
    assert abs(trace.ahead) <= trace.uncertainty
    assert trace.ahead / NS == pytest.approx((UP - DOWN) / 2, abs=late + 0.001)
    ways = trace.of("transmit")
    assert {span.detail for span in ways} >= {"open", "ready", "draft", "target"}
    for span in ways:
        least = UP if span.side == "device" else DOWN
        clock_error = trace.ahead if span.side == "device" else -trace.ahead
        assert (span.end - span.start + clock_error) / NS >= least
        assert (span.end - span.start + trace.uncertainty) / NS >= least


def test_the_time_of_every_token_is_accounted_for(traced: tuple[dict[str, Any], Trace]) -> None:
    response, trace = traced
    found = steps(trace)
    assert [step.position for step in found] == list(range(response["dragon"]["tokens"]))
    assert found[0].end / NS == pytest.approx(response["dragon"]["ttft"], abs=DELAY)
    assert all(sum(step.spent(cause) for cause in CAUSES) == step.end - step.start for step in found)
    engine, whole = shares(trace)
    assert engine < whole / 2, "the causes are found"
    # Where the cloud decides, a draft of its own comes with the decision.
    assert any(step.spent("draft under way") or step.spent("target under way") for step in found)


def test_neither_text_nor_tokens_are_in_it(traced: tuple[dict[str, Any], Trace]) -> None:
    """Texts are words of the format, and the only numbers that are not times are positions, epochs and counts."""
    value = traced[0]["dragon"]["trace"]
    texts = {text for span in value["spans"] for text in span.values() if isinstance(text, str)}
    assert texts <= WORDS
    assert value["notes"] == []
    for span in value["spans"]:
        assert span["position"] <= 64 and span["epoch"] <= 64 and span["count"] <= 16
        assert list(span) == [field.name for field in fields(Interval)]


def test_the_command_draws_it_and_writes_it_for_perfetto(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written, drawn = tmp_path / "trace.json", tmp_path / "trace.png"
    flags = ["--text", "--max-tokens", "6", "--output", str(written), "--png", str(drawn), "--url", pair.url]
    assert dragon(["trace", QUESTION, *flags]) == 0
    printed = capsys.readouterr()
    assert printed.err.strip()  # the answer
    assert "waited for" in printed.out and "draft under way" in printed.out
    assert {event["ph"] for event in json.loads(written.read_text())["traceEvents"]} >= {"M", "X", "b", "e", "C"}
    assert drawn.read_bytes().startswith(b"\x89PNG")
    assert dragon(["trace", QUESTION, "--max-tokens", "1", "--output", str(tmp_path), "--url", pair.url]) == 2
    assert "can't be written" in capsys.readouterr().err
