"""Settings over time: the makers' shapes, and files that are read back or refused with their line."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.netlab.setting import LinkSetting
from scripts.netlab.trace import (
    Trace,
    TracePoint,
    outage,
    random_levels,
    read_trace,
    sinusoid,
    step,
    write_trace,
)

SETTING = LinkSetting(rtt=0.3, jitter=0.1, rate=1e6, loss=0.02)


def test_the_sinusoid_is_the_papers() -> None:
    trace = sinusoid(LinkSetting(rtt=0.3), seconds=20 * math.pi)
    trips = {point.seconds: point.setting.rtt for point in trace}
    assert max(trips.values()) == pytest.approx(0.36, abs=1e-5)  # a fifth of the latency
    assert min(trips.values()) == pytest.approx(0.24, abs=1e-5)
    assert max(trips, key=lambda seconds: trips[seconds]) == pytest.approx(5 * math.pi, abs=0.1)  # a quarter of 20π s
    assert min(trips, key=lambda seconds: trips[seconds]) == pytest.approx(15 * math.pi, abs=0.1)
    assert trips[0.0] == 0.3
    assert max(trips) == pytest.approx(20 * math.pi, abs=0.1)


def test_random_levels_stay_within_the_amplitude_and_repeat_by_seed() -> None:
    trace = random_levels(SETTING, seconds=200, amplitude=0.2, seed=3)
    trips = [point.setting.rtt for point in trace]
    assert len(set(trips)) == 200
    assert 0.24 <= min(trips) < 0.25 and 0.35 < max(trips) <= 0.36
    assert {point.setting.loss for point in trace} == {SETTING.loss}
    assert trace == random_levels(SETTING, seconds=200, amplitude=0.2, seed=3)
    assert trace != random_levels(SETTING, seconds=200, amplitude=0.2, seed=4)


def test_step_and_outage() -> None:
    after = LinkSetting(rtt=0.05)
    assert step(SETTING, after, 4.0) == (TracePoint(0.0, SETTING), TracePoint(4.0, after))
    before, during, restored = outage(SETTING, at=2.0, length=3.0)
    assert (before.seconds, during.seconds, restored.seconds) == (0.0, 2.0, 5.0)
    assert (before.setting, during.setting.loss, restored.setting) == (SETTING, 1.0, SETTING)


@pytest.mark.parametrize(
    "trace", [sinusoid(SETTING, 3), random_levels(SETTING, 3), outage(LinkSetting(rtt=0.04), at=1.5, length=2)]
)
def test_a_file_is_read_back(trace: Trace, tmp_path: Path) -> None:
    path, written = tmp_path / "trace.csv", io.StringIO()
    write_trace(trace, written)
    path.write_text(written.getvalue())
    again = read_trace(path)
    assert [point.seconds for point in again] == pytest.approx([point.seconds for point in trace])
    assert [point.setting.rtt for point in again] == pytest.approx([point.setting.rtt for point in trace], rel=1e-5)
    assert [point.setting.loss for point in again] == [point.setting.loss for point in trace]
    assert [point.setting.rate for point in again] == [point.setting.rate for point in trace]


def test_columns_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("seconds,rtt_ms\n0,10\n2.5,300\n")
    assert read_trace(path) == (TracePoint(0.0, LinkSetting(rtt=0.01)), TracePoint(2.5, LinkSetting(rtt=0.3)))


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("", 1, "the head must name"),
        ("0,300\n", 1, "the head must name"),
        ("seconds,rtt\n0,300\n", 1, "the head must name"),
        ("seconds,rtt_ms,delay\n0,300,1\n", 1, "the head must name"),
        ("seconds,rtt_ms\n", 1, "nothing after the head"),
        ("seconds,rtt_ms\n0,fast\n", 2, "rtt_ms must be a number, not 'fast'"),
        ("seconds,rtt_ms\n0,\n", 2, "rtt_ms must be a number, not ''"),
        ("seconds,rtt_ms\n0,nan\n", 2, "rtt_ms must be a number"),
        ("seconds,rtt_ms\n0,10,5\n", 2, "the number of values"),
        ("seconds,rtt_ms\n0\n", 2, "the number of values"),
        ("seconds,rtt_ms\n1,10\n", 2, "must be for 0 seconds"),
        ("seconds,rtt_ms\n0,10\n2,10\n2,20\n", 4, "seconds must grow"),
        ("seconds,rtt_ms,loss\n0,10,0\n1,10,1.5\n", 3, "loss is a probability"),
        ('seconds,rtt_ms\n0,"10\n', 2, "rtt_ms must be a number"),
    ],
)
def test_errors_name_file_and_line(text: str, line: int, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"trace\.csv, line {line}: .*{sentence}") as raised:
        read_trace(path)
    assert "\n" not in str(raised.value)


def test_files_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can't be read: No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not a text"):
        read_trace(tmp_path / "binary.csv")


@pytest.mark.parametrize(
    "make",
    [
        lambda: sinusoid(SETTING, 0),
        lambda: sinusoid(SETTING, 1, period=0),
        lambda: random_levels(SETTING, math.inf),
        lambda: random_levels(SETTING, 9, amplitude=300),
        lambda: step(SETTING, SETTING, -1),
        lambda: outage(SETTING, 1, 0),
    ],
)
def test_traces_that_mean_nothing_are_refused(make: Callable[[], Trace]) -> None:
    with pytest.raises(ValueError):
        make()
