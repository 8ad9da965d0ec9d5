"""Flat rows: what is measured is kept case by case, and tables are made of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.bench.measuring import NOTHING
from scripts.bench.rows import Row, grid, measured, middle, over, paired, pivot, share, spread, table, where

ROWS: list[Row] = [
    {"floors": 50.0, "mode": "race", "question": 1, "ms": 70.0, "right": True},
    {"floors": 50.0, "mode": "race", "question": 2, "ms": 90.0, "right": False},
    {"floors": 50.0, "mode": "paper", "question": 2, "ms": 180.0, "right": False},
    {"floors": 20.0, "mode": "paper", "question": 1, "ms": None, "right": True},
]


class Asked:
    """Answers cases with two samples each, and remembers them; one case fails."""

    def __init__(self, failing: int | None = None) -> None:
        self.cases: list[int] = []
        self._failing = failing

    def __call__(self, case: Row) -> Iterator[Row]:
        self.cases.append(case["n"])
        yield {"sample": 0}
        if case["n"] == self._failing:
            raise RuntimeError("the daemon died")
        yield {"sample": 1}


def test_a_grid_has_every_combination() -> None:
    assert grid(a=(1, 2), b=("x", "y")) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def test_a_run_that_failed_goes_on_after_its_last_whole_case(tmp_path: Path) -> None:
    file, run = tmp_path / "suite.jsonl", {"commit": "1a2b"}
    with pytest.raises(RuntimeError):
        measured(grid(n=range(3)), Asked(failing=1), file, run)
    again = Asked()
    rows = measured(grid(n=range(3)), again, file, run)
    assert again.cases == [1, 2]
    assert rows == [{"n": n, "sample": sample} for n in range(3) for sample in range(2)]
    assert [json.loads(line) for line in file.read_text().splitlines()] == [run, *rows]


def test_a_run_of_another_commit_starts_again(tmp_path: Path) -> None:
    file = tmp_path / "suite.jsonl"
    measured(grid(n=range(2)), Asked(), file, {"commit": "1a2b"})
    again = Asked()
    measured(grid(n=range(2)), again, file, {"commit": "3c4d"})
    assert again.cases == [0, 1]
    assert len(file.read_text().splitlines()) == 5


def test_a_table_has_a_line_for_each_group() -> None:
    found = table(ROWS, {"floors, ms": "floors"}, {"answers": len, "ms": middle("ms"), "right": share("right")})
    assert found.heads == ["floors, ms", "answers", "ms", "right"]
    assert found.rows == [["50", 3, "90", "0.33 [0.06-0.79]"], ["20", 1, NOTHING, "1.00 [0.21-1.00]"]]


def test_a_pivot_has_a_column_for_each_value() -> None:
    assert pivot(ROWS, ["floors"], "mode", spread("ms")).rows == [
        ["50", "80 (70-90)", "180 (180-180)"],
        ["20", NOTHING, NOTHING],
    ]
    named = pivot(ROWS, ["floors"], "mode", len, {"ours": "race", "nobody's": "other"})
    assert (named.heads, named.rows) == (["floors", "ours", "nobody's"], [["50", 2, NOTHING], ["20", NOTHING, NOTHING]])


def test_rows_are_compared_with_those_that_are_like_them() -> None:
    race, paper = where(ROWS, mode="race"), where(ROWS, mode="paper", floors=50.0)
    assert paired(race, paper, "ms", "question") == [(90.0, 180.0)]
    assert over(paper, "ms", "question")(race) == "0.50 (0.50-0.50)"
    assert over(paper, "ms", "question")(where(ROWS, floors=20.0)) is None
