"""Rows of tables as text that a language model can read by itself: every row names its columns."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

from common.library.readers.content import Content, Section
from common.library.readers.encodings import decoded

_SAMPLE = 64 * 1024  # characters that tell a file's delimiter
_STATED = re.compile(r"sep=(.)\n")  # the delimiter, as spreadsheets write it
OF_TEXTS = 3  # columns of a table in a text that doesn't say what its first row is; two may be names and values
_LONGEST_FIELD = 10_000_000


def read_csv(content: bytes) -> Content:
    """A file of values separated by commas, semicolons or tabs. Raises `Unreadable`."""
    text = decoded(content).replace("\r\n", "\n").replace("\r", "\n")
    stated = _STATED.match(text)
    if stated:
        text = text[stated.end() :]
    csv.field_size_limit(_LONGEST_FIELD)
    dialect: type[csv.Dialect] = csv.excel
    try:
        dialect = csv.Sniffer().sniff(text[:_SAMPLE], delimiters=",;\t|")
        dialect.doublequote = True  # a sample without a pair of quotes says nothing
    except csv.Error:
        pass
    delimiter = stated[1] if stated else dialect.delimiter
    rows = csv.reader(io.StringIO(text), dialect, delimiter=delimiter)
    return Content((Section(table_text(rows), unit="row"),))


def table_text(rows: Iterable[Sequence[str]], columns: int = 2) -> str:
    """One line for each row, empty ones included; each value behind its column's heading, if there are headings: in the
    first row that has several values, of at least so many `columns`.
    """
    lines: list[str] = []
    headings: Sequence[str] | None = None
    for row in rows:
        values = [" ".join(value.split()) for value in row]
        if headings is None and len(list(filter(None, values))) > 1:
            headings = values if len(values) >= columns and _are_headings(values) else ()
            lines.append(", ".join(filter(None, values)))
        elif headings:
            named = zip([*headings, *[""] * (len(values) - len(headings))], values, strict=False)
            lines.append("; ".join(f"{name}: {value}" if name else value for name, value in named if value))
        else:
            lines.append(", ".join(filter(None, values)))
    return "\n".join(lines).rstrip()


def _are_headings(values: Sequence[str]) -> bool:
    """Whether a row names columns: different words, no number among them."""
    filled = [value for value in values if value]
    return len(set(filled)) == len(filled) and not any(_is_number(value) for value in filled)


def _is_number(value: str) -> bool:
    try:
        float(value.replace(",", "."))
    except ValueError:
        return False
    return True
