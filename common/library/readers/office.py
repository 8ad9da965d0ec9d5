"""Readers of paged documents: PDF, slides and spreadsheets. Pages, slides, and rows of sheets are places.

Each imports its library itself: all of them take half a second, and most readings meet PDFs only.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from datetime import datetime, time, timedelta
from itertools import chain, groupby
from typing import Any, Final

from common.library.readers.archive import COMPATIBILITY, description, open_archive, parsed_part, title_of_slides
from common.library.readers.content import NEEDS_PASSWORD, Content, Section, Unreadable, whole
from common.library.readers.formulas import office_in_line
from common.library.readers.tables import OF_TEXTS, filled_down, table_text

_HYPHEN = re.compile(r"(?<=\w)[-\u2010\u00ad]\n(?=\w)")  # also the one that is typed as such, and the soft one
_WITHIN_PARAGRAPH = re.compile(r"(?<![\n.:;!?])\n(?![\n•*\-])")
_MOST_PARTS: Final = 32  # of fields within fields
_DRAWING: Final = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_CHART: Final = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_DIAGRAM: Final = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_OF_OUTLINE: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}dm"
_FORMULA: Final = "{http://schemas.microsoft.com/office/drawing/2010/main}m"
_DIGITS: Final = 15  # that spreadsheets keep of a number
_LITERAL: Final = re.compile(r'"[^"]*"|\\.')  # characters that a number's format puts beside it
_MERGED: Final = re.compile(
    rb"""<(?:\w+:)?mergeCell\b[^<>]*\bref=["']([A-Z]{1,3}[0-9]{1,7}:[A-Z]{1,3}[0-9]{1,7})["']"""
)
# A cell with a formula and without its value, as programs leave it that compute none; an empty text is a value.
_UNCOMPUTED: Final = re.compile(
    rb"""<(\w+:)?c\b(?![^<>]*\bt=["'](?:str|b|e)["'])[^<>]*><(?:\w+:)?f\b[^<>]*(?:/>|>[^<]*</(?:\w+:)?f>)"""
    rb"""(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v></(?:\w+:)?v>)?</(?:\w+:)?c>"""
)


def read_pdf(content: bytes) -> Content:
    """Page by page, with the values of forms. Raises `Unreadable` for one that needs a password, and for one of
    pictures.
    """
    from pypdf import PdfReader
    from pypdf.errors import FileNotDecryptedError

    reader = PdfReader(io.BytesIO(content))
    try:
        # One that is encrypted against changes only, or with an empty password, opens for anybody.
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable(NEEDS_PASSWORD)
        pages, damage = list[str](), None
        for page in reader.pages:
            try:
                pages.append("\n".join([_flowing(page.extract_text()), *_filled_in(page)]))
            except (FileNotDecryptedError, MemoryError):
                raise
            except Exception as error:  # whatever the library makes of a page that is damaged
                pages.append("")
                damage = error
        title = reader.metadata.title if reader.metadata else None
    except FileNotDecryptedError as error:
        raise Unreadable(NEEDS_PASSWORD) from error
    sections = tuple(Section(text, f"page {number}") for number, text in enumerate(pages, 1) if text.strip())
    if not sections and damage is not None:
        raise damage
    if not sections:
        raise Unreadable("it has no text: pages that were scanned are not read")
    return Content(sections, str(title or "").strip())


def _filled_in(page: Any) -> Iterator[str]:
    """The values of a page's form, and words that were typed onto it, which are not part of its text."""
    annotations = _entry(page, "/Annots")
    fields = [each.get_object() for each in annotations] if isinstance(annotations, list) else []
    lines = [_field(field) for field in fields if isinstance(field, dict)]
    yield from (line for line in dict.fromkeys(lines) if line.strip())  # each part of a choice has its value


def _field(field: Any) -> str:
    """A form's field with its name, or typed words; empty for what is neither, and where nothing was filled in."""
    if field.get("/Subtype") == "/FreeText":
        return str(field.get("/Contents") or "")
    kind, value = _inherited(field, "/FT"), _inherited(field, "/V")
    if field.get("/Subtype") != "/Widget" or kind not in ("/Tx", "/Ch", "/Btn"):
        return ""
    texts = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str) and each]
    if kind == "/Btn":  # whose values are names
        texts = [each.removeprefix("/") for each in texts if each != "/Off"]
    name = _inherited(field, "/TU") or _inherited(field, "/T")
    return ": ".join([str(name), ", ".join(texts)] if name else texts) if texts else ""


def _inherited(field: Any, key: str) -> Any:
    """The entry of a form's field, its own or that of a field that it is a part of."""
    for _ in range(_MOST_PARTS):
        if key in field:
            return field[key]
        field = _entry(field, "/Parent")
        if not isinstance(field, dict):
            return None
    return None


def _entry(holder: Any, key: str) -> Any:
    """An entry, also where a reference stands in its place, which `get` would give."""
    if key in holder:
        return holder[key]
    return None


def read_pptx(content: bytes) -> Content:
    """Slide by slide: what stands on it, its tables, charts and diagrams, and the speaker's notes."""
    from pptx import Presentation

    with open_archive(content) as archive:
        deck = Presentation(io.BytesIO(content))
        title = title_of_slides(archive, description(archive), next(map(_heading, deck.slides), ""))
    sections = []
    for number, slide in enumerate(deck.slides, 1):
        _show_new(slide.shapes.element)
        lines = list(_texts(slide.shapes))
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            lines.append(slide.notes_slide.notes_text_frame.text)
        text = "\n".join(line for line in lines if line.strip()).replace("\v", "\n")
        if text:
            sections.append(Section(text, f"slide {number}"))
    return Content(tuple(sections), title)


def _heading(slide: Any) -> str:
    """The heading of a slide, in a line; empty for one that has none."""
    shape = slide.shapes.title
    return " ".join(shape.text_frame.text.split()) if shape is not None and shape.has_text_frame else ""


def read_xlsx(content: bytes) -> Content:
    """Sheet by sheet, a line for each row; of formulas the values that were saved with them, and the formula itself
    where there is none.
    """
    with ExitStack() as stack:
        archive = stack.enter_context(open_archive(content))
        book = stack.enter_context(closing(_workbook(content, formulas=False)))
        written: Any = None  # the same with formulas, where they are needed
        title = str(book.properties.title or "").strip()
        sections = []
        for number, sheet in enumerate(book.worksheets):
            part, formulas = archive.read(sheet._worksheet_path), None
            if _UNCOMPUTED.search(part):
                written = written or stack.enter_context(closing(_workbook(content, formulas=True)))
                formulas = written.worksheets[number]
            text = table_text(filled_down(_rows(sheet, formulas), _merged(part)))
            if text.strip():
                sections.append(Section(text, f"sheet {sheet.title}", "row"))
        return Content(tuple(sections), title)


def _workbook(content: bytes, formulas: bool) -> Any:
    """A workbook with the formulas of its cells, or else their values."""
    import openpyxl

    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=not formulas)
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # which it states, and which programs state wrongly, or for rows without an end
    return book


def _merged(sheet: bytes) -> dict[tuple[int, int], int]:
    """In how many rows cells are that span several, by the first row and the column, from 0."""
    from openpyxl.utils import range_boundaries

    spans = {}
    for reference in _MERGED.findall(sheet):
        column, first, _, last = range_boundaries(reference.decode())
        spans[first - 1, column - 1] = last - first + 1
    return spans


def _rows(sheet: Any, written: Any) -> Iterator[list[str]]:
    """Rows of a sheet, `written` being the same one with formulas, where it is needed."""
    if written is None:
        yield from ([_shown(cell) for cell in row] for row in sheet.iter_rows())
        return
    for row, formulas in zip(sheet.iter_rows(), written.iter_rows(), strict=True):
        yield [
            _formula(formula.value) if cell.value is None and formula.data_type == "f" else _shown(cell)
            for cell, formula in zip(row, formulas, strict=True)
        ]


def _formula(value: Any) -> str:
    """A formula as it was typed, also one of several cells; empty for a table that the program computes."""
    return value if isinstance(value, str) else str(getattr(value, "text", ""))


def _show_new(shapes: Any) -> None:
    """Have shapes that old programs show as pictures read as what they are, with formulas in a line."""
    for alternatives in list(shapes.iter(COMPATIBILITY + "AlternateContent")):
        first = alternatives.find(COMPATIBILITY + "Choice")
        for shape in () if first is None else list(first):
            alternatives.addprevious(shape)
        alternatives.getparent().remove(alternatives)
    for formula in list(shapes.iter(_FORMULA)):
        run = formula.makeelement(_DRAWING + "r")
        text = formula.makeelement(_DRAWING + "t")
        text.text = office_in_line(formula)
        run.append(text)
        formula.getparent().replace(formula, run)


def _of_diagram(frame: Any) -> Iterator[str]:
    """The texts of a diagram's parts, in the order in which its outline has them."""
    for parts in frame.element.iter(_DIAGRAM + "relIds"):
        name = parts.get(_OF_OUTLINE)
        outline = parsed_part(frame.part.related_part(name).blob) if name in frame.part.rels else ()
        for paragraph in (each for point in outline for each in point.iter(_DRAWING + "p")):
            yield "".join(run.text or "" for run in paragraph.iter(_DRAWING + "t"))


def _texts(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if shape.has_text_frame:
            yield shape.text_frame.text
        elif getattr(shape, "has_table", False):
            rows = [list(row.cells) for row in shape.table.rows]
            spans = {
                (number, column): cell.span_height
                for number, row in enumerate(rows)
                for column, cell in enumerate(row)
                if cell.is_merge_origin
            }
            yield table_text(filled_down(([cell.text for cell in row] for row in rows), spans), OF_TEXTS)
        elif getattr(shape, "has_chart", False):
            yield from _of_chart(shape.chart)
        elif getattr(shape.element, "graphicData_uri", "") == _DIAGRAM.strip("{}"):
            yield from _of_diagram(shape)
        elif hasattr(shape, "shapes"):
            yield from _texts(shape.shapes)


def _of_chart(chart: Any) -> Iterator[str]:
    """The title of a chart, and what it shows as a table."""
    if chart.has_title and chart.chart_title.has_text_frame:
        yield chart.chart_title.text_frame.text
    area = chart.element.find(f"{_CHART}chart/{_CHART}plotArea")
    for plot in () if area is None else area:
        yield from _of_plot(plot)


def _of_plot(plot: Any) -> Iterator[str]:
    """A table of the series of a plot, of whatever kind; of each by itself where they have points at other places."""
    series = list(plot.iterchildren(_CHART + "ser"))
    categories = next(filter(None, (_points(each, "cat") for each in series)), {})
    for first, several in groupby(series, lambda each: _points(each, "xVal") or categories):
        columns = [("", first)]
        for each in several:
            name = "".join(_points(each, "tx").values()) or each.findtext(f"{_CHART}tx/{_CHART}v", "")
            columns += [(name, _points(each, "val", "yVal")), ("", _points(each, "bubbleSize"))]
        names, points = zip(*columns, strict=True)
        rows = sorted(set(chain.from_iterable(points)))
        yield table_text([names, *([column.get(row, "") for column in points] for row in rows)])


def _points(series: Any, *names: str) -> dict[int, str]:
    """Values in the part of a series that has one of these names, by the numbers of its points."""
    part = next(series.iterchildren(*(_CHART + name for name in names)), None)
    if part is None:
        return {}
    numbers = next(part.iter(_CHART + "numCache", _CHART + "numLit"), None) is not None
    level = next(part.iter(_CHART + "lvl"), part)  # the innermost of categories within others
    values = {whole(each.get("idx", ""), 0): each.findtext(_CHART + "v", "") for each in level.iter(_CHART + "pt")}
    return {number: _rounded(value) if numbers else value for number, value in values.items()}


def _rounded(number: str) -> str:
    try:
        return _plain(float(number))
    except ValueError:  # such as an error in a formula
        return number


def _flowing(text: str) -> str:
    """A page's text with the lines of a paragraph, and the halves of a word, put together again."""
    return _WITHIN_PARAGRAPH.sub(" ", _HYPHEN.sub(_joined, text))


def _joined(hyphen: re.Match[str]) -> str:
    """Nothing between halves of a word; a name or a number keeps its hyphen."""
    text = hyphen.string
    return "" if text[hyphen.start() - 1].islower() and text[hyphen.end()].islower() else "-"


def _shown(cell: Any) -> str:
    """The value of a cell: numbers with all of their digits, shares as per cent where they are written so, and days
    without a time.
    """
    value = cell.value
    if isinstance(value, int | float) and "%" in _LITERAL.sub("", cell.number_format):
        return f"{100 * value:.{_DIGITS}g}%"
    return _plain(value)


def _plain(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.{_DIGITS}g}"
    if isinstance(value, datetime) and value.time() == time.min:
        return value.date().isoformat()
    if isinstance(value, timedelta):
        minutes, seconds = divmod(round(abs(value).total_seconds()), 60)
        return f"{'-' if value < timedelta() else ''}{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    return str(value)
