"""Reader of Excel's old binary workbooks (.xls) without LibreOffice."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, time, timedelta
from typing import Any, Final

from common.library.readers.content import NEEDS_PASSWORD, Content, Section, Unreadable, unread
from common.library.readers.number_formats import GENERAL, shown
from common.library.readers.tables import filled_down, sheet_text

_AS_STORED: Final = "numbers are read as stored, without their formats; LibreOffice, if installed, reads those too"
_NOTE, _DRAWING, _BEGINS = 0x1C, 0x1B6, 0x809  # records: a note, a text box, a part
_CHART: Final = 0x20


def read_xls(content: bytes) -> Content:
    """Sheet by sheet, a line per row. Raises `Unreadable`."""
    from python_calamine import CalamineWorkbook, PasswordError, SheetVisibleEnum

    try:
        book = CalamineWorkbook.from_filelike(io.BytesIO(content))
    except PasswordError as error:
        raise Unreadable(NEEDS_PASSWORD) from error
    with closing(book):
        sections, remarks, numbers = list[Section](), list[str](), False
        for meta in book.sheets_metadata:
            sheet = book.get_sheet_by_name(meta.name)
            rows = sheet.to_python(skip_empty_area=False)
            numbers = numbers or any(isinstance(value, int | float) for row in rows for value in row)
            spans = {start: end[0] - start[0] + 1 for start, end in sheet.merged_cell_ranges or ()}
            text = sheet_text(filled_down(([_shown(value) for value in row] for row in rows), spans))
            hidden = meta.visible != SheetVisibleEnum.Visible
            if text.strip():
                sections.append(Section(text, f"{'hidden ' * hidden}sheet {meta.name}", "row"))
                remarks += [f"sheet {meta.name} is hidden, and is read"] * hidden
    return Content(tuple(sections), "", (*remarks, *[_AS_STORED] * numbers, *_left_out(content)))


def _shown(value: Any) -> str:
    if isinstance(value, datetime) and not value.time():
        value = value.date()
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, date | time | timedelta):
        return str(value)
    return value if isinstance(value, str) else shown(value, GENERAL)


def _left_out(content: bytes) -> Iterator[str]:
    import olefile

    counts = Counter[str]()
    with olefile.OleFileIO(content) as file:
        stream = next((name for name in ("Workbook", "Book") if file.exists(name)), "")
        book = file.openstream(stream).read() if stream else b""
    at = 0
    while at + 4 <= len(book):
        kind, size = int.from_bytes(book[at : at + 2], "little"), int.from_bytes(book[at + 2 : at + 4], "little")
        counts["note"] += kind == _NOTE
        counts["text box"] += kind == _DRAWING
        counts["chart"] += kind == _BEGINS and int.from_bytes(book[at + 6 : at + 8], "little") == _CHART
        at += 4 + size
    boxes = counts["text box"] - counts["note"]  # a note has a box, too
    for thing, count in (("note", counts["note"]), ("text box", boxes), ("chart", counts["chart"])):
        yield from unread(max(0, count), thing)
