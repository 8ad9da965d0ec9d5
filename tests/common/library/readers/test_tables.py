"""Tables as text: every row names its columns, whatever programs and people make of tables."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.library.documents import File, UnusableDocument, read_content
from common.library.readers.formats import TEXT, parser_of
from common.library.readers.isolated import IsolatedReader
from common.library.readers.tables import filled_down, table_text


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        (["", "2023", "2024"], ["tea", "12", "15"]),
        (["room", "9:00", "10:30"], ["blue", "maths", "art"]),
        (["item", "2024-01-01", "2024-02-01"], ["rent", "700", "720"]),
        (["person", "born"], ["Ada", "1815"]),
    ],
    ids=["years", "times", "days", "words"],
)
def test_headings_may_be_years_days_and_times(rows: list[str], lines: list[str]) -> None:
    named = "; ".join(f"{name}: {value}" if name else value for name, value in zip(rows, lines, strict=True))
    assert table_text([rows, lines]).split("\n")[1] == named


@pytest.mark.parametrize(
    "rows",
    [
        [["Ada", "1815"], ["Alan", "1912"]],
        [["2024-01-03", "rent"], ["2024-01-04", "food"]],
        [["rent", "1,234.50 €"], ["food", "80.00 €"]],
        [["rent", "$12"], ["food", "$8"]],
        [["rent", "12 %"], ["food", "7 %"]],
        [["rent", "-3.5e4"], ["food", "8"]],
        [["tea", "tea"], ["cups", "cups"]],
        [["Ada", "1815"]],
    ],
)
def test_first_rows_that_are_no_headings(rows: list[list[str]]) -> None:
    assert table_text(rows).split("\n") == [", ".join(row) for row in rows]


def test_another_table_further_down_has_its_own_headings() -> None:
    phones = [["name", "phone"], ["Ann", "123"], [], ["Bob", "456"]]
    rooms = [["room", "price"], ["blue", "80"]]
    lines = ["name, phone", "name: Ann; phone: 123", "", "name: Bob; phone: 456", ""]
    assert table_text([*phones, [], *rooms]).split("\n") == [*lines, "room, price", "room: blue; price: 80"]
    # A title may stand above it, and a table without headings before it.
    titled = table_text([["1", "2"], [], ["Rooms of 2026"], *rooms]).split("\n")
    assert titled == ["1, 2", "", "Rooms of 2026", "room, price", "room: blue; price: 80"]


def test_a_row_of_words_below_an_empty_one_goes_on_with_the_table() -> None:
    rows = [["name", "town"], ["Ann", "Rome"], [], ["Bob", "Oslo"], ["Cleo", "Bonn"]]
    assert table_text(rows).split("\n")[3:] == ["name: Bob; town: Oslo", "name: Cleo; town: Bonn"]
    rows = [["item", "price"], ["tea", "3"], ["cups", "on loan"], ["spoon", "2"]]
    assert table_text(rows).split("\n")[2:] == ["item: cups; price: on loan", "item: spoon; price: 2"]


@pytest.mark.parametrize("first", ["", "region"], ids=["apart", "merged"])
def test_headings_in_two_rows(first: str) -> None:
    upper, lower = ["region", "sales", "", "costs"], [first, "2025", "2026", "2025", "2026"]
    lines = table_text([["Report"], upper, lower, ["north", "1", "2", "3", "4"], ["south", "5", "6"]]).split("\n")
    assert lines[1:] == [
        "region, sales, costs",
        "region, sales 2025, sales 2026, costs 2025, costs 2026",
        "region: north; sales 2025: 1; sales 2026: 2; costs 2025: 3; costs 2026: 4",
        "region: south; sales 2025: 5; sales 2026: 6",
    ]


def test_a_row_below_headings_with_a_gap_is_one_of_the_table() -> None:
    rows = [["name", "address", ""], ["Ann", "Main Street", "Rome"], ["Bob", "High Street", "Oslo"]]
    assert table_text(rows).split("\n")[1] == "name: Ann; address: Main Street; Rome"
    rows = [["name", "pay", "", "since"], ["Ann", "12", "EUR", "May"], ["Bob", "9", "EUR", "3"]]
    assert table_text(rows).split("\n")[1] == "name: Ann; pay: 12; EUR; since: May"


def test_headings_that_every_page_repeats() -> None:
    rows = [["name", "town"], ["Ann", "Rome"], ["name", "town"], ["Bob", "Oslo"]]
    assert table_text(rows).split("\n")[2:] == ["name, town", "name: Bob; town: Oslo"]


def test_a_cell_in_several_rows_is_in_all_that_have_any_other() -> None:
    rows: Sequence[Sequence[str]] = [["north", "1"], [], ["", "2"], ["", "3"], ["", "4"]]
    assert list(filled_down(rows, {(0, 0): 4})) == [["north", "1"], [], ["north", "2"], ["north", "3"], ["", "4"]]
    assert list(filled_down([["a", "b"], ["c"]], {(0, 1): 9})) == [["a", "b"], ["c", "b"]]
    assert list(filled_down([["a"], ["own"]], {(0, 0): 2})) == [["a"], ["own"]]


def test_a_delimiter_at_ends_of_many_lines() -> None:
    text = parser_of(".csv")("\n".join([f"{'a' * 90},b,c;"] * 1500).encode()).sections[0].text
    assert text.split("\n")[-1] == f"{'a' * 90}, b, c;"


def test_quotes_that_a_sample_of_a_csv_lacks() -> None:
    rows = ["name,city", *["Zoe,Lisbon"] * 10_000, '"the ""old"" Bob, here",Porto']
    text = parser_of(".csv")("\n".join(rows).encode()).sections[0].text
    assert text.endswith('\nname: the "old" Bob, here; city: Porto')


def test_apostrophes_of_a_csv_take_no_time() -> None:
    """Spreadsheets mark numbers by them that are texts; a pattern that goes back took half a minute."""
    rows = ["a,b,c", *(f"'{number:05d},'{number:03d},'x" for number in range(6000))]
    began = time.process_time()
    assert parser_of(".csv")("\n".join(rows).encode()).sections[0].text.endswith("a: '05999; b: '5999; c: 'x")
    assert time.process_time() - began < 5


def markdown(*lines: str) -> list[str]:
    return TEXT[".md"]("\n".join(lines).encode()).sections[0].text.split("\n")


@settings(max_examples=200)
@given(st.text("|: a\\`~\n", max_size=60))
def test_markdown_without_a_rule_stays(text: str) -> None:
    assert markdown(*text.split("\n")) == text.split("\n")


CELLS = st.text("-: a\\`~", min_size=1, max_size=5)
HEADS = st.text("-: a`~", min_size=1, max_size=5)  # a backslash would undo the table


@settings(max_examples=200)
@given(heads=st.tuples(HEADS, HEADS, HEADS), rows=st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=4))
def test_no_table_of_markdown_loses_a_word(heads: tuple[str, ...], rows: list[list[str]]) -> None:
    """Of cells below no heading nothing is said."""
    lines = ["|".join(["", *cells, ""]) for cells in (heads, ["-"] * 3, *rows)]
    assert "\n".join(markdown(*lines)).count("a") >= "\n".join(lines).count("a")


def of_headings(*headings: str, rows: Sequence[str]) -> str:
    return "\n".join(["|".join(["", *headings, ""]), "|-" * len(headings) + "|", *rows, ""])


@pytest.mark.parametrize(
    "text",
    [
        of_headings("a" * 20_000, "b" * 20_000, rows=["|x|y|"] * 4_000),
        of_headings("a" * 4_000, "b" * 4_000, rows=["|x|y|"] * 600 + [""]) * 20,
        of_headings("a", "b" * 100_000, *[""] * 2_000, rows=["|c" * 2_002, "|1" * 2_002]),
        of_headings("a" * 1_000, *"bcdefgh", rows=["|11" * 8] * 200_000),
    ],
    ids=["one table", "several", "headings in two rows", "many rows"],
)
def test_headings_that_rows_repeat_to_too_much_text(text: str) -> None:
    """Of some hundred kilobytes there would be a hundred megabytes or two, and larger files would take all memory."""
    tracemalloc.start()
    try:
        with pytest.raises(UnusableDocument, match="it has too much text: at most 20,000,000 characters are read"):
            read_content(File(".md", text.encode(), "", 0, 0), IsolatedReader())
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


def test_short_rows_below_many_headings_take_no_time() -> None:
    text = of_headings(*["a"] * 100_000, rows=["|x|y|"] * 100_000)
    began = time.process_time()
    assert TEXT[".md"](text.encode()).sections[0].text.endswith("a: x; a: y\n")
    assert time.process_time() - began < 10  # each took that of all headings: half a minute
