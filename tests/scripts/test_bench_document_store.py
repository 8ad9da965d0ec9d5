"""The document store's benchmark tells the states apart. How fast anything is, is not tested."""

from __future__ import annotations

import json
from pathlib import Path

from scripts.bench.document_store import ROWS, STATES, run
from scripts.bench.results import Results


def test_short_suite(tmp_path: Path) -> None:
    results = Results("document-store", tmp_path, short=True)
    run(results)
    record = json.loads(results.write().read_text())
    (table,) = record["tables"].values()
    assert [row[0] for row in table["rows"]] == [f"{model}, {ROWS} x 24" for model in ("embedded", "random")]
    seconds = record["samples"]["seconds"]
    plan = seconds.pop("plan")
    assert {state: len(values) for state, values in seconds[f"random, {ROWS} x 24"].items()} == dict.fromkeys(
        STATES, plan["rounds"]
    )
    assert (tmp_path / "document-store-ttft.png").stat().st_size > 1000
