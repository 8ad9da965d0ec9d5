"""Reader of Word documents; they become Markdown with headings as places."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from zipfile import ZIP_STORED, ZipFile

import mammoth
from bs4 import BeautifulSoup
from lxml import etree

from common.library.readers.archive import (
    COMPATIBILITY,
    description,
    objects,
    open_office,
    parsed,
    related,
    relations,
    title_in,
)
from common.library.readers.charts import CHART, DIAGRAM, OF_OUTLINE, of_chart, of_diagram
from common.library.readers.content import Content, Section, Unreadable, margin_lines, parse_whole_number
from common.library.readers.formulas import MATHS, office_in_line
from common.library.readers.markup import markdown
from common.library.readers.numbering import WORDS, Numbering
from common.library.readers.within import read_within

# Default names of parts.
_BODY: Final = "word/document.xml"
_STYLES: Final = "word/styles.xml"
_NUMBERING: Final = "word/numbering.xml"
_REFERENCE: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_FALLBACK: Final = COMPATIBILITY + "Fallback"
_SIGN: Final = "\ue0f0{}\ue0f1"  # in no text: marks the place of an embedded document
_MOST_COMMENTED: Final = 200  # quoted characters of a commented text
_PICTURES: Final = "word/media/"  # never opened
_BETWEEN: Final = {WORDS + "tab": " ", WORDS + "ptab": " ", WORDS + "br": "\n", WORDS + "cr": "\n"}


def read_docx(content: bytes) -> Content:
    """Text with numbered lists, tables, boxes, formulas and page margins, without pictures.

    Raises `Unreadable`.
    """
    archive, content = open_office(content)
    with archive:
        title = title_in(archive, description(archive))
        top, bottom = (margin_lines(_margins(archive, part)) for part in ("header", "footer"))
        body = related(archive, "", "officeDocument", _BODY)
        there = body in archive.NameToInfo
        chunks = _Chunks(archive, body)
        comments = list(_comments(archive, body)) if there else []
        prepared = _prepared(archive, body, chunks) if there else content
        within = read_within(objects(archive), "object")
    page = mammoth.convert_to_html(io.BytesIO(prepared), convert_image=lambda image: []).value
    words = "\n\n".join(filter(None, [chunks.put_into(markdown(BeautifulSoup(page, "lxml"))), *comments]))
    remarks = (*chunks.remarks, *within.remarks)
    if not words and not within.sections:
        raise Unreadable("; ".join(["it is empty except for its headers and footers", *remarks]))
    text = "\n\n".join(filter(None, ["\n".join(top), words, "\n".join(bottom)]))
    return Content((Section(text, unit="heading"), *within.sections), title, remarks)


class _Chunks:
    """Embedded documents of other formats, shown by Word in the text."""

    def __init__(self, archive: ZipFile, body: str) -> None:
        self._archive = archive
        self._parts = relations(archive, body)
        self._texts = list[str]()
        self.remarks = list[str]()

    def mark(self, root: Any) -> None:
        """Replaces each document by a sign; the converter keeps it."""
        for chunk in list(root.iter(WORDS + "altChunk")):
            _, name = self._parts.get(chunk.get(_REFERENCE), ("", ""))
            found = read_within([(posixpath.basename(name), self._archive.read(name))], "part") if name else Content(())
            self.remarks += found.remarks
            chunk.getparent().replace(chunk, _paragraph(_SIGN.format(len(self._texts))))
            self._texts.append("\n\n".join(section.text for section in found.sections))

    def put_into(self, text: str) -> str:
        for number, chunk in enumerate(self._texts):
            text = text.replace(_SIGN.format(number), chunk, 1)
        return text


def _paragraph(text: str) -> Any:
    paragraph = etree.Element(WORDS + "p")
    etree.SubElement(etree.SubElement(paragraph, WORDS + "r"), WORDS + "t").text = text
    return paragraph


def _comments(archive: ZipFile, body: str) -> Iterator[str]:
    name = related(archive, body, "comments", "")
    if name not in archive.NameToInfo:
        return
    about = _commented(parsed(archive, body))
    for comment in parsed(archive, name).iter(WORDS + "comment"):
        said = " ".join("".join(_letters(each)) for each in comment.iter(WORDS + "p")).strip()
        words, author = about.get(comment.get(WORDS + "id"), ""), comment.get(WORDS + "author", "")
        if said:
            yield "".join(
                ["Comment", f" by {author}" if author else "", f" on «{words}»" if words else "", f": {said}"]
            )


def _commented(root: Any) -> dict[str | None, str]:
    found, open_now = dict[str | None, str](), set[str | None]()
    for element in root.iter(*(WORDS + name for name in ("commentRangeStart", "commentRangeEnd", "t", "p"))):
        number = element.get(WORDS + "id")
        if element.tag == WORDS + "commentRangeStart":
            open_now.add(number)
        elif element.tag == WORDS + "commentRangeEnd":
            open_now.discard(number)
        else:
            for each in open_now:
                words = found.get(each, "") + (" " if element.tag == WORDS + "p" else element.text or "")
                found[each] = words[:_MOST_COMMENTED]
    return {number: " ".join(words.split()) for number, words in found.items()}


def _letters(paragraph: Any) -> Iterator[str]:
    return (each.text or "" for each in paragraph.iter(WORDS + "t"))


def _margins(archive: ZipFile, part: str) -> Iterator[str]:
    for name in sorted(archive.namelist()):
        if re.fullmatch(rf"word/{part}[0-9]*\.xml", name):
            for paragraph in parsed(archive, name).iter(WORDS + "p"):
                parts = (
                    part
                    for part in paragraph.iter(WORDS + "t", *_BETWEEN)
                    # Words of a text box are in paragraphs of their own.
                    if part.getparent().tag == WORDS + "r" and next(part.iterancestors(WORDS + "p")) is paragraph
                )
                yield from "".join(_BETWEEN.get(part.tag) or part.text or "" for part in parts).split("\n")


def _prepared(archive: ZipFile, body: str, chunks: _Chunks) -> bytes:
    """Adds content omitted by the converter: formulas, numbers, unknown elements' words."""
    root = parsed(archive, body)
    for formula in list(root.iter(MATHS + "oMath")):
        run = etree.Element(WORDS + "r")
        etree.SubElement(run, WORDS + "t").text = office_in_line(formula)
        formula.getparent().replace(formula, run)
    chunks.mark(root)
    _show_drawings(root, archive, relations(archive, body))
    _show_boxes(root)
    _join_initials(root)
    etree.strip_elements(root, *(WORDS + name for name in ("rt", "rubyPr")), with_tail=False)
    etree.strip_tags(
        root, *(WORDS + name for name in ("fldSimple", "ruby", "rubyBase", "bdo", "dir")), MATHS + "oMathPara"
    )
    for line_end in root.iter(WORDS + "cr"):
        line_end.tag = WORDS + "br"
    for tab in root.iter(WORDS + "ptab"):
        tab.tag = WORDS + "tab"
    for before in list(root.iter(WORDS + "gridBefore")):
        _begin_later(before.getparent(), parse_whole_number(before.get(WORDS + "val", ""), 0))
    changed = {body: root}
    numbers, styles = related(archive, body, "numbering", _NUMBERING), related(archive, body, "styles", _STYLES)
    if numbers in archive.namelist() and styles in archive.namelist():
        changed[numbers] = numbering = parsed(archive, numbers)
        Numbering(numbering, parsed(archive, styles)).write(root)
        for level in numbering.iter(WORDS + "lvl"):  # numbers of a style are in the text now
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
    if columns:
        cell = etree.Element(WORDS + "tc")
        wide = etree.SubElement(etree.SubElement(cell, WORDS + "tcPr"), WORDS + "gridSpan")
        wide.set(WORDS + "val", str(columns))
        etree.SubElement(cell, WORDS + "p")
        properties.addnext(cell)


def _show_boxes(root: Any) -> None:
    """Moves text boxes to their old form: the converter reads no other."""
    for alternatives in list(root.iter(COMPATIBILITY + "AlternateContent")):
        old = alternatives.find(COMPATIBILITY + "Fallback")
        if old is None or next(old.iter(WORDS + "txbxContent"), None) is None:
            _show_box(alternatives)
        else:
            etree.strip_elements(alternatives, COMPATIBILITY + "Choice", with_tail=False)
    for drawing in list(root.iter(WORDS + "drawing")):
        _show_box(drawing)


def _show_drawings(root: Any, archive: ZipFile, parts: Mapping[str, tuple[str, str]]) -> None:
    for kind, attribute, text_of in (
        (CHART + "chart", _REFERENCE, of_chart),
        (DIAGRAM + "relIds", OF_OUTLINE, _outline),
    ):
        for drawn in list(root.iter(kind)):
            _, name = parts.get(drawn.get(attribute), ("", ""))
            above = next(drawn.iterancestors(WORDS + "p"), None)
            if (
                name not in archive.NameToInfo
                or above is None
                or next(drawn.iterancestors(_FALLBACK), None) is not None
            ):
                continue
            for text in list(text_of(parsed(archive, name)))[::-1]:
                for line in text.split("\n")[::-1]:
                    above.addnext(_paragraph(line))


def _outline(root: Any) -> Iterator[str]:
    return of_diagram(root.iter(DIAGRAM + "pt"))


def _join_initials(root: Any) -> None:
    for frame in list(root.iter(WORDS + "framePr")):
        paragraph = next(frame.iterancestors(WORDS + "p"), None)
        if paragraph is None or frame.get(WORDS + "dropCap") not in ("drop", "margin"):
            continue
        below = paragraph.getnext()
        if below is not None and below.tag == WORDS + "p":
            properties = below.find(WORDS + "pPr")
            place = 0 if properties is None else 1
            for run in list(paragraph.iterchildren(WORDS + "r"))[::-1]:
                below.insert(place, run)
            paragraph.getparent().remove(paragraph)


def _show_box(element: Any) -> None:
    boxes = list(element.iter(WORDS + "txbxContent"))
    if boxes:
        shown = etree.Element(WORDS + "pict")
        shown.extend(boxes)
        shown.tail = element.tail
        element.getparent().replace(element, shown)
