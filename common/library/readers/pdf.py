"""Reader of PDFs with pages as places.

PDFium gives characters, lines and annotations, much faster than pypdf. It gives form values only by drawing them, so
these are pypdf's.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from ctypes import POINTER, byref, c_float, c_int, c_ushort, cast, create_string_buffer
from itertools import pairwise
from typing import Any, Final

import pypdfium2
from pypdfium2 import raw

from common.library.readers.content import NEEDS_PASSWORD, Content, Section, Unreadable, is_chosen
from common.library.readers.layout import MOST_RULES, Box, PageReader, Word, heading_of
from common.library.readers.scans import ENGINE, LONGEST_SIDE, RESOLUTION, Scanned, reached, read_scan
from common.library.readers.within import read_within

_CUT: Final = re.compile(
    r"(\w)[-\u2010\u00ad]((?:\n+[^\w\n]*\d{0,5}[^\w\n]*)?)\Z"
)  # a word's first half, a page's number
_REST: Final = re.compile(r"\w+\S*[ \n]*")
_HYPHENS: Final = str.maketrans("\x02\ufffe", "--")  # PDFium's marks of a line-end hyphen
_WORD: Final = re.compile("[^\\s\0\x02\ufffe]+[\x02\ufffe]?")
_NO_GAP: Final = 0.1  # letter sizes
_FULL_TURN: Final = 2 * math.pi
_ASKEW: Final = 0.2  # quarter turns of tolerance for a text's angle
_MOST_PARTS: Final = 32  # of nested fields
_MOST_OBJECTS: Final = 50_000  # objects of a page searched for lines
_MOST_POINTS: Final = 400  # of a path of lines
_THIN: Final = 3.0  # points of a line
_LONGEST_NOTE: Final = 100_000  # bytes
_PLACEHOLDER: Final = 2000  # characters of the placeholder page of a dynamic form
_ONLY_ADOBE: Final = "it is an XFA form, which only Adobe's programs show: print it to a PDF with one of them"
_SEVERAL: Final = 12  # page numbers in a remark
_FEW_WORDS: Final = 12  # such as the page number that a scanner writes on a picture
_COVERED: Final = 0.5  # part of a page
_DRAWN: Final = 20  # paths of a page with drawn letters
_PICTURES: Final = (raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_FORM, raw.FPDF_PAGEOBJ_SHADING)


def read_pdf(content: bytes) -> Content:
    """Reads page by page, then attachments.

    A page has columns, tables and paragraphs, then notes and form values. Raises `Unreadable`.
    """
    try:
        document = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", 0) == raw.FPDF_ERR_PASSWORD:
            raise Unreadable(NEEDS_PASSWORD) from error
        raise
    with closing(document):
        pages, scans = list[str](), dict[int, Scanned]()
        blank, heading, widgets, layout, scanned_layout = list[int](), "", 0, PageReader(), PageReader()
        for number in range(1, len(document) + 1):
            reached(number, len(document))
            page = _Page(document, number)
            with closing(page):
                words = page.words()
                lines = [page.text(words, layout), *page.notes(words.get(0, []))]
                widgets += page.widgets
                if page.is_scan(words):
                    scan = scans[number] = read_scan(page.picture, page.resolution)
                    lines.append(scanned_layout.text_of(scan.words, scan.rules))
                elif not words and page.is_empty:
                    blank.append(number)
                pages.append("\n".join(filter(None, lines)))
                if number == 1:
                    seen = max(words.values(), key=len, default=scans[1].words if 1 in scans else [])
                    heading = heading_of(seen)
        kind = document.get_formtype()
        title = document.get_metadata_value("Title").strip()
        attached = read_within(_attachments(document))
    dynamic = kind in (raw.FORMTYPE_XFA_FULL, raw.FORMTYPE_XFA_FOREGROUND) and not widgets
    if dynamic and sum(map(len, pages)) < _PLACEHOLDER:
        raise Unreadable(_ONLY_ADOBE)
    remarks = [*_about_scans(scans), *attached.remarks]
    if widgets or blank:
        remarks += _with_pypdf(content, pages, blank)
    _join_cut_words(pages)
    sections = [Section(text, f"page {number}") for number, text in enumerate(pages, 1) if text.strip()]
    if not sections and not attached.sections and scans:
        raise Unreadable("; ".join(["it has no text", *remarks]))
    return Content((*sections, *attached.sections), title if is_chosen(title) else heading, tuple(remarks))


def _about_scans(scans: Mapping[int, Scanned]) -> Iterator[str]:
    for failed, numbers in _by_outcome(scans).items():
        outcome = f"which is not read: {failed}" if failed else f"read by {ENGINE}"
        yield f"{_pages(numbers)} scanned, {outcome}"
    for number, scan in scans.items():
        if scan.unclear:
            yield f"on page {number}, {scan.unclear} line{'s' * (scan.unclear > 1)} can't be recognised"


def _by_outcome(scans: Mapping[int, Scanned]) -> dict[str, list[int]]:
    found = dict[str, list[int]]()
    for number, scan in scans.items():
        found.setdefault(scan.failed, []).append(number)
    return found


class _Page:
    def __init__(self, document: Any, number: int) -> None:
        self._page = document[number - 1]
        self._text = self._page.get_textpage()
        self.widgets = 0

    def close(self) -> None:
        self._text.close()
        self._page.close()

    @property
    def is_empty(self) -> bool:
        return not raw.FPDFPage_CountObjects(self._page)

    def is_scan(self, words: Mapping[int, Sequence[Word]]) -> bool:
        """Whether the page's words are in its pictures or drawn as paths."""
        said = sum(map(len, words.values()))
        if said >= _FEW_WORDS:
            return False
        drawn, area = 0, self._page.get_width() * self._page.get_height()
        for number in range(min(raw.FPDFPage_CountObjects(self._page), _MOST_OBJECTS)):
            each = raw.FPDFPage_GetObject(self._page, number)
            kind = raw.FPDFPageObj_GetType(each)
            drawn += kind == raw.FPDF_PAGEOBJ_PATH
            if kind in _PICTURES and not said:
                return True
            if said and _has_picture(each, kind) and _area_of(each) > _COVERED * area:
                return True
        return not said and drawn >= _DRAWN

    @property
    def resolution(self) -> float:
        """Dots per inch of `picture`."""
        longest = float(max(self._page.get_size())) / 72
        return min(float(RESOLUTION), LONGEST_SIDE / max(longest, 0.01))

    def picture(self) -> Any:
        """The page as a picture without its annotations."""
        return self._page.render(scale=self.resolution / 72, draw_annots=False).to_pil()

    def words(self) -> dict[int, list[Word]]:
        """Words of the page by quarter turns; 4 for slanted words."""
        text, found = self._text.raw, dict[int, list[Word]]()
        count = raw.FPDFText_CountChars(text)
        letters = _letters(text, count)
        first, last = raw.FS_RECTF(), raw.FS_RECTF()
        at_first, at_last = byref(first), byref(last)
        box_of, angle_of, index_of = (
            raw.FPDFText_GetLooseCharBox,
            raw.FPDFText_GetCharAngle,
            raw.FPDFText_GetCharIndexFromTextIndex,
        )
        for match in _WORD.finditer(letters):
            start, end = match.start(), match.end() - 1
            if len(letters) != count:
                start, end = index_of(text, start), index_of(text, end)
            if not (box_of(text, start, at_first) and box_of(text, end, at_last)):
                continue
            turn = _turn(angle_of(text, start))
            left, bottom, right, top = first.left, first.bottom, first.right, first.top
            box = _turned(
                left if left < last.left else last.left,
                bottom if bottom < last.bottom else last.bottom,
                right if right > last.right else last.right,
                top if top > last.top else last.top,
                turn,
            )
            word = Word(box, _text_of(match[0]), box.height, start)
            found.setdefault(turn, []).append(word)
        return {turn: _rejoined(words) if turn in (1, 3) else words for turn, words in found.items()}

    def text(self, words: dict[int, list[Word]], layout: PageReader) -> str:
        """The page's text: the main orientation first, by the document's `layout`, then the others."""
        turns = sorted((turn for turn in words if turn < 4), key=lambda turn: -len(words[turn]))
        rules = self._rules() if words else []
        layouts = [layout, *(PageReader() for _ in turns[1:])]
        texts = [
            each.text_of(words[turn], [_turned(*rule, turn) for rule in rules])
            for each, turn in zip(layouts, turns, strict=False)
        ]
        return "\n\n".join(filter(None, [*texts, " ".join(word.text for word in words.get(4, ()))]))

    def _rules(self) -> list[tuple[float, float, float, float]]:
        """Straight lines as (left, bottom, right, top); none for a drawing of very many."""
        found = list[tuple[float, float, float, float]]()
        for each, matrix in self._paths():
            found += _lines_of(each, matrix)
            if len(found) > MOST_RULES:
                return []
        return found

    def _paths(self) -> Iterator[tuple[Any, Any]]:
        for number in range(min(raw.FPDFPage_CountObjects(self._page), _MOST_OBJECTS)):
            each = raw.FPDFPage_GetObject(self._page, number)
            kind = raw.FPDFPageObj_GetType(each)
            if kind == raw.FPDF_PAGEOBJ_PATH:
                yield each, None
            elif kind == raw.FPDF_PAGEOBJ_FORM:
                matrix = _matrix(each)
                for inner in range(min(raw.FPDFFormObj_CountObjects(each), _MOST_OBJECTS)):
                    part = raw.FPDFFormObj_GetObject(each, inner)
                    if raw.FPDFPageObj_GetType(part) == raw.FPDF_PAGEOBJ_PATH:
                        yield part, matrix

    def notes(self, words: Sequence[Word]) -> Iterator[str]:
        """Notes, stamps and typed words, and comments on marked words."""
        for number in range(raw.FPDFPage_GetAnnotCount(self._page)):
            annotation = raw.FPDFPage_GetAnnot(self._page, number)
            if not annotation:
                continue
            try:
                kind = raw.FPDFAnnot_GetSubtype(annotation)
                self.widgets += kind == raw.FPDF_ANNOT_WIDGET
                shown = not raw.FPDFAnnot_GetFlags(annotation) & raw.FPDF_ANNOT_FLAG_HIDDEN
                if kind in _NOTES and shown and (line := self._note(annotation, kind, words)):
                    yield line
            finally:
                raw.FPDFPage_CloseAnnot(annotation)

    def _note(self, annotation: Any, kind: int, words: Sequence[Word]) -> str:
        said = _string(annotation, b"Contents").strip()
        if kind == raw.FPDF_ANNOT_STAMP and not said:
            said = _string(annotation, b"Name").strip()
        if not said or kind == raw.FPDF_ANNOT_FREETEXT:
            return said
        author, marked = _string(annotation, b"T").strip(), _marked(annotation, words)
        what = " ".join(
            filter(None, [_NOTES[kind], f"by {author}" if author else "", f"on «{marked}»" if marked else ""])
        )
        return f"{what}: {said}"


def _marked(annotation: Any, words: Sequence[Word]) -> str:
    found, points = list[str](), raw.FS_QUADPOINTSF()
    for each in range(min(raw.FPDFAnnot_CountAttachmentPoints(annotation), _MOST_POINTS)):
        if raw.FPDFAnnot_GetAttachmentPoints(annotation, each, byref(points)):
            xs, ys = (points.x1, points.x2, points.x3, points.x4), (points.y1, points.y2, points.y3, points.y4)
            area = Box(min(xs), min(ys), max(xs), max(ys))
            found += (word.text for word in words if area.holds(word.box))
    return " ".join(found)


_NOTES: Final = {
    raw.FPDF_ANNOT_TEXT: "Note",
    raw.FPDF_ANNOT_FREETEXT: "",
    raw.FPDF_ANNOT_HIGHLIGHT: "Note",
    raw.FPDF_ANNOT_UNDERLINE: "Note",
    raw.FPDF_ANNOT_SQUIGGLY: "Note",
    raw.FPDF_ANNOT_STRIKEOUT: "Struck out",
    raw.FPDF_ANNOT_STAMP: "Stamp",
    raw.FPDF_ANNOT_CARET: "Note",
    raw.FPDF_ANNOT_INK: "Note",
    raw.FPDF_ANNOT_SQUARE: "Note",
    raw.FPDF_ANNOT_CIRCLE: "Note",
    raw.FPDF_ANNOT_LINE: "Note",
    raw.FPDF_ANNOT_POLYGON: "Note",
    raw.FPDF_ANNOT_POLYLINE: "Note",
    raw.FPDF_ANNOT_FILEATTACHMENT: "Attached",
}


def _rejoined(words: Sequence[Word]) -> list[Word]:
    """Joins words of upright lines without a gap: PDFium takes the width of letters there for their height."""
    joined = list[Word]()
    for word in words:
        last = joined[-1] if joined else None
        if last is None or not word.box.beside(last.box) or abs(word.box.left - last.box.right) > _NO_GAP * word.size:
            joined.append(word)
            continue
        one, other = last.box, word.box
        box = Box(one.left, min(one.bottom, other.bottom), other.right, max(one.top, other.top))
        joined[-1] = Word(box, last.text + word.text, max(last.size, word.size), last.order)
    return joined


def _has_picture(element: Any, kind: int) -> bool:
    if kind != raw.FPDF_PAGEOBJ_FORM:
        return bool(kind == raw.FPDF_PAGEOBJ_IMAGE)
    inner = range(min(raw.FPDFFormObj_CountObjects(element), _MOST_OBJECTS))
    kinds = (raw.FPDFPageObj_GetType(raw.FPDFFormObj_GetObject(element, each)) for each in inner)
    return raw.FPDF_PAGEOBJ_IMAGE in kinds


def _area_of(element: Any) -> float:
    left, bottom, right, top = c_float(), c_float(), c_float(), c_float()
    if not raw.FPDFPageObj_GetBounds(element, byref(left), byref(bottom), byref(right), byref(top)):
        return 0
    return float((right.value - left.value) * (top.value - bottom.value))


def _letters(page: Any, count: int) -> str:
    buffer = create_string_buffer(2 * (count + 1))
    written = raw.FPDFText_GetText(page, 0, count, cast(buffer, POINTER(c_ushort)))
    units = buffer.raw[: 2 * max(0, written - 1)]
    text = units.decode("utf-16-le", "surrogatepass")
    return text if 2 * len(text) == len(units) else "".join(map(chr, memoryview(units).cast("H")))


def _text_of(letters: str) -> str:
    if letters.isascii() and letters.isprintable():
        return letters
    return letters.translate(_HYPHENS).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _turn(angle: float) -> int:
    """Quarter turns to the left; 4 for an angle in between."""
    turns = -angle / _FULL_TURN * 4
    return round(turns) % 4 if abs(turns - round(turns)) < _ASKEW else 4


def _turned(left: float, bottom: float, right: float, top: float, turn: int) -> Box:
    if turn == 1:
        return Box(bottom, -right, top, -left)
    if turn == 2:
        return Box(-right, -top, -left, -bottom)
    if turn == 3:
        return Box(-top, left, -bottom, right)
    return Box(left, bottom, right, top)


def _lines_of(path: Any, outer: Any) -> Iterator[tuple[float, float, float, float]]:
    count = raw.FPDFPath_CountSegments(path)
    fill, stroke = c_int(), c_int()
    if not 2 <= count <= _MOST_POINTS or not raw.FPDFPath_GetDrawMode(path, byref(fill), byref(stroke)):
        return
    matrix = _matrix(path)
    for points in _subpaths(path, count):
        placed = [_placed(_placed(point, matrix), outer) for point in points]
        xs, ys = [x for x, _ in placed], [y for _, y in placed]
        if min(max(xs) - min(xs), max(ys) - min(ys)) <= _THIN:
            yield min(xs), min(ys), max(xs), max(ys)
        elif stroke.value:
            for (x, y), (other_x, other_y) in pairwise(placed):
                if min(abs(x - other_x), abs(y - other_y)) <= 1:
                    yield min(x, other_x), min(y, other_y), max(x, other_x), max(y, other_y)


def _subpaths(path: Any, count: int) -> Iterator[list[tuple[float, float]]]:
    points, x, y = list[tuple[float, float]](), c_float(), c_float()
    for number in range(count):
        segment = raw.FPDFPath_GetPathSegment(path, number)
        kind = raw.FPDFPathSegment_GetType(segment)
        if kind == raw.FPDF_SEGMENT_MOVETO and len(points) > 1:
            yield points
            points = []
        elif kind == raw.FPDF_SEGMENT_MOVETO:
            points = []
        elif kind == raw.FPDF_SEGMENT_BEZIERTO:
            return
        raw.FPDFPathSegment_GetPoint(segment, byref(x), byref(y))
        points.append((x.value, y.value))
        if raw.FPDFPathSegment_GetClose(segment) and len(points) > 2:
            points.append(points[0])
    if len(points) > 1:
        yield points


def _matrix(element: Any) -> Any:
    matrix = raw.FS_MATRIX()
    return matrix if raw.FPDFPageObj_GetMatrix(element, byref(matrix)) else None


def _placed(point: tuple[float, float], matrix: Any) -> tuple[float, float]:
    if matrix is None:
        return point
    x, y = point
    return matrix.a * x + matrix.c * y + matrix.e, matrix.b * x + matrix.d * y + matrix.f


def _string(annotation: Any, key: bytes) -> str:
    size = raw.FPDFAnnot_GetStringValue(annotation, key, None, 0)
    if not 2 < size <= _LONGEST_NOTE:
        return ""
    buffer = create_string_buffer(size)
    raw.FPDFAnnot_GetStringValue(annotation, key, _as_wide(buffer), size)
    return buffer.raw[: size - 2].decode("utf-16-le", "replace").replace("\r", "\n")


def _as_wide(buffer: Any) -> Any:
    return cast(buffer, POINTER(raw.FPDF_WCHAR))


def _attachments(document: Any) -> Iterator[tuple[str, bytes]]:
    for number in range(document.count_attachments()):
        attachment = document.get_attachment(number)
        try:
            yield attachment.get_name(), bytes(attachment.get_data())
        except pypdfium2.PdfiumError:
            yield attachment.get_name(), b""


def _pages(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_SEVERAL])) + (", …" if len(numbers) > _SEVERAL else "")
    return f"page {named} was" if len(numbers) == 1 else f"pages {named} ({len(numbers)} in all) were"


def _join_cut_words(pages: list[str]) -> None:
    for number, text in enumerate(pages[:-1]):
        below = pages[number + 1]
        cut, rest = _CUT.search(text), _REST.match(below)
        if cut and rest and cut[1].islower() and rest[0][0].islower():
            pages[number] = f"{text[: cut.start()]}{cut[1]}{rest[0].rstrip()}{cut[2]}"
            pages[number + 1] = below[rest.end() :]


def _with_pypdf(content: bytes, pages: list[str], blank: Sequence[int]) -> list[str]:
    from pypdf import PdfReader

    damaged = list[int]()
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted:
            reader.decrypt("")
        for number, page in enumerate(reader.pages, 1):
            pages[number - 1] = "\n".join(filter(None, [pages[number - 1], *_filled_in(page)]))
            if number in blank and _is_damaged(page):
                damaged.append(number)
    except MemoryError:
        raise
    except Exception:  # any error of the library about a damaged file
        return ["the values of its form can't be read"]
    return [f"{_pages(damaged)} damaged"] if damaged else []


def _is_damaged(page: Any) -> bool:
    try:
        contents = page.get_contents()
        return contents is not None and bool(contents.get_data().strip())
    except MemoryError:
        raise
    except Exception:  # any error of the library
        return True


def _filled_in(page: Any) -> Iterator[str]:
    annotations = _entry(page, "/Annots")
    fields = [each.get_object() for each in annotations] if isinstance(annotations, list) else []
    lines = [_field(field) for field in fields if isinstance(field, dict)]
    yield from (line for line in dict.fromkeys(lines) if line.strip())  # every part of a choice repeats its value


def _field(field: Any) -> str:
    kind, value = _inherited(field, "/FT"), _inherited(field, "/V")
    if field.get("/Subtype") != "/Widget" or kind not in ("/Tx", "/Ch", "/Btn"):
        return ""
    texts = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str) and each]
    if kind == "/Btn":  # values are names
        texts = [each.removeprefix("/") for each in texts if each != "/Off"]
    name = _inherited(field, "/TU") or _inherited(field, "/T")
    return ": ".join([str(name), ", ".join(texts)] if name else texts) if texts else ""


def _inherited(field: Any, key: str) -> Any:
    for _ in range(_MOST_PARTS):
        if key in field:
            return field[key]
        field = _entry(field, "/Parent")
        if not isinstance(field, dict):
            return None
    return None


def _entry(holder: Any, key: str) -> Any:
    """An entry with references resolved; `get` returns the reference."""
    if key in holder:
        return holder[key]
    return None
