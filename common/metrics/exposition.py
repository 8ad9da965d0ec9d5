"""The registry of a daemon's metrics, and their text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4  # every name is plain ASCII, which the oldest format has, too

Value = float | tuple[tuple[str, float], ...]  # of a metric; by the only label, where it has one


@dataclass(frozen=True, slots=True)
class MetricValue:
    """The value of a metric at the moment when it is asked for."""

    name: str
    meaning: str
    value: Value
    label: str | None = None  # whose values `value` has
    counts: bool = False  # it only grows

    def family(self) -> Metric:
        """The metric as the library has it."""
        kind = CounterMetricFamily if self.counts else GaugeMetricFamily
        if isinstance(self.value, tuple):
            family = kind(self.name, self.meaning, labels=[self.label or "of"])
            for label, value in self.value:
                family.add_metric([label], value)
            return family
        return kind(self.name, self.meaning, value=self.value)


class ValueCollector(Collector):
    """Asks `read` for values whenever somebody asks for the metrics: nothing is counted twice, or beforehand."""

    def __init__(self, read: Callable[[], Iterable[MetricValue]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return [reading.family() for reading in self._read()]

    def describe(self) -> Iterable[Metric]:
        """Nothing: without it, the registry would ask for values before there are any."""
        return ()


def make_registry(process: bool = False) -> CollectorRegistry:
    """An empty registry of one daemon; with `process`, it tells of this process, too: memory, descriptors, time."""
    disable_created_metrics()  # twice the lines, for a time that nobody asks for
    registry = CollectorRegistry()
    if process:
        ProcessCollector(registry=registry)
    return registry


def merged(own: bytes, others: Mapping[str, bytes], label: str) -> bytes:
    """One text of several in Prometheus' text format: each family once, with the samples of all.

    Those of `others` get `label` with their name as its value, which must need no quoting.
    """
    headers: dict[str, list[str]] = {}  # of families, with their HELP and TYPE
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
    """A sample with one label more. A metric's name has neither a brace nor a space."""
    name, brace, rest = sample.partition("{")
    if brace and " " not in name:
        return f'{name}{{{label}="{value}",{rest}'
    name, _, rest = sample.partition(" ")
    return f'{name}{{{label}="{value}"}} {rest}'
