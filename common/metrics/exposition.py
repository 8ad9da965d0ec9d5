"""The metrics registry of a daemon, and its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4  # all names are plain ASCII, which the oldest format supports

Value = float | tuple[tuple[str, float], ...]  # of a metric, or per value of its only label


@dataclass(frozen=True, slots=True)
class MetricValue:
    """Present value of a metric."""

    name: str
    meaning: str
    value: Value
    label: str | None = None  # of the values in `value`
    counts: bool = False  # whether it only grows

    def family(self) -> Metric:
        kind = CounterMetricFamily if self.counts else GaugeMetricFamily
        if isinstance(self.value, tuple):
            family = kind(self.name, self.meaning, labels=[self.label or "of"])
            for label, value in self.value:
                family.add_metric([label], value)
            return family
        return kind(self.name, self.meaning, value=self.value)


class ValueCollector(Collector):
    """Calls `read` at each scrape, so nothing is counted twice or beforehand."""

    def __init__(self, read: Callable[[], Iterable[MetricValue]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return [reading.family() for reading in self._read()]

    def describe(self) -> Iterable[Metric]:
        """Returns nothing: else the registry would read values before any exist."""
        return ()


def make_registry(process: bool = False) -> CollectorRegistry:
    """Makes a daemon's registry; `process` adds this process's memory, descriptors and time."""
    disable_created_metrics()  # they double the lines for an unused time
    registry = CollectorRegistry()
    if process:
        ProcessCollector(registry=registry)
    return registry


def merged(own: bytes, others: Mapping[str, bytes], label: str) -> bytes:
    """Merges texts in Prometheus' format: each family once, with all samples.

    Samples of `others` get `label` with their name, which must need no quoting.
    """
    headers: dict[str, list[str]] = {}  # HELP and TYPE lines by family
    samples: dict[str, list[str]] = {}
    for name, text in [("", own), *others.items()]:
        family = ""
        known = frozenset(headers)
        for line in text.decode().splitlines():
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                if family not in known:
                    headers.setdefault(family, []).append(line)
            elif line:
                samples.setdefault(family, []).append(_labelled(line, label, name) if name else line)
    lines = (line for family, begun in headers.items() for line in [*begun, *samples.get(family, [])])
    return "".join(f"{line}\n" for line in lines).encode()


def _labelled(sample: str, label: str, value: str) -> str:
    """Adds a label to a sample. Metric names contain neither braces nor spaces."""
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f'{name}{{{label}="{value}",{rest}'
    name, _, rest = sample.partition(" ")
    return f'{name}{{{label}="{value}"}} {rest}'
