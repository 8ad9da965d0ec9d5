"""Reader of Excel spreadsheets with rows as places."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any, Final
from warnings import catch_warnings, simplefilter
from zipfile import ZIP_STORED, ZipFile

from lxml import etree

from common.library.readers.archive import description, objects, open_office, parsed, related, relations, title_in
from common.library.readers.charts import DRAWING, of_chart
from common.library.readers.content import Content, Section
from common.library.readers.number_formats import GENERAL, shown
from common.library.readers.tables import filled_down, sheet_text
from common.library.readers.within import read_within

_MERGED: Final = re.compile(
    rb"""<(?:\w+:)?mergeCell\b[^<>]*\bref=["']([A-Z]{1,3}[0-9]{1,7}:[A-Z]{1,3}[0-9]{1,7})["']"""
)
# A formula without a value, from a program that computes none; an empty text is a value.
_UNCOMPUTED: Final = re.compile(
    rb"""<(\w+:)?c\b(?![^<>]*\bt=["'](?:str|b|e)["'])[^<>]*><(?:\w+:)?f\b[^<>]*(?:/>|>[^<]*</(?:\w+:)?f>)"""
    rb"""(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v></(?:\w+:)?v>)?</(?:\w+:)?c>"""
)
_ESCAPED: Final = re.compile(r"_x([0-9A-Fa-f]{4})_")  # a character that XML cannot hold, or text of that form
_ESCAPE: Final = b"_x005F_"  # a literal underscore: openpyxl forgets that it was escaped
_KEPT: Final = "\ue0f2"  # replaces it
_KEPT_ESCAPE: Final = f"_{_KEPT}".encode()
_CELL: Final = re.compile(r"[A-Z]{1,3}[0-9]{1,7}")
_WORKBOOK: Final = "xl/workbook.xml"
_VISIBLE: Final = "visible"
_MAIN: Final = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_OF_STYLES: Final = ("fonts", "fills", "borders", "cellStyleXfs")  # required by readers

Notes = Mapping[tuple[int, int], str]  # by row and column, from 1


def read_xlsx(content: bytes) -> Content:
    """Sheet by sheet, a line per row as shown; then charts and text boxes.

    Notes follow their cells' values. A formula shows its saved value, or itself without one.
    """
    archive, content = open_office(content)
    with ExitStack() as stack:
        stack.enter_context(archive)
        title = title_in(archive, description(archive))
        book = stack.enter_context(closing(_workbook(content, archive, formulas=False)))
        written: Any = None  # the same with formulas, if needed
        sections, remarks = list[Section](), list[str]()
        for number, sheet in enumerate(book.worksheets):
            name, formulas = sheet._worksheet_path, None
            part, hidden = archive.read(name), sheet.sheet_state != _VISIBLE
            if _UNCOMPUTED.search(part):
                written = written or stack.enter_context(closing(_workbook(content, archive, formulas=True)))
                formulas = written.worksheets[number]
            text = sheet_text(filled_down(_with_notes(_rows(sheet, formulas), _notes(archive, name)), _merged(part)))
            place = f"{'hidden ' if hidden else ''}sheet {sheet.title}"
            sections += _section(text, place, "row")
            sections += _section("\n".join(_drawn(archive, name)), f"{place}, drawings")
            if hidden and text.strip():
                remarks.append(f"sheet {sheet.title} is hidden, but was read")
        for kind, name in relations(archive, related(archive, "", "officeDocument", _WORKBOOK)).values():
            if kind == "chartsheet":
                sections += _section("\n".join(_drawn(archive, name)), "chart")
        within = read_within(objects(archive), "object")
        return Content((*sections, *within.sections), title, (*remarks, *within.remarks))


def _section(text: str, place: str, unit: Any = "") -> list[Section]:
    return [Section(text, place, unit)] if text.strip() else []


def _workbook(content: bytes, archive: ZipFile, formulas: bool) -> Any:
    import openpyxl

    strings = related(archive, related(archive, "", "officeDocument", _WORKBOOK), "sharedStrings", "")
    if strings in archive.NameToInfo and _ESCAPE in archive.read(strings):
        content = _with_part(archive, strings, archive.read(strings).replace(_ESCAPE, _KEPT_ESCAPE))
    with catch_warnings():
        simplefilter("ignore")  # warnings about styles
        try:
            book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=not formulas)
        except (MemoryError, RecursionError):
            raise
        except Exception:  # any error about unusual styles
            plain = io.BytesIO(_without_looks(archive))
            book = openpyxl.load_workbook(plain, read_only=True, data_only=not formulas)
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # programs state wrong or endless dimensions
    return book


def _without_looks(archive: ZipFile) -> bytes:
    name = related(archive, related(archive, "", "officeDocument", _WORKBOOK), "styles", "xl/styles.xml")
    return _with_part(archive, name, etree.tostring(_bare(parsed(archive, name))))


def _with_part(archive: ZipFile, name: str, content: bytes) -> bytes:
    changed = io.BytesIO()
    with ZipFile(changed, "w", ZIP_STORED) as written:
        for part in archive.namelist():
            if not part.startswith("docProps/"):
                written.writestr(part, content if part == name else archive.read(part))
    return changed.getvalue()


def _bare(styles: Any) -> Any:
    root = etree.Element(_MAIN + "styleSheet")
    root.extend(styles.findall(_MAIN + "numFmts"))
    empty = {"fonts": "font", "fills": "fill", "borders": "border", "cellStyleXfs": "xf"}
    for name in _OF_STYLES:
        holder = etree.SubElement(root, _MAIN + name)
        first = etree.SubElement(holder, _MAIN + empty[name])
        if name == "fills":
            etree.SubElement(first, _MAIN + "patternFill")
    formats = etree.SubElement(root, _MAIN + "cellXfs")
    for each in styles.iterfind(f"{_MAIN}cellXfs/{_MAIN}xf"):
        etree.SubElement(formats, _MAIN + "xf", numFmtId=each.get("numFmtId", "0"))
    return root


def _merged(sheet: bytes) -> dict[tuple[int, int], int]:
    """Row spans of merged cells, by first row and column from 0."""
    from openpyxl.utils import range_boundaries

    spans = {}
    for reference in _MERGED.findall(sheet):
        column, first, _, last = range_boundaries(reference.decode())
        spans[first - 1, column - 1] = last - first + 1
    return spans


def _notes(archive: ZipFile, sheet: str) -> dict[tuple[int, int], str]:
    """Notes by cell; a conversation replaces the note for old programs."""
    from openpyxl.utils.cell import coordinate_to_tuple

    notes, conversations = dict[str, list[str]](), dict[str, list[str]]()
    for kind, name in relations(archive, sheet).values():
        if kind == "comments" and name in archive.NameToInfo:
            _collect(parsed(archive, name).iter("{*}comment"), notes)
        elif kind == "threadedComment" and name in archive.NameToInfo:
            _collect(parsed(archive, name).iter("{*}threadedComment"), conversations)
    said = notes | conversations
    return {coordinate_to_tuple(cell): " ".join(texts) for cell, texts in said.items() if _CELL.fullmatch(cell)}


def _collect(comments: Any, said: dict[str, list[str]]) -> None:
    for each in comments:
        runs = each.iter("{*}t", "{*}text")
        text = " ".join("".join(_unescaped(run.text or "") for run in runs).split())
        if text:
            said.setdefault(each.get("ref", ""), []).append(text)


def _with_notes(rows: Iterator[list[str]], notes: Notes) -> Iterator[list[str]]:
    if not notes:
        yield from rows
        return
    left = dict(notes)
    for number, row in enumerate(rows, 1):
        for row_number, column in [place for place in left if place[0] == number]:
            row += [""] * (column - len(row))
            row[column - 1] = f"{row[column - 1]} (note: {left.pop((row_number, column))})".strip()
        yield row


def _drawn(archive: ZipFile, sheet: str) -> Iterator[str]:
    for kind, name in relations(archive, sheet).values():
        if kind != "drawing" or name not in archive.NameToInfo:
            continue
        for paragraph in parsed(archive, name).iter(DRAWING + "p"):
            yield "".join(run.text or "" for run in paragraph.iter(DRAWING + "t"))
        for inner, part in relations(archive, name).values():
            if inner == "chart" and part in archive.NameToInfo:
                yield from of_chart(parsed(archive, part))


def _rows(sheet: Any, written: Any) -> Iterator[list[str]]:
    if written is None:
        yield from ([_shown(cell) for cell in row] for row in sheet.iter_rows())
        return
    for row, formulas in zip(sheet.iter_rows(), written.iter_rows(), strict=True):
        yield [
            _formula(formula.value) if cell.value is None and formula.data_type == "f" else _shown(cell)
            for cell, formula in zip(row, formulas, strict=True)
        ]


def _formula(value: Any) -> str:
    """A formula as typed, also of several cells; empty for a computed data table."""
    return value if isinstance(value, str) else str(getattr(value, "text", ""))


def _shown(cell: Any) -> str:
    value = cell.value
    if value is None:
        return ""
    return _unescaped(shown(value, cell.number_format or GENERAL))


def _unescaped(text: str) -> str:
    if "_" not in text:
        return text
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text).replace(_KEPT, "")
