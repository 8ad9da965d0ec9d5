"""Settings of the emulated link, and settings over time: made by formula, or read from CSV files.

    seconds,rtt_ms,jitter,uplink_kbps,downlink_kbps,loss
    0,300,0.2,,,0
    30,50,0.2,40,10000,0.01

A line holds from its `seconds` on. Rates are in kilobits (1,000 bits) per second, empty for no limit; only the first
two columns are required.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final

from scripts.netlab.faulty_proxy import Direction, Line

LONGEST: Final = 60.0  # seconds of a round trip: a mistyped unit rather than a network
KILOBIT: Final = 125.0  # bytes
SLOWEST: Final = 100.0  # bytes per second: a packet of full length takes 15 s


@dataclass(frozen=True, slots=True)
class LinkSetting:
    """Both directions of the link. Raises `ValueError` with a sentence for the user.

    `rtt` is the round trip in seconds, half of it in each direction. `jitter` is a share: each packet's delay is drawn
    uniformly from `1 - jitter` to `1 + jitter` times that half. `uplink` (device to cloud) and `downlink` are in bytes
    per second, None for no limit. `loss` is the probability that a packet is dropped; 1 is an outage.
    """

    rtt: float = 0.0
    jitter: float = 0.0
    uplink: float | None = None
    downlink: float | None = None
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.rtt <= LONGEST:
            raise ValueError(f"the round trip must be 0 to {LONGEST * 1000:g} ms, not {self.rtt * 1000:g}")
        if not 0.0 <= self.jitter <= 1.0:
            raise ValueError(f"jitter is a share of the delay, 0 to 1, not {self.jitter:g}")
        for name, rate in (("uplink", self.uplink), ("downlink", self.downlink)):
            if rate is not None and not SLOWEST <= rate < math.inf:
                raise ValueError(f"the {name} must have at least {SLOWEST / KILOBIT:g} kb/s, not {rate / KILOBIT:g}")
        if not 0.0 <= self.loss <= 1.0:
            raise ValueError(f"loss is a probability, 0 to 1, not {self.loss:g}")

    def rate(self, direction: Direction) -> float | None:
        """Bytes per second of a direction."""
        return self.uplink if direction == "up" else self.downlink

    def line(self, direction: Direction) -> Line:
        """The conditions of one direction."""
        half = self.rtt / 2
        return Line(half * (1 - self.jitter), 2 * half * self.jitter, self.rate(direction), self.loss)

    def __str__(self) -> str:
        rates = f"uplink {rate_text(self.uplink)}, downlink {rate_text(self.downlink)}"
        return f"round trip {self.rtt * 1000:g} ms, jitter {self.jitter * 100:g} %, {rates}, loss {self.loss * 100:g} %"


def rate_text(rate: float | None) -> str:
    """A rate in bytes per second, for people."""
    return "no limit" if rate is None else f"{rate / KILOBIT:g} kb/s"


Trace = tuple[tuple[float, LinkSetting], ...]  # settings, each from so many seconds after the start on

COLUMNS: Final = ("seconds", "rtt_ms", "jitter", "uplink_kbps", "downlink_kbps", "loss")
REQUIRED: Final = COLUMNS[:2]
# DRAGON §7.4: "The period of the jitter is set to 20π seconds with its amplitude set to 1/5 of the corresponding
# latency, consistent with the settings in § 7.3".
PERIOD: Final = 20 * math.pi
RESOLUTION: Final = 0.1  # seconds between two points of a sinusoid


def sinusoid(setting: LinkSetting, seconds: float, amplitude: float = 1 / 5) -> Trace:
    """The round trip swings by `amplitude`, a share of it."""
    times = (index * RESOLUTION for index in range(math.ceil(seconds / RESOLUTION)))
    swing = {time: 1 + amplitude * math.sin(2 * math.pi * time / PERIOD) for time in times}
    return tuple((time, replace(setting, rtt=setting.rtt * factor)) for time, factor in swing.items())


def read_trace(path: Path) -> Trace:
    """Raises `ValueError` with a sentence that names file and line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise ValueError(f"the trace {path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"the trace {path} is not a text in UTF-8") from None
    reader = csv.DictReader(lines, restkey="", quoting=csv.QUOTE_NONE)
    try:
        heads = list(reader.fieldnames or ())
        if not set(REQUIRED) <= set(heads) <= set(COLUMNS) or len(set(heads)) < len(heads):
            raise ValueError(f"the head must name columns of {','.join(COLUMNS)}, the first two at least")
        points = tuple(map(_point, reader))
        if not points:
            raise ValueError("there is nothing after the head")
    except (ValueError, csv.Error) as error:
        raise ValueError(f"{path}, line {max(1, reader.line_num)}: {error}") from None
    if points[0][0] != 0 or any(one >= other for (one, _), (other, _) in pairwise(points)):
        raise ValueError(f"{path}: the first line must be for 0 seconds, and seconds must grow from line to line")
    return points


def _point(row: Mapping[str, str | None]) -> tuple[float, LinkSetting]:
    if "" in row or None in row.values():
        raise ValueError("the number of values is not that of the head's columns")
    numbers = {name: _number(name, text) for name, text in row.items() if name in REQUIRED or (text or "").strip()}
    up, down = (KILOBIT * numbers[name] if name in numbers else None for name in ("uplink_kbps", "downlink_kbps"))
    loss, jitter = numbers.get("loss", 0.0), numbers.get("jitter", 0.0)
    return numbers["seconds"], LinkSetting(numbers["rtt_ms"] / 1000, jitter, up, down, loss)


def _number(name: str, text: str | None) -> float:
    try:
        number = float(text or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a number, not {text!r}")
    return number
