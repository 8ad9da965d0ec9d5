"""The suites of draft policies run, keep their samples and draw."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.bench import draft_policies, dssd_tables
from scripts.bench.results import Results
from scripts.train_policy.evaluation import settings

pytestmark = pytest.mark.suite


def test_dssd_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results("dssd-tables", tmp_path)
    dssd_tables.run(results)
    kept = json.loads(results.write().read_text())
    assert len(kept["samples"]["table 1"]) == 24
    assert "0.57 (24.56 ms)" in capsys.readouterr().out
    # DSSD's best length lies inside, for both pairs.
    best = {name: 1 + ratios.index(max(ratios)) for name, ratios in kept["samples"]["table 3"].items()}
    assert all(1 < length < 16 for name, length in best.items() if name.startswith("DSSD"))
    assert (tmp_path / "dssd-tables-speed-up.png").stat().st_size > 1000


def test_draft_policies_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results("draft-policies", tmp_path, short=True)
    draft_policies.run(results)
    kept = json.loads(results.write().read_text())
    rows = kept["samples"]["tokens per second"]
    assert len(rows) == len(settings())
    assert all({"goodput", "by confidence", "DDQN"} < set(row["adaptive"]) for row in rows)
    assert all(value > 5 for row in rows for value in row["adaptive"].values())
    assert len(kept["samples"]["drafting ahead"]) == 9
    assert "relative to the best fixed plan" in capsys.readouterr().out
    assert len(list(tmp_path.glob("draft-policies-*.png"))) == 2
