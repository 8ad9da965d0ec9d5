"""Readers of paged documents: PDF, slides and spreadsheets. Pages, slides, and rows of sheets are places.

Each imports its library itself: all of them take half a second, and most readings meet PDFs only.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

from common.library.readers.archive import open_archive
from common.library.readers.content import NEEDS_PASSWORD, Content, Section, Unreadable
from common.library.readers.tables import table_text

_HYPHENATED = re.compile(r"(?<=[a-z])-\n(?=[a-z])")
_WITHIN_PARAGRAPH = re.compile(r"(?<![\n.:;!?])\n(?![\n•*\-])")


def read_pdf(content: bytes) -> Content:
    """Page by page. Raises `Unreadable` for one that needs a password, and for one whose pages are pictures."""
    from pypdf import PdfReader
    from pypdf.errors import FileNotDecryptedError

    reader = PdfReader(io.BytesIO(content))
    try:
        # One that is encrypted against changes only, or with an empty password, opens for anybody.
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable(NEEDS_PASSWORD)
        pages = [_flowing(page.extract_text()) for page in reader.pages]
        title = reader.metadata.title if reader.metadata else None
    except FileNotDecryptedError as error:
        raise Unreadable(NEEDS_PASSWORD) from error
    sections = tuple(Section(text, f"page {number}") for number, text in enumerate(pages, 1) if text.strip())
    if not sections:
        raise Unreadable("it has no text: pages that were scanned are not read")
    return Content(sections, str(title or "").strip())


def read_pptx(content: bytes) -> Content:
    """Slide by slide: what stands on it, its tables, and the speaker's notes."""
    from pptx import Presentation

    open_archive(content).close()
    deck = Presentation(io.BytesIO(content))
    sections = []
    for number, slide in enumerate(deck.slides, 1):
        lines = list(_texts(slide.shapes))
        if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
            lines.append(slide.notes_slide.notes_text_frame.text)
        text = "\n".join(line for line in lines if line.strip())
        if text:
            sections.append(Section(text, f"slide {number}"))
    return Content(tuple(sections), deck.core_properties.title.strip())


def read_xlsx(content: bytes) -> Content:
    """Sheet by sheet, a line for each row; of formulas the values that were saved with them."""
    import openpyxl

    open_archive(content).close()
    book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    try:
        title = str(book.properties.title or "").strip()
        sections = []
        for sheet in book.worksheets:
            rows = ([_cell(value) for value in row] for row in sheet.iter_rows(values_only=True))
            text = table_text(rows)
            if text.strip():
                sections.append(Section(text, f"sheet {sheet.title}", "row"))
        return Content(tuple(sections), title)
    finally:
        book.close()


def _texts(shapes: Iterable[Any]) -> Iterator[str]:
    for shape in shapes:
        if shape.has_text_frame:
            yield shape.text_frame.text
        elif getattr(shape, "has_table", False):
            yield table_text([cell.text for cell in row.cells] for row in shape.table.rows)
        elif hasattr(shape, "shapes"):
            yield from _texts(shape.shapes)


def _flowing(text: str) -> str:
    """A page's text with the lines of a paragraph, and the halves of a word, put together again."""
    return _WITHIN_PARAGRAPH.sub(" ", _HYPHENATED.sub("", text))


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
