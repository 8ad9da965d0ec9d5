"""Rows of tables as text that a language model can read by itself: every row names its columns."""

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

_SAMPLE = 64 * 1024  # characters that tell a file's delimiter
_DELIMITERS: Final = "\t;|,"  # the fewer of them there are in numbers and texts, the earlier
_DECIMAL: Final = re.compile(r"(?<![\d.,])(\d[\d.]*),(?=\d+(?![\d,]))")  # a number up to its decimal comma
# A row that commas alone divide, and not as those of numbers or of prose.
_BY_COMMAS: Final = re.compile(r"^(?=.*(?:(?<!\d),\S|,[^\s\d]))[^\t;|\n]+$", re.MULTILINE)
_TORN: Final = re.compile(r'[\t;|,]"|"[\t;|,]')  # a value between quotes begins or ends in a value
_STATED = re.compile(r"sep=(.)\n")  # the delimiter, as spreadsheets write it
OF_TEXTS = 3  # columns of a table in a text that doesn't say what its first row is; two may be names and values
_FIRST_ROWS: Final = 64  # in which a table begins
_LONGEST_FIELD = 10_000_000
_BAR: Final = re.compile(r"(?<!\\)\|")

_Kind = Literal["", "words", "number", "year", "moment"]
_MOMENT: Final = re.compile(r"\d{1,4}([-/:]\d{1,2}){1,2}([ T][\d:.]+)?|\d{1,2}\.\d{1,2}\.(\d\d|\d{4})")
_YEAR: Final = re.compile(r"(1[6-9]|2[01])\d\d")
_NUMBER: Final = re.compile(r"\W{0,3}\d[\d.,'\u2019 e+-]*\W{0,3}")


def read_csv(content: bytes) -> Content:
    """A file of values separated by commas, semicolons or tabs. Raises `Unreadable`."""
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
    """The one that divides the largest share of rows into as many values as the row above, of equals the one that tears
    fewer values between quotes, then the earlier one, unless it stands before blanks, as in prose, and a comma divides
    more; a comma where none does.
    """
    found, most, values = ",", (0.0, 0), 0.0
    of_commas = sample if _BY_COMMAS.search(sample) else _DECIMAL.sub(r"\1.", sample)
    for delimiter in _DELIMITERS:
        rows = [row for row in _divided(of_commas if delimiter == "," else sample, delimiter) if row]
        if not any(row[-1] for row in rows):  # each line ends in it
            rows = [row[:-1] for row in rows]
        alike = sum(len(above) == len(row) > 1 for above, row in pairwise(rows)) / max(1, len(rows) - 1)
        torn = sum(len(_TORN.findall(value)) for row in rows for value in row)
        mean = sum(map(len, rows)) / max(1, len(rows))
        in_prose = found == ";" and sample.count("; ") == sample.count(";") and mean > values
        if alike and ((alike, -torn) > most or ((alike, -torn) == most and delimiter == "," and in_prose)):
            found, most, values = delimiter, (alike, -torn), mean
    return found


def markdown_with_rows_named(markdown: str) -> str:
    """Markdown whose tables are lines that name their columns; code stays as it is. Raises `TooMuchText` as
    `table_text` does.
    """
    lines, written, size = markdown.split("\n"), list[str](), 0
    is_text, at = list(outside_code(lines)), 0
    while at < len(lines):
        line, at = lines[at], at + 1
        if is_text[at - 1] and at < len(lines) and "|" in line and _is_rule(lines[at], columns := len(_cells(line))):
            first = at + 1
            at = next((below for below in range(first, len(lines)) if "|" not in lines[below]), len(lines))
            # One row at a time: all of a large table in parts would take many times its size.
            rows = (_cells(lines[number])[:columns] for number in chain([first - 2], range(first, at)))
            line = table_text(rows, stated=True, most=MOST_TEXT - size)
        written.append(line)
        size += len(line) + 1
    return "\n".join(written)


def _is_rule(line: str, columns: int) -> bool:
    """Whether a line ends the headings of a table of so many columns; of one, it may as well be a heading's."""
    return columns > 1 and "-" in line and not line.strip(" \t|:-") and len(_cells(line)) == columns


def _cells(line: str) -> list[str]:
    """The values in a row of a Markdown table."""
    cells = _BAR.split(line.strip().removeprefix("|"))
    if not cells[-1].strip():
        cells.pop()
    return [cell.replace("\\|", "|") for cell in cells]


def sheet_text(rows: Iterable[Sequence[str]]) -> str:
    """The `table_text` of a sheet, also of one that has other lines directly above a wider table."""
    listed = iter(rows)
    first = list(islice(listed, _FIRST_ROWS))
    start = _start_of_wider(first)
    rest = table_text(chain(first[start:], listed))
    if not start:
        return rest
    above = table_text(first[:start], OF_TEXTS).split("\n")
    return "\n".join([*above, *[""] * (start - len(above)), rest])


def _start_of_wider(rows: Sequence[Sequence[str]]) -> int:
    """The row with the headings of a table that has more columns than any row above; 0 where none has."""
    widths = [max((number for number, value in enumerate(row, 1) if value.strip()), default=0) for row in rows]
    before = 0
    for number in range(1, len(rows) - 1):
        before = max(before, widths[number - 1])
        if 1 < before < widths[number] <= widths[number + 1] and _are_headings(rows[number], rows[number + 1]):
            return number
    return 0


def table_text(rows: Iterable[Sequence[str]], columns: int = 2, *, stated: bool = False, most: int = MOST_TEXT) -> str:
    """One line for each row, empty ones included; each value behind its column's heading, if there are headings: in the
    first row that has several values, if these are `stated` to be such or at least so many `columns` look like it, with
    the row below where that names parts of them; and in the first row of another table, below an empty row.

    Raises `TooMuchText` for more than `most` characters: a small file has room for long headings and many rows.
    """
    return "\n".join(_no_more_than(most, _lines(rows, columns, stated))).rstrip()


def _lines(rows: Iterable[Sequence[str]], columns: int, stated: bool) -> Iterator[str]:
    """The lines of `table_text`."""
    headings: Sequence[str] | None = None
    upper = False  # whether the row above is the headings'
    apart = True  # from what is above by an empty row
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
    """`texts`, of at most `most` characters with one behind each. Raises `TooMuchText`."""
    size = 0
    for text in texts:
        size += len(text) + 1
        if size > most:
            raise TooMuchText
        yield text


def filled_down(rows: Iterable[Sequence[str]], spans: Mapping[tuple[int, int], int]) -> Iterator[list[str]]:
    """Rows in which the value of a cell that spans several is in all that have any; `spans`: in how many rows, by the
    first row and the column, from 0.
    """
    below: dict[int, tuple[int, str]] = {}  # rows that a value is still in, by column
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
    """Whether a row names the columns of that `below`: by names of which no two are the same."""
    filled = [value for value in values if value]
    return len(set(filled)) == len(filled) and _are_names(values, below)


def _are_names(values: Sequence[str], below: Sequence[str]) -> bool:
    """Whether values are words, or years, days and times above what is none."""
    kinds = _kinds(values, below)
    moments = [(kind, under) for kind, under in kinds if kind in ("year", "moment")]
    return (
        all(kind != "number" for kind, _ in kinds)
        and all(kind != under for kind, under in moments)
        and (not moments or any(under for _, under in moments))
    )


def _name_parts(headings: Sequence[str], values: Sequence[str], below: Sequence[str]) -> bool:
    """Whether the row below headings, of which some span several columns, names the columns of these: they are names
    above what is of another kind.
    """
    within = any(value and not heading for heading, value in zip_longest(headings[1:], values[1:], fillvalue=""))
    unlike = any(kind and under and kind != under for kind, under in _kinds(values, below))
    return within and unlike and _are_names(values, below)


def _in_full(headings: Sequence[str], parts: Sequence[str]) -> Iterator[str]:
    """Headings with their parts, e.g. «Sales 2026»; one goes on until the next."""
    upper = ""
    for heading, part in zip_longest(headings, parts, fillvalue=""):
        upper = heading or upper
        yield " ".join(filter(None, [upper, part if part != upper else ""]))


def _head_another_table(values: Sequence[str], below: Sequence[str]) -> bool:
    """Whether a row that may as well be one of the table above names columns: in one, the row below has no words."""
    unlike = any(kind == "words" and under not in ("", "words") for kind, under in _kinds(values, below))
    return unlike and _are_headings(values, below)


def _kinds(values: Sequence[str], below: Sequence[str]) -> list[tuple[_Kind, _Kind]]:
    """Kinds of the values and of those below them."""
    return [(_kind(value), _kind(under)) for value, under in zip_longest(values, below, fillvalue="")]


def _kind(value: str) -> _Kind:
    if not value:
        return ""
    if _MOMENT.fullmatch(value):
        return "moment"
    if _YEAR.fullmatch(value):
        return "year"
    return "number" if _NUMBER.fullmatch(value) else "words"
