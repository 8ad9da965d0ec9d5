"""Readers of OpenDocument files: texts, slides and spreadsheets, as LibreOffice writes them."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from zipfile import ZipFile

from lxml import etree

from common.library.readers.archive import open_archive, parsed, title_in, title_of_slides
from common.library.readers.content import (
    NEEDS_PASSWORD,
    Content,
    Section,
    Unreadable,
    margin_lines,
    parse_whole_number,
    unread,
)
from common.library.readers.opendocument_lists import NUMBERED, TEXT, write_numbers
from common.library.readers.tables import OF_TEXTS, filled_down, sheet_text, table_text

_OFFICE: Final = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TABLE: Final = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_DRAWING: Final = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_CLASS: Final = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}class"  # of a slide's frame
_FORMULA: Final = "{http://www.w3.org/1998/Math/MathML}annotation"
_REFERENCE: Final = "{http://www.w3.org/1999/xlink}href"
_MIME: Final = _DRAWING + "mime-type"
_FILMS: Final = ("video/", "audio/", "application/vnd.sun.star.media")
_CELLS: Final = _TABLE + "table-cell", _TABLE + "covered-table-cell"
_PARAGRAPHS: Final = TEXT + "p", TEXT + "h", TEXT + "list"
_STYLES: Final = "styles.xml"
_MOST_LEVELS: Final = 6  # of Markdown headings
_MOST_COLUMNS: Final = 16_384  # of a spreadsheet
_MOST_SPACES: Final = 1_000  # for one element
_MOST_OF_NAME: Final = 31  # characters of a sheet name, other programs' limit: a place also has room for the row
_MOST_ROWS: Final = 1_048_576
# Deleted content, invisible declarations, and pronunciation.
_SILENT: Final = {TEXT + name for name in ("tracked-changes", "sequence-decls", "variable-decls", "ruby-text")}
_COMMENT: Final = _OFFICE + "annotation"
_OF_COMMENT: Final = ("creator", "creator-initials", "date", "date-string", "sender-initials")
_SPACE: Final = re.compile(r"[ \t\r\n]+")


def read_odt(content: bytes) -> Content:
    """Reads a text: headings, paragraphs, numbered lists, tables, embedded content, page margins.

    Raises `Unreadable`.
    """
    with _opened(content) as archive:
        body = _with_embedded(_body(archive, "text"), archive)
        styles = [parsed(archive, _STYLES)] if _STYLES in archive.namelist() else []
        write_numbers(body, [*styles, body.getroottree().getroot()])
        top, bottom = (margin_lines(_margins(archive, part)) for part in ("header", "footer"))
        blocks = [*top, *_blocks(body), *bottom]
        text = "\n\n".join(filter(None, (block.strip() for block in blocks)))
        return Content((Section(text, unit="heading"),), title_in(archive, "meta.xml"), _unread(body))


def read_odp(content: bytes) -> Content:
    """Slide by slide: text, tables, embedded content and notes. Raises `Unreadable`."""
    sections = []
    with _opened(content) as archive:
        body = _with_embedded(_body(archive, "presentation"), archive)
        slides = list(body.iter(_DRAWING + "page"))
        for number, slide in enumerate(slides, 1):
            text = "\n".join(filter(None, (block.strip() for block in _blocks(slide))))
            if text:
                sections.append(Section(text, f"slide {number}"))
        title = title_of_slides(archive, "meta.xml", next(map(_heading, slides), ""))
        return Content(tuple(sections), title, _unread(body))


def _heading(slide: Any) -> str:
    frames = (each for each in slide.iterchildren(_DRAWING + "frame") if each.get(_CLASS) == "title")
    return " ".join(" ".join(_blocks(next(frames, ()))).split())


def read_ods(content: bytes) -> Content:
    """Sheet by sheet, a line for each row as shown. Raises `Unreadable`."""
    sections = []
    with _opened(content) as archive:
        body = _body(archive, "spreadsheet")
        for sheet in body.iterchildren(_TABLE + "table"):
            text = sheet_text(filled_down(_rows(sheet), _spans(sheet)))
            if text.strip():
                sections.append(Section(text, f"sheet {sheet.get(_TABLE + 'name', '')[:_MOST_OF_NAME]}", "row"))
        drawn = sum(True for _ in body.iter(_DRAWING + "object"))
        return Content(
            tuple(sections), title_in(archive, "meta.xml"), (*unread(drawn, "chart or object"), *_unread(body))
        )


def _unread(body: Any) -> tuple[str, ...]:
    objects = sum(True for _ in body.iter(_DRAWING + "object-ole"))
    films = sum(each.get(_MIME, "").startswith(_FILMS) for each in body.iter(_DRAWING + "plugin"))
    return (*unread(objects, "embedded object"), *unread(films, "recording"))


def _opened(content: bytes) -> ZipFile:
    archive = open_archive(content)
    if _is_encrypted(archive):
        raise Unreadable(NEEDS_PASSWORD)
    if "content.xml" not in archive.namelist():
        raise Unreadable("it is not an OpenDocument file: its contents are missing")
    return archive


def _body(archive: ZipFile, kind: str) -> Any:
    body = parsed(archive, "content.xml").find(f"{_OFFICE}body/{_OFFICE}{kind}")
    if body is None:
        raise Unreadable(f"it is not an OpenDocument {kind}")
    return body


def _with_embedded(body: Any, archive: ZipFile) -> Any:
    left = {name for name in archive.namelist() if name.endswith("/content.xml")}
    for frame in list(body.iter(_DRAWING + "frame")):
        references = (each.get(_REFERENCE, "") for each in frame.iterchildren(_DRAWING + "object"))
        names = (posixpath.join(posixpath.normpath(each), "content.xml") for each in references)
        name = next((each for each in names if each in left), None)
        if name is not None:
            left.discard(name)  # only once, however often it is referred to
            _embed(parsed(archive, name), frame)
    return body


def _embed(root: Any, frame: Any) -> None:
    formula = next(root.iter(_FORMULA), None)
    if formula is None:
        etree.SubElement(frame, _DRAWING + "text-box").append(root)
    else:
        line = etree.Element(TEXT + "p")
        line.text, line.tail = formula.text, frame.tail
        frame.getparent().replace(frame, line)


def _margins(archive: ZipFile, part: str) -> Iterator[str]:
    if _STYLES in archive.namelist():
        for root in parsed(archive, _STYLES).iter("{*}" + part):
            yield from _blocks(root)


def _is_encrypted(archive: ZipFile) -> bool:
    name = "META-INF/manifest.xml"
    if "encrypted-package" in archive.namelist():  # the whole document in one part
        return True
    return name in archive.namelist() and any(True for _ in parsed(archive, name).iter("{*}encryption-data"))


def _blocks(element: Iterable[Any], depth: int = 0) -> Iterator[str]:
    for child in element:
        if child.tag in _SILENT:
            continue
        if child.tag == TEXT + "h":
            level = min(_number(child, TEXT + "outline-level"), _MOST_LEVELS)
            yield f"{'#' * level} {_line(child)}"
            yield from _framed(child)
        elif child.tag == TEXT + "p":
            yield _line(child)
            yield from _framed(child)
        elif child.tag == TEXT + "list":
            yield _list(child, depth)
        elif child.tag == _COMMENT:
            yield f"({comment})" if (comment := _comment(child)) else ""
        elif child.tag == _TABLE + "table":
            yield table_text(filled_down(_rows(child), _spans(child)), OF_TEXTS)
        elif isinstance(child.tag, str):
            yield from _blocks(child, depth)


def _comment(element: Any) -> str:
    words = " ".join(_blocks(each for each in element if etree.QName(each).localname not in _OF_COMMENT))
    return f"Comment: {words}" if words else ""


def _framed(element: Any) -> Iterator[str]:
    for child in element:
        if child.tag == _DRAWING + "text-box" or (_is_drawn(child) and any(each.tag in _PARAGRAPHS for each in child)):
            yield from _blocks(child)
        elif child.tag not in (*_SILENT, TEXT + "note", _COMMENT):
            yield from _framed(child)


def _is_drawn(element: Any) -> bool:
    """Whether an element is a frame or shape, with words outside the surrounding line."""
    return isinstance(element.tag, str) and element.tag.startswith(_DRAWING) and element.tag != _DRAWING + "a"


def _list(element: Any, depth: int) -> str:
    lines = []
    for item in element.iterchildren(TEXT + "list-item", TEXT + "list-header"):
        sign = "" if item.get(NUMBERED) else "- "
        for child in item:
            for block in _blocks([child], depth + 1):
                lines.append(block if child.tag in (TEXT + "list", TEXT + "h") else f"{'  ' * depth}{sign}{block}")
                sign = "  "
    return "\n".join(lines)


def _rows(table: Any) -> Iterator[list[str]]:
    empty, left = 0, _MOST_ROWS
    for row in _own_rows(table):
        values = _cells(row)
        times = _number(row, _TABLE + "number-rows-repeated")
        if not values:
            empty += times
            continue
        above, same = min(empty, left), min(times, max(0, left - empty))
        left -= above + same
        yield from [[]] * above
        yield from [values] * same
        empty = 0


def _own_rows(table: Any) -> Iterator[Any]:
    for row in table.iter(_TABLE + "table-row"):
        if next(row.iterancestors(_TABLE + "table")) is table:
            yield row


def _spans(table: Any) -> dict[tuple[int, int], int]:
    """Row spans above 1, by first row and column from 0."""
    spans, number = {}, 0
    for row in _own_rows(table):
        column = 0
        for cell in row.iterchildren(*_CELLS):
            tall = _number(cell, _TABLE + "number-rows-spanned")
            if tall > 1:
                spans[number, column] = tall
            column += _number(cell, _TABLE + "number-columns-repeated")
        number += _number(row, _TABLE + "number-rows-repeated")
    return spans


def _cells(row: Any) -> list[str]:
    values: list[str] = []
    empty = 0
    for cell in row.iterchildren(*_CELLS):
        value = " ".join(filter(None, _blocks(cell)))
        times = _number(cell, _TABLE + "number-columns-repeated")
        if not value:
            empty += times
            continue
        room = max(0, _MOST_COLUMNS - len(values))
        values += [""] * min(empty, room) + [value] * min(times, max(0, room - empty))
        empty = 0
    return values


def _line(element: Any) -> str:
    """Text of a heading or paragraph; only white space written as elements counts fully."""
    out = io.StringIO()
    _write(element, out)
    return out.getvalue().strip()


def _write(element: Any, out: io.StringIO) -> None:
    out.write(_SPACE.sub(" ", element.text or ""))
    for child in element:
        if child.tag == TEXT + "s":
            out.write(" " * min(_number(child, TEXT + "c"), _MOST_SPACES))
        elif child.tag == TEXT + "tab":
            out.write("\t")
        elif child.tag == TEXT + "line-break":
            out.write("\n")
        elif child.tag in (TEXT + "note", _COMMENT):
            note = _comment(child) if child.tag == _COMMENT else " ".join(_blocks(child))
            out.write(f" ({note})" if note else "")
        elif child.tag not in _SILENT and not _is_drawn(child) and isinstance(child.tag, str):
            _write(child, out)
        out.write(_SPACE.sub(" ", child.tail or ""))


def _number(element: Any, name: str) -> int:
    return max(1, parse_whole_number(element.get(name, ""), 1))
