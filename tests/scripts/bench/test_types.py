"""The suite `types` in its short form, and what it makes of answers that differ."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.bench.results import Results
from scripts.bench.types import SHORT, TYPES, WAYS, Compared, check, first_difference, run, show

pytestmark = pytest.mark.suite
SAME = Compared("model", "float32", 0.0, "dsd", 0, 9, None)


def test_short_suite(tmp_path: Path) -> None:
    results = Results("types", tmp_path, short=True)
    run(results)
    record = json.loads(results.write().read_text())
    compared = record["samples"]["types"]["compared"]
    drawn = sum(way.drawn for way in WAYS)
    assert len(compared) == len(TYPES) * SHORT.questions * (len(WAYS) + (len(SHORT.temperatures) - 1) * drawn)
    assert all(0 < each["tokens"] <= SHORT.tokens for each in compared)
    (table,) = record["tables"].values()
    assert len(table["rows"]) == len(WAYS) + (len(SHORT.temperatures) - 1) * drawn


def test_first_difference() -> None:
    assert first_difference(["a", "b"], ["a", "b"]) is None
    assert first_difference(["a", "b"], ["a", "c"]) == 1
    assert first_difference(["a", "b"], ["a"]) == 1
    assert first_difference([], ["a"]) == 0


def test_a_difference_in_float32_stops_the_run() -> None:
    check([SAME, replace(SAME, dtype="bfloat16", differs=4)])
    with pytest.raises(RuntimeError, match="1 answers in float32"):
        check([SAME, replace(SAME, differs=4)])


def test_differences_are_counted() -> None:
    other = replace(SAME, dtype="bfloat16")
    rows = show([SAME, SAME, replace(other, differs=4), replace(other, differs=7, tokens=20), other]).rows
    assert list(map(list, rows)) == [["model", "0", "dsd", "3", "18", "0", "38", "2 (0.67), at 4 to 7"]]
