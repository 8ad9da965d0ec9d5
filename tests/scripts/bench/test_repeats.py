"""The suite `repeats` notices an answer that differs."""

from __future__ import annotations

from scripts.bench.repeats import Repeated, first_difference, show


def test_table_counts_answers_that_differ() -> None:
    same = Repeated("bfloat16", 0.0, 0, "both sides", "device", 6, None)
    other = Repeated("bfloat16", 0.0, 0, "both sides", "greedy", 6, 3)
    (row,) = show([same, other]).rows
    assert list(row) == ["bfloat16", "0", "both sides", 2, 2, "12", 1]


def test_first_difference() -> None:
    assert first_difference(["a", "b"], ["a", "b"]) is None
    assert first_difference(["a", "b"], ["a", "c"]) == 1
    assert first_difference(["a", "b"], ["a"]) == 1
    assert first_difference([], ["a"]) == 0
