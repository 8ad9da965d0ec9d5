"""Several texts of metrics as one."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from common.metrics.exposition import merged
from tests.support.metrics import Metrics


def text(value: float) -> bytes:
    registry = CollectorRegistry()
    Gauge("plain", "A value", registry=registry).set(value)
    Counter("counted", "By word\nof two lines", ("word",), registry=registry).labels('with "{} signs').inc(value)
    Histogram("times", "Seconds", registry=registry, buckets=(1.0, 2.0)).observe(value)
    return generate_latest(registry)


def test_samples_are_told_apart_by_the_label() -> None:
    told = merged(text(1), {"0": text(2), "1": text(3)}, "worker").decode()
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(told)
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    assert samples["plain",] == 1
    assert [samples["plain", ("worker", place)] for place in "01"] == [2, 3]
    signs = ("word", 'with "{} signs')
    assert samples["counted_total", signs] == 1
    assert samples["counted_total", signs, ("worker", "1")] == 3
    assert samples["times_bucket", ("le", "2.0"), ("worker", "0")] == 1
    assert samples["times_bucket", ("le", "2.0"), ("worker", "1")] == 0
    assert samples["times_sum", ("worker", "1")] == 3


def test_each_family_is_told_once_with_all_of_its_samples() -> None:
    lines = merged(text(1), {"0": text(2)}, "worker").decode().splitlines()
    assert len([line for line in lines if line.startswith("# TYPE")]) == len(
        {line for line in lines if line.startswith("# TYPE")}
    )
    first = lines.index("# TYPE plain gauge")
    assert lines[first + 1 : first + 3] == ["plain 1.0", 'plain{worker="0"} 2.0']


def test_a_family_that_only_others_have_is_there() -> None:
    registry = CollectorRegistry()
    Gauge("theirs", "A value", registry=registry).set(4)
    assert Metrics(merged(b"", {"7": generate_latest(registry)}, "worker").decode()).of("theirs", worker="7") == 4
