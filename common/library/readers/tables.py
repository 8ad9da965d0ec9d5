"""Rows of tables as independent text for language models: every row names its columns."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise, repeat, zip_longest
from typing import Final, Literal

from common.library.readers.content import (
    MOST_TEXT,
    Content,
    Section,
    TooMuchText,
    in_lines,
    outside_code,
)
from common.library.readers.encodings import text_and_remarks

_SAMPLE = 64 * 1024  # characters searched for a file's delimiter
_DELIMITERS: Final = "\t;|,"  # the rarest in numbers and texts first
_DECIMAL: Final = re.compile(r"(?<![\d.,])(\d[\d.]*),(?=\d+(?![\d,]))")  # a number up to its decimal comma
# A row divided by commas alone, unlike the commas of numbers or prose.
_BY_COMMAS: Final = re.compile(r"^(?=.*(?:(?<!\d),\S|,[^\s\d]))[^\t;|\n]+$", re.MULTILINE)
_TORN: Final = re.compile(r'[\t;|,]"|"[\t;|,]')  # a quoted value begins or ends inside another value
_STATED = re.compile(r"sep=(.)\n")  # the delimiter as spreadsheets write it
OF_TEXTS = 3  # columns of a table in a text without stated headings; two may be names and values
_FIRST_ROWS: Final = 64  # rows in which a table may begin
_LONGEST_FIELD = 10_000_000
_BAR: Final = re.compile(r"(?<!\\)\|")

_Kind = Literal["", "words", "number", "year", "moment"]
_MOMENT: Final = re.compile(r"\d{1,4}([-/:]\d{1,2}){1,2}([ T][\d:.]+)?|\d{1,2}\.\d{1,2}\.(\d\d|\d{4})")
_YEAR: Final = re.compile(r"(1[6-9]|2[01])\d\d")
_NUMBER: Final = re.compile(r"\W{0,3}\d[\d.,'\u2019 e+-]*\W{0,3}")


def read_csv(content: bytes) -> Content:
    """Values separated by commas, semicolons or tabs. Raises `Unreadable`."""
    text, remarks = text_and_remarks(content)
    text = in_lines(text)
    stated = _STATED.match(text)
    if stated:
        text = text[stated.end() :]
    csv.field_size_limit(_LONGEST_FIELD)
    sample = text[:_SAMPLE].rpartition("\n")[0] if len(text) > _SAMPLE else text
    rows = _divided(text, stated[1] if stated else _delimiter(sample or text[:_SAMPLE]))
    return Content((Section(sheet_text(rows), unit="row"),), remarks=remarks)


def _divided(text: str, delimiter: str) -> Iterator[list[str]]:
    return csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)


def _delimiter(sample: str) -> str:
    """Chooses the delimiter; a comma if none divides the rows.

    The winner gives most rows as many values as the row above. Ties: the fewest torn quoted values, then the order. A
    comma that divides more beats a semicolon before blanks, as in prose.
    """
    found, most, values = ",", (0.0, 0), 0.0
    of_commas = sample if _BY_COMMAS.search(sample) else _DECIMAL.sub(r"\1.", sample)
    for delimiter in _DELIMITERS:
        rows = [row for row in _divided(of_commas if delimiter == "," else sample, delimiter) if row]
        if not any(row[-1] for row in rows):  # every line ends in the delimiter
            rows = [row[:-1] for row in rows]
        alike = sum(len(above) == len(row) > 1 for above, row in pairwise(rows)) / max(1, len(rows) - 1)
        torn = sum(len(_TORN.findall(value)) for row in rows for value in row)
        mean = sum(map(len, rows)) / max(1, len(rows))
        in_prose = found == ";" and sample.count("; ") == sample.count(";") and mean > values
        if alike and ((alike, -torn) > most or ((alike, -torn) == most and delimiter == "," and in_prose)):
            found, most, values = delimiter, (alike, -torn), mean
    return found


def markdown_with_rows_named(markdown: str) -> str:
    """Rewrites Markdown tables as lines with column names; code stays.

    Raises `TooMuchText` as `table_text` does.
    """
    lines, written, size = markdown.split("\n"), list[str](), 0
    is_text, at = list(outside_code(lines)), 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if is_text[at - 1] and at < len(lines) and "|" in line and _is_rule(lines[at], columns := len(_cells(line))):
            first = at + 1
            at = next((below for below in range(first, len(lines)) if "|" not in lines[below]), len(lines))
            # One row at a time: a large table in parts takes many times its size.
            rows = (_cells(lines[number])[:columns] for number in chain([first - 2], range(first, at)))
            line = table_text(rows, stated=True, most=MOST_TEXT - size)
        written.append(line)
        size += len(line) + 1
    return "\n".join(written)


def _is_rule(line: str, columns: int) -> bool:
    """Whether a line ends the headings of a table with several columns.

    With one column it may be a heading's underline.
    """
    return columns > 1 and "-" in line and not line.strip(" \t|:-") and len(_cells(line)) == columns


def _cells(line: str) -> list[str]:
    cells = _BAR.split(line.strip().removeprefix("|"))
    if not cells[-1].strip():
        cells.pop()
    return [cell.replace("\\|", "|") for cell in cells]


def sheet_text(rows: Iterable[Sequence[str]]) -> str:
    """The `table_text` of a sheet, also with other lines directly above a wider table."""
    listed = iter(rows)
    first = list(islice(listed, _FIRST_ROWS))
    start = _start_of_wider(first)
    rest = table_text(chain(first[start:], listed))
    if not start:
        return rest
    above = table_text(first[:start], OF_TEXTS).split("\n")
    return "\n".join([*above, *[""] * (start - len(above)), rest])


def _start_of_wider(rows: Sequence[Sequence[str]]) -> int:
    widths = [max((number for number, value in enumerate(row, 1) if value.strip()), default=0) for row in rows]
    before = 0
    for number in range(1, len(rows) - 1):
        before = max(before, widths[number - 1])
        if 1 < before < widths[number] <= widths[number + 1] and _are_headings(rows[number], rows[number + 1]):
            return number
    return 0


def table_text(rows: Iterable[Sequence[str]], columns: int = 2, *, stated: bool = False, most: int = MOST_TEXT) -> str:
    """One line for each row, also empty ones, with each value after its heading.

    The headings are the first row with several values, if `stated`, or if at least `columns` values look like headings.
    The next row may name their parts. Another table below an empty row has its own headings.

    Raises `TooMuchText` for more than `most` characters: long headings times many rows may be huge.
    """
    return "\n".join(_no_more_than(most, _lines(rows, columns, stated))).rstrip()


def _lines(rows: Iterable[Sequence[str]], columns: int, stated: bool) -> Iterator[str]:
    headings: Sequence[str] | None = None
    upper = False  # whether the row above is the headings' row
    apart = True  # whether an empty row separates this row
    cleaned = ([" ".join(value.split()) for value in row] for row in rows)
    for values, below in pairwise(chain(cleaned, [[]])):
        several = len(list(filter(None, values))) > 1
        begins, apart = apart and several, not several and (apart or not any(values))
        if several and headings is None:
            headings = values if stated or (len(values) >= columns and _are_headings(values, below)) else []
            upper = bool(headings)
        elif upper and headings and _name_parts(headings, values, below):
            headings, upper = list(_no_more_than(MOST_TEXT, _in_full(headings, values))), False
            values = headings
        elif begins and not stated and _head_another_table(values, below):
            headings, upper = values, True
        elif headings and values != headings:
            upper = False
            named = zip(chain(headings, repeat("")), values, strict=False)
            yield "; ".join(f"{name}: {value}" if name else value for name, value in named if value)
            continue
        yield ", ".join(filter(None, values))


def _no_more_than(most: int, texts: Iterable[str]) -> Iterator[str]:
    size = 0
    for text in texts:
        size += len(text) + 1
        if size > most:
            raise TooMuchText
        yield text


def filled_down(rows: Iterable[Sequence[str]], spans: Mapping[tuple[int, int], int]) -> Iterator[list[str]]:
    """Repeats the value of a tall cell in all its non-empty rows.

    `spans` has the number of rows, by first row and column from 0.
    """
    below: dict[int, tuple[int, str]] = {}  # remaining rows of a value, by column
    for number, row in enumerate(rows):
        values = list(row)
        filled = any(values)
        for column, (left, value) in list(below.items()):
            if filled:
                values += [""] * (column + 1 - len(values))
                values[column] = values[column] or value
            if left > 1:
                below[column] = left - 1, value
            else:
                del below[column]
        for column, value in enumerate(row):
            if value and spans.get((number, column), 1) > 1:
                below[column] = spans[number, column] - 1, value
        yield values


def _are_headings(values: Sequence[str], below: Sequence[str]) -> bool:
    filled = [value for value in values if value]
    return len(set(filled)) == len(filled) and _are_names(values, below)


def _are_names(values: Sequence[str], below: Sequence[str]) -> bool:
    kinds = _kinds(values, below)
    moments = [(kind, under) for kind, under in kinds if kind in ("year", "moment")]
    return (
        all(kind != "number" for kind, _ in kinds)
        and all(kind != under for kind, under in moments)
        and (not moments or any(under for _, under in moments))
    )


def _name_parts(headings: Sequence[str], values: Sequence[str], below: Sequence[str]) -> bool:
    """Whether the row after headings, some over several columns, names their columns.

    Names are above values of another kind.
    """
    within = any(value and not heading for heading, value in zip_longest(headings[1:], values[1:], fillvalue=""))
    unlike = any(kind and under and kind != under for kind, under in _kinds(values, below))
    return within and unlike and _are_names(values, below)


def _in_full(headings: Sequence[str], parts: Sequence[str]) -> Iterator[str]:
    """Headings with their parts, e.g. «Sales 2026»; a heading continues until the next."""
    upper = ""
    for heading, part in zip_longest(headings, parts, fillvalue=""):
        upper = heading or upper
        yield " ".join(filter(None, [upper, part if part != upper else ""]))


def _head_another_table(values: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a row begins another table: words must stand above other kinds."""
    unlike = any(kind == "words" and under not in ("", "words") for kind, under in _kinds(values, below))
    return unlike and _are_headings(values, below)


def _kinds(values: Sequence[str], below: Sequence[str]) -> list[tuple[_Kind, _Kind]]:
    return [(_kind(value), _kind(under)) for value, under in zip_longest(values, below, fillvalue="")]


def _kind(value: str) -> _Kind:
    if not value:
        return ""
    if _MOMENT.fullmatch(value):
        return "moment"
    if _YEAR.fullmatch(value):
        return "year"
    return "number" if _NUMBER.fullmatch(value) else "words"
