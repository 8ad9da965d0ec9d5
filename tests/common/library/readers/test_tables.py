"""Tables as text: every row names its columns, whatever programs and people make of tables."""

from __future__ import annotations

import io
import time
import tracemalloc
from collections.abc import Sequence

import openpyxl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pptx import Presentation
from pptx.util import Inches

from common.library.documents import File, UnusableDocument, content_of
from common.library.readers.formats import TEXT, parser_of
from common.library.readers.isolated import IsolatedReader
from common.library.readers.tables import filled_down, table_text
from tests.common.library.readers import files


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


def test_headings_that_are_marked_as_such_may_be_numbers() -> None:
    page = "<table><tr><th>gear<th>1<th>2<tr><td>ratio<td>.5<td>.8</table>"
    assert parser_of(".html")(page.encode()).sections[0].text.split("\n")[1].strip() == "gear: ratio; 1: .5; 2: .8"


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


REGIONS = ["region, town, sales", *(f"region: {region}; town: {town}; sales: {n}" for region, town, n in (
    ("north", "Oslo", 3), ("north", "Bergen", 4), ("south", "Rome", 5)
))]  # fmt: skip


def test_words_between_single_quotes_are_no_fields_of_a_csv() -> None:
    """They may be more than fields between quotes, and stand at the beginning of one."""
    rows = ["Nr;Text;Preis", '1;"Schraube; lang";5', "2;Modell 'Alpha' neu;3", "3;'tis 'Beta' alt;4", "4;'n;6"]
    assert parser_of(".csv")("\n".join(rows).encode()).sections[0].text.split("\n")[1:] == [
        "Nr: 1; Text: Schraube; lang; Preis: 5",
        "Nr: 2; Text: Modell 'Alpha' neu; Preis: 3",
        "Nr: 3; Text: 'tis 'Beta' alt; Preis: 4",
        "Nr: 4; Text: 'n; Preis: 6",
    ]


@pytest.mark.parametrize(
    ("lines", "last"),
    [
        (["Nr;Preis;Text", "1;5;Tip, 'x', y", "2;6;Knopf"], "Nr: 2; Preis: 6; Text: Knopf"),
        (["Nr;Text", '1;"Er sagte, ""ja"", dann"', '2;"Knopf; rot"'], "Nr: 2; Text: Knopf; rot"),
        (["Text;Preis in EUR, netto", "Tee;3,50", "Milch;1,10"], "Text: Milch; Preis in EUR, netto: 1,10"),
        (["1;Tee;3,50", "2;Milch;1.001,10"], "2, Milch, 1.001,10"),
        (["Report, May", "by Ann, Rome", "", "name;price", "tea;1,5", "milk;2,5"], "name: milk; price: 2,5"),
        (["tea;1,5", "milk;2,5;green", "cups;3,5", "jam;4,5"], "jam, 4,5"),
        (["Name, first\tcity", "Doe, Ann\tParis", "Roe, Bob\tRome"], "Name, first: Roe, Bob; city: Rome"),
        (["name|price", "tea|1,5", "milk|2,5"], "name: milk; price: 2,5"),
        (["note;of", '"a, b', "c, d", 'e, f";Ann'], "note: a, b c, d e, f; of: Ann"),
        (["a, b", '1, "x, y"'], "a: 1; b: x, y"),
        (["a,b", "1,2", "3,4"], "a: 3; b: 4"),
        (["name,likes", "Ann,tea;milk", "Bob,cups;jam"], "name: Bob; likes: cups;jam"),
        (["comment", "Great; thanks", "fine"], "fine"),
        (["movie,genres", "1,28|12|878", "2,16|35", "3,18|36"], "movie: 3; genres: 18|36"),
        (["id,v1", "1,0.1;0.2", "2,0.3;0.4"], "id: 2; v1: 0.3;0.4"),
        (["date,range", "2024-01-05,10|20", "2024-01-06,11|21"], "date: 2024-01-06; range: 11|21"),
        (["# Device; X1", "# Serial; 77", "t,v", "1,5", "2,6", "3,7"], "t: 3; v: 7"),
        (["Sales, May", "tea;1,5", "milk;2,5", "cups;3,5"], "cups, 3,5"),
        (['9,"Mozilla (X11; Linux)",200', '7,"Mozilla (X11; Linux)",200'], "7, Mozilla (X11; Linux), 200"),
        (['Ann,"He said; no",1', 'Bob,"I say; yes",2', 'Eve,"We; they",3'], "Eve, We; they, 3"),
        (["Nr;Ware", '1;5" Rohr', '2;7" Rohr, lang', '3;9" Rohr'], 'Nr: 3; Ware: 9" Rohr'),
        (["a,b,c;", "1,2,3;", "4,5,6;"], "a: 4; b: 5; c;: 6;"),
        (["a;b;", "1;2;", "4;5;"], "a: 4; b: 5"),
        (["10:00,INFO,start; ok", "10:01,INFO,stop; ok", "10:02,INFO,start; ok"], "10:02, INFO, start; ok"),
        (["1;red, blue, white", "2;red, white, blue", "3;blue, red, white"], "3, blue, red, white"),
        (["Berlin | 1,234,567", "Hamburg | 1,945,532"], "Hamburg, 1,945,532"),
        (["Meier; Berlin,Germany", "Roe; Rome,Italy"], "Meier: Roe; Berlin,Germany: Rome,Italy"),
        ([f"{'a' * 90},b,c;"] * 1500, f"{'a' * 90}, b, c;"),
    ],
    ids=[
        *("apostrophes", "quotes", "comma in a heading", "no headings", "above", "rows of all lengths", "tabs", "bars"),
        *("lines within", "blanks", "whole numbers", "lists in values", "one column"),
        *("lists of numbers", "vectors", "ranges", "remarks", "a remark with a comma"),
        *("signs between quotes", "sentences between quotes", "inches"),
        *("ends of lines", "delimiters at ends", "semicolons in texts", "commas in texts", "millions", "places"),
        "a delimiter at ends of many lines",
    ],
)
def test_what_delimits_the_values_of_a_csv(lines: list[str], last: str) -> None:
    """Numbers and texts have commas themselves."""
    assert parser_of(".csv")("\n".join(lines).encode()).sections[0].text.split("\n")[-1] == last


def test_apostrophes_of_a_csv_take_no_time() -> None:
    """Spreadsheets mark numbers by them that are texts; a pattern that goes back took half a minute."""
    rows = ["a,b,c", *(f"'{number:05d},'{number:03d},'x" for number in range(6000))]
    began = time.process_time()
    assert parser_of(".csv")("\n".join(rows).encode()).sections[0].text.endswith("a: '05999; b: '5999; c: 'x")
    assert time.process_time() - began < 5


def test_merged_cells_of_a_workbook() -> None:
    book = openpyxl.Workbook()
    for row in (["region", "town", "sales"], ["north", "Oslo", 3], [None, "Bergen", 4], ["south", "Rome", 5]):
        book.worksheets[0].append(row)
    book.worksheets[0].merge_cells("A2:A3")
    buffer = io.BytesIO()
    book.save(buffer)
    assert parser_of(".xlsx")(buffer.getvalue()).sections[0].text.split("\n") == REGIONS


@pytest.mark.parametrize("suffix", [".ods", ".odt"])
def test_merged_cells_of_opendocument(suffix: str) -> None:
    def row(*texts: str, tall: int = 1) -> str:
        spans = [f' table:number-rows-spanned="{tall}"', *[""] * (len(texts) - 1)]
        cells = zip(texts, spans, strict=True)
        return "".join(
            f"<table:table-cell{span}><text:p>{text}</text:p></table:table-cell>"
            if text
            else "<table:covered-table-cell/>"
            for text, span in cells
        )

    rows = (row("region", "town", "sales"), row("north", "Oslo", "3", tall=2), row("", "Bergen", "4"))
    body = "".join(f"<table:table-row>{each}</table:table-row>" for each in (*rows, row("south", "Rome", "5")))
    kind = {".ods": "spreadsheet", ".odt": "text"}[suffix]
    content = files.opendocument(kind, f'<table:table table:name="a">{body}</table:table>')
    assert parser_of(suffix)(content).sections[0].text.split("\n") == REGIONS


def test_merged_cells_of_slides() -> None:
    deck = Presentation()
    shapes = deck.slides.add_slide(deck.slide_layouts[6]).shapes
    table = shapes.add_table(4, 3, Inches(1), Inches(1), Inches(5), Inches(3)).table
    for number, row in enumerate((["region", "town", "sales"], ["north", "Oslo", "3"], ["", "Bergen", "4"])):
        for column, text in enumerate(row):
            table.cell(number, column).text = text
    for column, text in enumerate(["south", "Rome", "5"]):
        table.cell(3, column).text = text
    table.cell(1, 0).merge(table.cell(2, 0))
    buffer = io.BytesIO()
    deck.save(buffer)
    assert parser_of(".pptx")(buffer.getvalue()).sections[0].text.split("\n") == REGIONS


@pytest.mark.parametrize("stated", [b"A1", b"A1:XFD1048576"])
def test_a_sheet_that_states_another_size_than_it_has(stated: bytes) -> None:
    """Programs that write row by row state one cell; one that was coloured to its end, all that there can be."""
    written = files.xlsx({"a": [["car", "price"], ["Zoe", 31]]})
    content = files.altered(
        written, "xl/worksheets/sheet1.xml", rb'dimension ref="[A-Z0-9:]+"', b'dimension ref="%s"' % stated
    )
    assert parser_of(".xlsx")(content).sections[0].text == "car, price\ncar: Zoe; price: 31"


def markdown(*lines: str) -> list[str]:
    return TEXT[".md"]("\n".join(lines).encode()).sections[0].text.split("\n")


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        (
            ["| car | price |", "|-----|------:|", "| Zoe | 31 |", "| Up | 9 |"],
            ["car: Zoe; price: 31", "car: Up; price: 9"],
        ),
        (["car | price", ":-- | :-:", "Zoe | 31"], ["car: Zoe; price: 31"]),
        (["| a | 2024 | 2024 |", "| - | - | - |", "| x | | 3 |"], ["a: x; 2024: 3"]),
        (["| a | b |", "|---|---|", "| `x \\| y` | 3 | beyond |"], ["a: `x | y`; b: 3"]),
        (["  | a | b |  ", "  |---|---|", "| x |"], ["a: x"]),
    ],
    ids=["bars", "open", "numbers", "escaped", "indented"],
)
def test_tables_of_markdown(lines: list[str], rows: list[str]) -> None:
    """A long one is cut into chunks of which all but the first would have lost their headings."""
    found = markdown("# Cars", *lines, "", "the end")
    assert (found[0], found[2:]) == ("# Cars", [*rows, "", "the end"])


@pytest.mark.parametrize(
    "lines",
    [
        ["```", "| a | b |", "|---|---|", "| x | y |", "```"],
        ["~~~~ text", "```", "| a | b |", "|---|---|", "~~~", "| x | y |", "~~~~"],
        ["| a |", "|---|", "| x |"],
        ["a | b", "---", "x | y"],
        ["a | b", "", "|---|---|"],
        ["| a | b | c |", "|---|---|", "| x | y |"],
        ["a | b"],
        ["|", "|-|"],
    ],
)
def test_markdown_that_is_no_table(lines: list[str]) -> None:
    assert markdown(*lines) == lines


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
            content_of(File(".md", text.encode(), "", 0, 0), IsolatedReader())
        assert tracemalloc.get_traced_memory()[1] < 100 * 2**20
    finally:
        tracemalloc.stop()


def test_short_rows_below_many_headings_take_no_time() -> None:
    text = of_headings(*["a"] * 100_000, rows=["|x|y|"] * 100_000)
    began = time.process_time()
    assert TEXT[".md"](text.encode()).sections[0].text.endswith("a: x; a: y\n")
    assert time.process_time() - began < 10  # each took that of all headings: half a minute


def test_tables_of_rich_text() -> None:
    def row(*cells: str) -> str:
        edges = "".join(rf"\cellx{number}" for number in range(len(cells)))
        return rf"\trowd{edges} " + "".join(rf"{cell}\cell " for cell in cells) + r"\row"

    rows = row("region", "town", "sales") + row("north", "Oslo", "3") + row("south", "", "5")
    text = parser_of(".rtf")(files.rich(rf"So a|b:\par {rows}\pard the end\par ")).sections[0].text
    lines = ["region, town, sales", "region: north; town: Oslo; sales: 3", "region: south; sales: 5"]
    assert text.split("\n") == ["So a|b:", *lines, "the end"]
