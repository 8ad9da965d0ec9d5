"""The suite `streaming` runs every way of holding weights, and stops if one changes a logit. Times are not tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.bench.results import Results
from scripts.bench.streaming import SHORT, WAYS, run

pytestmark = pytest.mark.suite


def test_short_suite(tmp_path: Path) -> None:
    results = Results("streaming", tmp_path, short=True)
    run(results)
    record = json.loads(results.write().read_text())
    samples = record["samples"]["seconds"]
    assert len(samples) == 1 + len(SHORT.speeds) * len(WAYS)
    assert samples["in memory"]["resident"] == SHORT.layers
    for name, taken in samples.items():
        assert {kind: len(seconds) for kind, seconds in taken["seconds"].items()} == {
            "token": SHORT.rounds,
            "tree": SHORT.rounds,
        }
        assert name == "in memory" or taken["resident"] == 6
    drafted = samples["400 MB/s, ahead, drafting meanwhile"]["drafts"]
    assert len(drafted) > 0
    (table,) = record["tables"].values()
    assert [row[0] for row in table["rows"]] == list(samples)
    assert (tmp_path / "streaming-passes.png").stat().st_size > 1000
