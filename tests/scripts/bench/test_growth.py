"""The growth suite in its short form: every table is there, and the library is searched."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.bench.growth.suite import run
from scripts.bench.results import Results

pytestmark = pytest.mark.suite


def test_a_short_run_has_a_table_for_each_thing_that_grows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results("growth", tmp_path, short=True)
    run(results)
    capsys.readouterr()
    assert list(results.record["tables"]) == [
        "Documents per side",
        "Context",
        "Answer length",
        "Vocabulary",
        "Library",
    ]
    library = results.record["samples"]["library of 40"]
    assert 20 <= library["chunks"] <= 60
    assert library["folder"] > 0
    assert all(seconds > 0 for seconds in library["query"])
