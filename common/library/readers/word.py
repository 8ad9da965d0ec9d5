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

from common.library.readers.archive import open_archive, parsed, title_in
from common.library.readers.content import Content, Section, margin_lines
from common.library.readers.markup import markdown

_BODY: Final = "word/document.xml"
_PICTURES: Final = "word/media/"  # which nobody opens
_WORDS: Final = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATHS: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"


def read_docx(content: bytes) -> Content:
    """Headings, paragraphs, lists, tables, formulas in a line, and what stands at the top and the bottom of pages;
    pictures are left out. Raises `Unreadable`.
    """
    with open_archive(content) as archive:
        title = title_in(archive, "docProps/core.xml")
        top, bottom = (margin_lines(_margins(archive, part)) for part in ("header", "footer"))
        prepared = _prepared(archive) if _BODY in archive.namelist() else content
    page = mammoth.convert_to_html(io.BytesIO(prepared), convert_image=lambda image: []).value
    text = "\n\n".join(filter(None, ["\n".join(top), markdown(BeautifulSoup(page, "lxml")), "\n".join(bottom)]))
    return Content((Section(text, unit="heading"),), title)


def _margins(archive: ZipFile, part: str) -> Iterator[str]:
    """The lines of all headers or footers."""
    for name in sorted(archive.namelist()):
        if re.fullmatch(rf"word/{part}[0-9]*\.xml", name):
            for paragraph in parsed(archive, name).iter(_WORDS + "p"):
                yield "".join(run.text or "" for run in paragraph.iter(_WORDS + "t"))


def _prepared(archive: ZipFile) -> bytes:
    """The document with formulas as text, and without fields around text: the converter leaves both out."""
    root = parsed(archive, _BODY)
    for formula in list(root.iter(_MATHS + "oMath")):
        run = etree.Element(_WORDS + "r")
        etree.SubElement(run, _WORDS + "t").text = _in_line(formula)
        formula.getparent().replace(formula, run)
    etree.strip_tags(root, _WORDS + "fldSimple", _MATHS + "oMathPara")
    prepared = io.BytesIO()
    with ZipFile(prepared, "w", ZIP_STORED) as written:
        for name in archive.namelist():
            if not name.startswith(_PICTURES):
                written.writestr(name, etree.tostring(root) if name == _BODY else archive.read(name))
    return prepared.getvalue()


def _in_line(element: Any) -> str:
    """A formula in a line, e.g. `(a + b)/c` or `x^2`."""
    kind = str(element.tag).removeprefix(_MATHS)
    if kind == "t":
        return element.text or ""

    def part(name: str) -> str:
        return "".join(map(_in_line, element.iterchildren(_MATHS + name)))

    match kind:
        case "f":
            return f"{_grouped(part('num'))}/{_grouped(part('den'))}"
        case "sSup":
            return f"{part('e')}^{_grouped(part('sup'))}"
        case "sSub":
            return f"{part('e')}_{_grouped(part('sub'))}"
        case "sSubSup":
            return f"{part('e')}_{_grouped(part('sub'))}^{_grouped(part('sup'))}"
        case "rad":
            return f"{part('deg')}√{_grouped(part('e'))}"
    return "".join(map(_in_line, element))


def _grouped(part: str) -> str:
    return part if part.isalnum() else f"({part})"
