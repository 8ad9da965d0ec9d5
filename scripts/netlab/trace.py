"""Settings over time: made by formula, kept in CSV files, replayed by the lab.

    seconds,rtt_ms,jitter,uplink_kbps,downlink_kbps,loss
    0,300,0.2,,,0
    30,50,0.2,40,10000,0.01

A line holds from its `seconds` on. Rates are in kilobits (1,000 bits) per second, empty for no limit; only the first
two columns are required.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import TextIO

from scripts.netlab.setting import KILOBIT, LinkSetting

COLUMNS = ("seconds", "rtt_ms", "jitter", "uplink_kbps", "downlink_kbps", "loss")
REQUIRED = COLUMNS[:2]

# DRAGON §7.4: "The period of the jitter is set to 20π seconds with its amplitude set to 1/5 of the corresponding
# latency, consistent with the settings in § 7.3".
PERIOD = 20 * math.pi
AMPLITUDE = 1 / 5
RESOLUTION = 0.1  # seconds between two points of a sinusoid
RANDOM_INTERVAL = 1.0  # seconds for which a random trace stays where it is


@dataclass(frozen=True, slots=True)
class TracePoint:
    """A setting that holds from `seconds` after the start on."""

    seconds: float
    setting: LinkSetting


Trace = tuple[TracePoint, ...]


def sinusoid(setting: LinkSetting, seconds: float, amplitude: float = AMPLITUDE, period: float = PERIOD) -> Trace:
    """The round trip swings by `amplitude`, a share of it. Raises `ValueError`, as all of these do."""
    _positive("period", period)

    def at(time: float) -> LinkSetting:
        return replace(setting, rtt=setting.rtt * (1 + amplitude * math.sin(2 * math.pi * time / period)))

    return tuple(TracePoint(time, at(time)) for time in _times(seconds, RESOLUTION))


def random_levels(setting: LinkSetting, seconds: float, amplitude: float = AMPLITUDE, seed: int = 0) -> Trace:
    """Every second another round trip, uniform within `amplitude` of the setting's (DRAGON §7.2: "a predefined random
    latency trace")."""
    random = Random(seed)

    def drawn() -> LinkSetting:
        return replace(setting, rtt=setting.rtt * (1 + amplitude * random.uniform(-1, 1)))

    return tuple(TracePoint(time, drawn()) for time in _times(seconds, RANDOM_INTERVAL))


@dataclass(frozen=True, slots=True)
class TwoStates:
    """A Markov chain of two uplink rates, in bytes per second.

    Each state holds for `dwell` seconds, after which the slow one follows the fast one with the probability `worsens`,
    and the fast one the slow one with `recovers`. So the shares of time are as `recovers` to `worsens`, and a stretch
    at the fast rate lasts `dwell / worsens` seconds on average. Raises `ValueError`.
    """

    fast: float = 400 * KILOBIT
    slow: float = 40 * KILOBIT
    worsens: float = 0.1
    recovers: float = 0.1
    dwell: float = 1.0

    def __post_init__(self) -> None:
        for name, probability in (("worsening", self.worsens), ("recovery", self.recovers)):
            if not 0 < probability <= 1:
                raise ValueError(f"the probability of a {name} must be above 0 and at most 1, not {probability:g}")
        _positive("dwell time", self.dwell)


def markov(setting: LinkSetting, seconds: float, states: TwoStates, seed: int = 0) -> Trace:
    """The uplink rate goes to and fro between two values, whatever it is in `setting`; only changes are points.

    Quantize-sample-verify (§V) has such an uplink, of 40 and 400 kb/s, and does not say how often it changes. The first
    state is drawn by the shares of time.
    """
    random = Random(seed)
    fast = random.random() * (states.worsens + states.recovers) < states.recovers
    points: list[TracePoint] = []
    for time in _times(seconds, states.dwell):
        if time > 0 and random.random() < (states.worsens if fast else states.recovers):
            fast = not fast
        elif points:
            continue
        points.append(TracePoint(time, replace(setting, uplink=states.fast if fast else states.slow)))
    return tuple(points)


def step(before: LinkSetting, after: LinkSetting, at: float) -> Trace:
    """Another setting from `at` seconds on."""
    _positive("time of the step", at)
    return (TracePoint(0.0, before), TracePoint(at, after))


def outage(setting: LinkSetting, at: float, length: float) -> Trace:
    """Every packet is lost from `at` on, for `length` seconds."""
    _positive("time of the outage", at)
    _positive("length of the outage", length)
    return (
        TracePoint(0.0, setting),
        TracePoint(at, replace(setting, loss=1.0)),
        TracePoint(at + length, setting),
    )


def write_trace(trace: Trace, file: TextIO) -> None:
    """Write the trace as CSV with a head."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for point in trace:
        setting = point.setting
        delays = [f"{value:.6g}" for value in (setting.rtt * 1000, setting.jitter)]
        rates = ["" if rate is None else f"{rate / KILOBIT:.6g}" for rate in (setting.uplink, setting.downlink)]
        writer.writerow([f"{point.seconds:.12g}", *delays, *rates, f"{setting.loss:g}"])


def read_trace(path: Path) -> Trace:
    """Raises `ValueError` with a sentence that names file and line."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise ValueError(f"the trace {path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the trace {path} is not a text in UTF-8") from None
    return _parse(text.splitlines(), str(path))


def _parse(lines: Iterable[str], name: str) -> Trace:
    reader = csv.DictReader(lines, restkey="", quoting=csv.QUOTE_NONE)
    points: list[TracePoint] = []
    try:
        heads = list(reader.fieldnames or ())
        if not set(REQUIRED) <= set(heads) <= set(COLUMNS) or len(set(heads)) < len(heads):
            raise ValueError(f"the head must name columns of {','.join(COLUMNS)}, the first two at least")
        for row in reader:
            points.append(_point(row))
            if len(points) == 1 and points[0].seconds != 0:
                raise ValueError("the first line must be for 0 seconds")
            if len(points) > 1 and not points[-2].seconds < points[-1].seconds:
                raise ValueError("seconds must grow from line to line")
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{name}, line {max(1, reader.line_num)}: {error}") from None
    if not points:
        raise ValueError(f"{name}, line {max(1, reader.line_num)}: there is nothing after the head")
    return tuple(points)


def _point(row: Mapping[str, str | None]) -> TracePoint:
    if "" in row or None in row.values():
        raise ValueError("the number of values is not that of the head's columns")
    setting = LinkSetting(
        rtt=(_number(row, "rtt_ms") or 0.0) / 1000,
        jitter=_number(row, "jitter") or 0.0,
        uplink=_rate(row, "uplink_kbps"),
        downlink=_rate(row, "downlink_kbps"),
        loss=_number(row, "loss") or 0.0,
    )
    return TracePoint(_number(row, "seconds") or 0.0, setting)


def _rate(row: Mapping[str, str | None], name: str) -> float | None:
    """Bytes per second."""
    number = _number(row, name)
    return None if number is None else KILOBIT * number


def _number(row: Mapping[str, str | None], name: str) -> float | None:
    """Number in a column; None where an optional value is left out."""
    text = (row.get(name) or "").strip()
    if not text and name not in REQUIRED:
        return None
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{name} must be a number, not {text!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a number, not {text!r}")
    return number


def _times(seconds: float, interval: float) -> Iterator[float]:
    _positive("length of the trace", seconds)
    return (index * interval for index in range(math.ceil(seconds / interval)))


def _positive(what: str, seconds: float) -> None:
    if not 0 < seconds < math.inf:
        raise ValueError(f"the {what} must be above 0 seconds, not {seconds:g}")
