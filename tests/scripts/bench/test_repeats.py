"""The suite `repeats` notices an answer that differs."""

from __future__ import annotations

from scripts.bench.repeats import first_difference, show


def test_table_counts_answers_that_differ() -> None:
    same = {
        "type": "bfloat16",
        "temperature": 0.0,
        "group": "both sides",
        "way": "device",
        "tokens": 6,
        "differs": None,
    }
    (row,) = show([same, same | {"way": "greedy", "differs": 3}]).rows
    assert list(row) == ["bfloat16", "0", "both sides", 2, 2, "12", 1]


def test_first_difference() -> None:
    assert first_difference(["a", "b"], ["a", "b"]) is None
    assert first_difference(["a", "b"], ["a", "c"]) == 1
    assert first_difference(["a", "b"], ["a"]) == 1
    assert first_difference([], ["a"]) == 0
