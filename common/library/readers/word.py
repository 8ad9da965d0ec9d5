"""Reader of Word's documents. They become Markdown, whose headings are places."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any, Final
from zipfile import ZIP_STORED, ZipFile

import mammoth
from bs4 import BeautifulSoup
from lxml import etree

from common.library.readers.archive import COMPATIBILITY, description, open_archive, parsed, related, title_in
from common.library.readers.content import Content, Section, margin_lines, whole
from common.library.readers.formulas import MATHS, office_in_line
from common.library.readers.markup import markdown
from common.library.readers.numbering import WORDS, Numbering

# Parts where nothing says that they have other names.
_BODY: Final = "word/document.xml"
_STYLES: Final = "word/styles.xml"
_NUMBERING: Final = "word/numbering.xml"
_PICTURES: Final = "word/media/"  # which nobody opens
_BETWEEN: Final = {WORDS + "tab": " ", WORDS + "ptab": " ", WORDS + "br": "\n", WORDS + "cr": "\n"}


def read_docx(content: bytes) -> Content:
    """Headings, paragraphs, lists with their numbers, tables, text boxes, formulas in a line, and what stands at the
    top and the bottom of pages; pictures are left out. Raises `Unreadable`.
    """
    with open_archive(content) as archive:
        title = title_in(archive, description(archive))
        top, bottom = (margin_lines(_margins(archive, part)) for part in ("header", "footer"))
        body = related(archive, "", "officeDocument", _BODY)
        prepared = _prepared(archive, body) if body in archive.namelist() else content
    page = mammoth.convert_to_html(io.BytesIO(prepared), convert_image=lambda image: []).value
    text = "\n\n".join(filter(None, ["\n".join(top), markdown(BeautifulSoup(page, "lxml")), "\n".join(bottom)]))
    return Content((Section(text, unit="heading"),), title)


def _margins(archive: ZipFile, part: str) -> Iterator[str]:
    """The lines of all headers or footers."""
    for name in sorted(archive.namelist()):
        if re.fullmatch(rf"word/{part}[0-9]*\.xml", name):
            for paragraph in parsed(archive, name).iter(WORDS + "p"):
                parts = (
                    part
                    for part in paragraph.iter(WORDS + "t", *_BETWEEN)
                    # Those of a text box are in paragraphs of their own.
                    if part.getparent().tag == WORDS + "r" and next(part.iterancestors(WORDS + "p")) is paragraph
                )
                yield from "".join(_BETWEEN.get(part.tag) or part.text or "" for part in parts).split("\n")


def _prepared(archive: ZipFile, body: str) -> bytes:
    """The document with what the converter leaves out: formulas, numbers, and words in what it does not know."""
    root = parsed(archive, body)
    for formula in list(root.iter(MATHS + "oMath")):
        run = etree.Element(WORDS + "r")
        etree.SubElement(run, WORDS + "t").text = office_in_line(formula)
        formula.getparent().replace(formula, run)
    _show_boxes(root)
    etree.strip_elements(root, *(WORDS + name for name in ("rt", "rubyPr")), with_tail=False)
    etree.strip_tags(
        root, *(WORDS + name for name in ("fldSimple", "ruby", "rubyBase", "bdo", "dir")), MATHS + "oMathPara"
    )
    for line_end in root.iter(WORDS + "cr"):
        line_end.tag = WORDS + "br"
    for tab in root.iter(WORDS + "ptab"):
        tab.tag = WORDS + "tab"
    for before in list(root.iter(WORDS + "gridBefore")):
        _begin_later(before.getparent(), whole(before.get(WORDS + "val", ""), 0))
    changed = {body: root}
    numbers, styles = related(archive, body, "numbering", _NUMBERING), related(archive, body, "styles", _STYLES)
    if numbers in archive.namelist() and styles in archive.namelist():
        changed[numbers] = numbering = parsed(archive, numbers)
        Numbering(numbering, parsed(archive, styles)).write(root)
        for level in numbering.iter(WORDS + "lvl"):  # those of a style are in the text by now
            kind = level.find(WORDS + "numFmt")
            if kind is None or kind.get(WORDS + "val") != "bullet":
                etree.strip_elements(level, WORDS + "pStyle", with_tail=False)
    prepared = io.BytesIO()
    with ZipFile(prepared, "w", ZIP_STORED) as written:
        for name in archive.namelist():
            if not name.startswith(_PICTURES):
                written.writestr(name, etree.tostring(changed[name]) if name in changed else archive.read(name))
    return prepared.getvalue()


def _begin_later(properties: Any, columns: int) -> None:
    """Put an empty cell over so many columns at the beginning of the row that has these properties."""
    if columns:
        cell = etree.Element(WORDS + "tc")
        wide = etree.SubElement(etree.SubElement(cell, WORDS + "tcPr"), WORDS + "gridSpan")
        wide.set(WORDS + "val", str(columns))
        etree.SubElement(cell, WORDS + "p")
        properties.addnext(cell)


def _show_boxes(root: Any) -> None:
    """Put text boxes where the converter finds them: it reads those of old programs alone."""
    for alternatives in list(root.iter(COMPATIBILITY + "AlternateContent")):
        old = alternatives.find(COMPATIBILITY + "Fallback")
        if old is None or next(old.iter(WORDS + "txbxContent"), None) is None:
            _show_box(alternatives)
        else:
            etree.strip_elements(alternatives, COMPATIBILITY + "Choice", with_tail=False)
    for drawing in list(root.iter(WORDS + "drawing")):
        _show_box(drawing)


def _show_box(element: Any) -> None:
    boxes = list(element.iter(WORDS + "txbxContent"))
    if boxes:
        shown = etree.Element(WORDS + "pict")
        shown.extend(boxes)
        shown.tail = element.tail
        element.getparent().replace(element, shown)
