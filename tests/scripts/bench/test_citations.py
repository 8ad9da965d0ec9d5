"""The judge of footnotes' numbers."""

from __future__ import annotations

import pytest

from scripts.bench.citations import wrong_numbers

FOOD = ["The cat is called Pixel.", "She gets 60 grams of dry food a day."]
BOOKS = ["Books are due after four weeks.", "The library card is number 5560."]


@pytest.mark.parametrize(
    ("answer", "text", "marked", "quotes", "wrong"),
    [
        ("Pixel", "Pixel gets 60 grams of dry food.", "Pixel 60 grams dry food", FOOD, set()),
        ("60 grams", "It is sixty.", "sixty", FOOD, set()),
        ("Pixel", "Pixel is 60 years old.", "Pixel 60", FOOD, {"60"}),
        ("5560", "The number is 5560, a multiple of four that is even.", "5560 four", BOOKS, {"4"}),
        ("47", "It has 5560 books.", "5560", BOOKS, {"5560"}),
    ],
)
def test_wrong_numbers(answer: str, text: str, marked: str, quotes: list[str], wrong: set[str]) -> None:
    assert wrong_numbers(marked, answer, text, quotes) == wrong
