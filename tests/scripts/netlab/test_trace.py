"""Settings over time: the shapes, and files that are read or refused with their line."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from scripts.netlab.setting import LinkSetting, read_trace, sinusoid

SETTING = LinkSetting(rtt=0.3, jitter=0.1, uplink=5e3, downlink=1.25e6, loss=0.02)


def test_the_sinusoid_is_the_papers() -> None:
    trace = sinusoid(LinkSetting(rtt=0.3), seconds=20 * math.pi)
    trips = {seconds: setting.rtt for seconds, setting in trace}
    assert max(trips.values()) == pytest.approx(0.36, abs=1e-5)  # a fifth of the latency
    assert min(trips.values()) == pytest.approx(0.24, abs=1e-5)
    assert max(trips, key=lambda seconds: trips[seconds]) == pytest.approx(5 * math.pi, abs=0.1)  # a quarter of 20π s
    assert min(trips, key=lambda seconds: trips[seconds]) == pytest.approx(15 * math.pi, abs=0.1)
    assert trips[0.0] == 0.3
    assert max(trips) == pytest.approx(20 * math.pi, abs=0.1)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "seconds,rtt_ms,jitter,uplink_kbps,downlink_kbps,loss\n0,300,0.1,40,10000,0.02\n1000.005,50,0,,,1\n"
    )
    assert read_trace(path) == ((0.0, SETTING), (1000.005, LinkSetting(rtt=0.05, loss=1.0)))


def test_columns_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("seconds,rtt_ms\n0,10\n2.5,300\n")
    assert read_trace(path) == ((0.0, LinkSetting(rtt=0.01)), (2.5, LinkSetting(rtt=0.3)))
    path.write_text("seconds,rtt_ms,downlink_kbps,uplink_kbps\n0,10,,40\n1,10,10000,\n")
    assert [(setting.uplink, setting.downlink) for _, setting in read_trace(path)] == [
        (5e3, None),
        (None, 1.25e6),
    ]


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
        ("seconds,rtt_ms,loss\n0,10,0\n1,10,1.5\n", 3, "loss is a probability"),
        ("seconds,rtt_ms,rate\n0,10,1000\n", 1, "the head must name"),
        ("seconds,rtt_ms,uplink_kbps\n0,10,40\n1,10,0.5\n", 3, "the uplink must have at least 0.8 kb/s, not 0.5"),
        ('seconds,rtt_ms\n0,"10\n', 2, "rtt_ms must be a number"),
    ],
)
def test_errors_name_file_and_line(text: str, line: int, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"trace\.csv, line {line}: .*{sentence}") as raised:
        read_trace(path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("lines", ["1,10\n", "0,10\n2,10\n2,20\n", "0,10\n2,10\n1,20\n"])
def test_seconds_begin_at_0_and_grow(lines: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"seconds,rtt_ms\n{lines}")
    with pytest.raises(ValueError, match=r"trace\.csv: the first line must be for 0 seconds, and seconds must grow"):
        read_trace(path)


def test_files_that_are_no_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="can't be read: No such file"):
        read_trace(tmp_path / "none.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="is not a text"):
        read_trace(tmp_path / "binary.csv")
