"""Settings over time: the shapes, and files that are read or refused with their line."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from scripts.netlab.setting import LinkSetting
from scripts.netlab.trace import Trace, TracePoint, TwoStates, markov, read_trace, sinusoid

SETTING = LinkSetting(rtt=0.3, jitter=0.1, uplink=5e3, downlink=1.25e6, loss=0.02)


def test_the_sinusoid_is_the_papers() -> None:
    trace = sinusoid(LinkSetting(rtt=0.3), seconds=20 * math.pi)
    trips = {point.seconds: point.setting.rtt for point in trace}
    assert max(trips.values()) == pytest.approx(0.36, abs=1e-5)  # a fifth of the latency
    assert min(trips.values()) == pytest.approx(0.24, abs=1e-5)
    assert max(trips, key=lambda seconds: trips[seconds]) == pytest.approx(5 * math.pi, abs=0.1)  # a quarter of 20π s
    assert min(trips, key=lambda seconds: trips[seconds]) == pytest.approx(15 * math.pi, abs=0.1)
    assert trips[0.0] == 0.3
    assert max(trips) == pytest.approx(20 * math.pi, abs=0.1)


class TestMarkov:
    STATES = TwoStates(worsens=0.2, recovers=0.1, dwell=0.5)

    def levels(self, trace: Trace, seconds: float) -> list[float | None]:
        """The uplink rate of each dwell time."""
        levels: list[float | None] = []
        for point, end in zip(trace, [*(following.seconds for following in trace[1:]), seconds], strict=True):
            levels += [point.setting.uplink] * round((end - point.seconds) / self.STATES.dwell)
        return levels

    def test_transitions_have_their_probabilities(self) -> None:
        """20,000 dwell times of a fixed seed: each share within four standard deviations (at most .015) of its own."""
        levels = self.levels(markov(SETTING, 10_000, self.STATES, seed=5), 10_000)
        assert len(levels) == 20_000 and set(levels) == {50_000.0, 5000.0}
        pairs = list(pairwise(levels))
        for before, after, probability in ((50_000.0, 5000.0, 0.2), (5000.0, 50_000.0, 0.1)):
            left = [following for level, following in pairs if level == before]
            assert left.count(after) / len(left) == pytest.approx(probability, abs=0.015)
        assert levels.count(5000.0) / len(levels) == pytest.approx(2 / 3, abs=0.03)

    def test_only_the_uplink_changes_and_only_at_points(self) -> None:
        trace = markov(SETTING, 200, self.STATES, seed=5)
        assert {replace(point.setting, uplink=None) for point in trace} == {replace(SETTING, uplink=None)}
        assert all(one.setting != other.setting for one, other in pairwise(trace))
        assert trace[0].seconds == 0 and trace[-1].seconds < 200
        assert all(point.seconds % 0.5 == 0 for point in trace)

    def test_it_repeats_by_seed(self) -> None:
        trace = markov(SETTING, 200, self.STATES, seed=5)
        assert trace == markov(SETTING, 200, self.STATES, seed=5) != markov(SETTING, 200, self.STATES, seed=6)

    def test_it_begins_by_the_shares_of_time(self) -> None:
        """2,000 seeds: the share of slow starts within four standard deviations (.042) of two thirds."""
        starts = [markov(SETTING, 1, self.STATES, seed)[0].setting.uplink for seed in range(2000)]
        assert starts.count(5000.0) / 2000 == pytest.approx(2 / 3, abs=0.042)

    def test_certain_transitions_alternate(self) -> None:
        trace = markov(SETTING, 4, TwoStates(worsens=1, recovers=1))
        assert [point.seconds for point in trace] == [0, 1, 2, 3]

    @pytest.mark.parametrize(
        ("field", "value", "sentence"),
        [
            ("worsens", 0.0, "of a recovery must be above 0 and at most 1, not 0 and 0.1"),
            ("recovers", 1.5, "not 0.1 and 1.5"),
            ("recovers", math.nan, "not 0.1 and nan"),
            ("dwell", 0.0, "dwell time must be above 0 seconds"),
        ],
    )
    def test_chains_that_mean_nothing_are_refused(self, field: str, value: float, sentence: str) -> None:
        with pytest.raises(ValueError, match=sentence):
            TwoStates(**{field: value})


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "seconds,rtt_ms,jitter,uplink_kbps,downlink_kbps,loss\n0,300,0.1,40,10000,0.02\n1000.005,50,0,,,1\n"
    )
    assert read_trace(path) == (TracePoint(0.0, SETTING), TracePoint(1000.005, LinkSetting(rtt=0.05, loss=1.0)))


def test_columns_may_be_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("seconds,rtt_ms\n0,10\n2.5,300\n")
    assert read_trace(path) == (TracePoint(0.0, LinkSetting(rtt=0.01)), TracePoint(2.5, LinkSetting(rtt=0.3)))
    path.write_text("seconds,rtt_ms,downlink_kbps,uplink_kbps\n0,10,,40\n1,10,10000,\n")
    assert [(point.setting.uplink, point.setting.downlink) for point in read_trace(path)] == [
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


@pytest.mark.parametrize(
    "make",
    [
        lambda: sinusoid(SETTING, 0),
        lambda: sinusoid(SETTING, 1, period=0),
        lambda: markov(SETTING, 0, TwoStates()),
        lambda: markov(SETTING, 9, TwoStates(slow=1.0)),
    ],
)
def test_traces_that_mean_nothing_are_refused(make: Callable[[], Trace]) -> None:
    with pytest.raises(ValueError):
        make()
