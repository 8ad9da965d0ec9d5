"""Settings over time, replayed by the lab: made by formula, or read from CSV files.

    seconds,rtt_ms,jitter,uplink_kbps,downlink_kbps,loss
    0,300,0.2,,,0
    30,50,0.2,40,10000,0.01

A line holds from its `seconds` on. Rates are in kilobits (1,000 bits) per second, empty for no limit; only the first
two columns are required.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from scripts.netlab.setting import KILOBIT, LinkSetting

COLUMNS = ("seconds", "rtt_ms", "jitter", "uplink_kbps", "downlink_kbps", "loss")
REQUIRED = COLUMNS[:2]

# DRAGON §7.4: "The period of the jitter is set to 20π seconds with its amplitude set to 1/5 of the corresponding
# latency, consistent with the settings in § 7.3".
PERIOD = 20 * math.pi
AMPLITUDE = 1 / 5
RESOLUTION = 0.1  # seconds between two points of a sinusoid


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


def read_trace(path: Path) -> Trace:
    """Raises `ValueError` with a sentence that names file and line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"the trace {path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the trace {path} is not a text in UTF-8") from None
    reader = csv.DictReader(lines, restkey="", quoting=csv.QUOTE_NONE)
    points: list[TracePoint] = []
    try:
        heads = list(reader.fieldnames or ())
        if not set(REQUIRED) <= set(heads) <= set(COLUMNS) or len(set(heads)) < len(heads):
            raise ValueError(f"the head must name columns of {','.join(COLUMNS)}, the first two at least")
        points += map(_point, reader)
        if not points:
            raise ValueError("there is nothing after the head")
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path}, line {max(1, reader.line_num)}: {error}") from None
    seconds = [point.seconds for point in points]
    if seconds[0] != 0 or any(one >= other for one, other in pairwise(seconds)):
        raise ValueError(f"{path}: the first line must be for 0 seconds, and seconds must grow from line to line")
    return tuple(points)


def _point(row: Mapping[str, str | None]) -> TracePoint:
    if "" in row or None in row.values():
        raise ValueError("the number of values is not that of the head's columns")
    numbers = {name: _number(name, text) for name, text in row.items() if name in REQUIRED or (text or "").strip()}
    uplink, downlink = (
        KILOBIT * numbers[name] if name in numbers else None for name in ("uplink_kbps", "downlink_kbps")
    )
    loss, jitter = numbers.get("loss", 0.0), numbers.get("jitter", 0.0)
    return TracePoint(numbers["seconds"], LinkSetting(numbers["rtt_ms"] / 1000, jitter, uplink, downlink, loss))


def _number(name: str, text: str | None) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a number, not {text!r}")
    return number


def _times(seconds: float, interval: float) -> Iterator[float]:
    _positive("length of the trace", seconds)
    return (index * interval for index in range(math.ceil(seconds / interval)))


def _positive(what: str, seconds: float) -> None:
    if not 0 < seconds < math.inf:
        raise ValueError(f"the {what} must be above 0 seconds, not {seconds:g}")
