"""Readers of HTML pages and books. Pages become Markdown with headings as places."""

from __future__ import annotations

import posixpath
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from bs4 import BeautifulSoup, Tag
from bs4.dammit import EncodingDetector
from bs4.element import NavigableString, PageElement
from markdownify import MarkdownConverter

from common.library.readers.archive import open_archive, parsed
from common.library.readers.content import Content, Section, Unreadable, parse_whole_number, unread
from common.library.readers.encodings import decoded_as
from common.library.readers.formulas import page_in_line
from common.library.readers.hidden import remove_hidden
from common.library.readers.tables import OF_TEXTS, table_text

# Invisible content, and pronunciation.
_SILENT = ("script", "style", "noscript", "template", "iframe", "head", "rt", "rtc", "rp")
# The converter takes these for inline elements and would join their words.
_BLOCKS = (
    *("address", "aside", "center", "details", "dialog", "fieldset", "figure", "footer", "form", "header", "hgroup"),
    *("legend", "main", "menu", "nav", "search", "summary", "button", "label", "optgroup", "option"),
)
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_CELLS = ("td", "th")
_NO_FIELDS = ("hidden", "password", "submit", "button", "reset", "image", "file", "color", "range")
# Drawn formulas never contain these, but collapsed panels do.
_APART = (
    *("p", "div", *_HEADINGS, "ul", "ol", "li", "dl", "dt", "dd", "table", "tr", *_CELLS),
    *("pre", "blockquote", "section", "article"),
)
_PARTS = ("caption", "thead", "tbody", "tfoot", "tr", "td", "th")
_MOST_SPANNED = 1000  # columns or rows, the limit of browsers
_SPACE = re.compile(r"\n{3,}")
_FENCES = re.compile(r"`{3,}")
_WORDS = re.compile(r"\S")
_TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"


def read_html(content: bytes) -> Content:
    """A page as Markdown. Raises `Unreadable`."""
    page = _parsed_page(content)
    title = page.title.get_text(" ", strip=True) if page.title else ""
    within = _named(page, "iframe", "video", "audio")
    framed = unread(sum(each.name == "iframe" and not each.get("srcdoc") for each in within), "embedded page")
    films = unread(sum(each.name != "iframe" for each in within), "recording")
    return Content((Section(markdown(page), unit="heading"),), title, (*framed, *films))


def read_epub(content: bytes) -> Content:
    """The chapters in reading order. Raises `Unreadable`."""
    with open_archive(content) as archive:
        package = _package_of(archive)
        root = parsed(archive, package)
        title = next((element.text or "" for element in root.iter("{*}title")), "")
        locked = _encrypted(archive)
        sections, missing = list[Section](), 0
        for name in _chapters(root, posixpath.dirname(package)):
            if name in locked:
                raise Unreadable("it is protected against copying: its text is encrypted")
            try:
                page = _parsed_page(archive.read(name))
            except KeyError:  # the book names a missing chapter
                missing += 1
                continue
            sections.append(Section(markdown(page), unit="heading"))
        return Content(tuple(sections), title.strip(), unread(missing, "chapter that is missing"))


def markdown_of_page(content: bytes, said: str = "") -> str:
    """A page as Markdown; `said` is its stated encoding or empty. Raises `Unreadable`."""
    return markdown(_parsed_page(content, said))


def _parsed_page(content: bytes, said: str = "") -> BeautifulSoup:
    said = said or EncodingDetector.find_declared_encoding(content, is_html=True) or ""
    return BeautifulSoup(decoded_as(content, said), "lxml")


class _Converter(MarkdownConverter):
    """Marks exponents, and lengthens the fences of code with fences."""

    def convert_sup(self, element: Any, text: str, parent_tags: Any) -> str:
        return f"^{text}" if text else ""

    def convert_pre(self, element: Any, text: str, parent_tags: Any) -> str:
        fenced: str = super().convert_pre(element, text, parent_tags)  # type: ignore[misc]
        code = fenced.strip("\n").removeprefix("```").removesuffix("```")
        fence = "`" * max([3, *(len(each) + 1 for each in _FENCES.findall(code))])
        return f"\n\n{fence}{code}{fence}\n\n" if code else ""


def markdown(page: BeautifulSoup) -> str:
    remove_hidden(page)
    _show_fields(page)
    _show_pictures(page)
    there = {element.name for element in page.descendants if isinstance(element, Tag)}
    for base in page("rb") if "rb" in there else ():
        if spoken := base.find_parent("rt"):  # an unclosed `rt` before it
            spoken.insert_after(base)
    for element in page(_SILENT) if there.intersection(_SILENT) else ():
        element.decompose()
    for element in page(_BLOCKS) if there.intersection(_BLOCKS) else ():
        element.name = "div"
    if "math" in there:
        _show_formulas(page)
    converter = _Converter(
        heading_style="ATX", strip=["a", "img"], escape_asterisks=False, escape_underscores=False, escape_misc=False
    )
    for table in page("table") if "table" in there else ():
        _complete(table, page)
        rows = _rows(table)
        if not _lays_out(table, rows):
            _write_out(table, rows, page, converter)
        else:
            for part in [*(each for each in table(_PARTS) if each.find_parent("table") is table), table]:
                part.name = "div"
    return _SPACE.sub("\n\n", _TRAILING.sub("", converter.convert_soup(page))).strip()


def _show_formulas(page: BeautifulSoup) -> None:
    for drawn in page(True, {"aria-hidden": "true"}):
        if not drawn.decomposed and _shows_formula(drawn):
            drawn.decompose()
    for formula in page("math"):
        formula.replace_with(page_in_line(formula))


def _named(page: BeautifulSoup, *names: str) -> list[Tag]:
    return [element for element in page.descendants if isinstance(element, Tag) and element.name in names]


def _show_fields(page: BeautifulSoup) -> None:
    fields = _named(page, "input", "select", "datalist")
    for field in (each for each in fields if each.name == "input"):
        kind = str(field.get("type", "text")).lower()
        if kind in ("checkbox", "radio"):
            field.replace_with("[x] " if field.has_attr("checked") else "[ ] ")
        elif kind not in _NO_FIELDS and (value := str(field.get("value", "")).strip()):
            _put_words(field, value)
    for choice in (each for each in fields if each.name == "select"):
        options = choice("option")
        if options and not choice.has_attr("multiple") and parse_whole_number(str(choice.get("size", "")), 1) < 2:
            chosen = next((option for option in options if option.has_attr("selected")), options[0])
            for option in options:
                if option is not chosen:
                    option.decompose()
    for suggestions in (each for each in fields if each.name == "datalist"):
        suggestions.decompose()


def _show_pictures(page: BeautifulSoup) -> None:
    drawn = _named(page, "img", "area", "svg", "iframe")
    for picture in (each for each in drawn if each.name in ("img", "area")):
        words = " ".join(str(picture.get("alt", "")).split())
        if words and words != posixpath.basename(str(picture.get("src", ""))):
            _put_words(picture, words)
    for drawing in (each for each in drawn if each.name == "svg" and not each.find_parent("svg")):
        parts = [drawing.get("aria-label"), *(part.get_text(" ", strip=True) for part in drawing(("text", "title")))]
        words = " ".join(dict.fromkeys(str(part) for part in parts if part))
        _put_words(drawing, words)
    for frame in (each for each in drawn if each.name == "iframe" and each.has_attr("srcdoc")):
        inner = BeautifulSoup(str(frame["srcdoc"]), "lxml").body
        if inner is not None:
            inner.name = "div"
            frame.replace_with(inner)


def _put_words(element: Tag, words: str) -> None:
    before, after = element.previous_sibling, element.next_sibling
    left = " " if isinstance(before, Tag) or (before and not before.get_text()[-1:].isspace()) else ""
    right = " " if isinstance(after, Tag) or (after and after.get_text()[:1].isalnum()) else ""
    element.replace_with(f"{left}{words}{right}")


def _shows_formula(drawn: Tag) -> bool:
    """Whether an `aria-hidden` drawing repeats a formula beside it."""
    if drawn.name in _APART or drawn.find(["math", *_APART]):
        return False  # collapsed content
    beside = (next(_shown(parts), None) for parts in (drawn.previous_siblings, drawn.next_siblings))
    return any(map(_is_formula, beside))


def _is_formula(part: PageElement | None) -> bool:
    while isinstance(part, Tag) and part.name != "math":
        inner = list(_shown(part.children))
        part = inner[0] if len(inner) == 1 else None
    return isinstance(part, Tag)


def _shown(parts: Iterable[PageElement]) -> Iterator[PageElement]:
    return (each for each in parts if isinstance(each, Tag) or str(each).strip())


def _complete(table: Tag, page: BeautifulSoup) -> None:
    """Puts loose cells into rows, and loose words above the table, as browsers do."""
    row: Tag | None = None
    for cell in table(_CELLS):
        if _above(cell, ("tr", "table")) is table:
            if row is None or cell.find_previous_sibling() is not row:
                row = page.new_tag("tr")
                cell.insert_before(row)
            row.append(cell)
    for words in table(string=_WORDS):
        outer = _above(words, ("table", *_PARTS))
        if type(words) is not NavigableString or outer is None or outer.name in ("caption", *_CELLS):
            continue  # a comment, or in its right place
        part: PageElement = words
        while part.parent is not None and part.parent is not outer:
            part = part.parent
        apart = page.new_tag("div")
        table.insert_before(apart)
        apart.append(words if isinstance(part, Tag) and part.find(_CELLS) else part)


def _rows(table: Tag) -> list[list[Tag]]:
    rows: dict[int, list[Tag]] = {id(row): [] for row in table("tr")}
    for cell in table(_CELLS):
        rows.get(id(_above(cell, ("tr", *_CELLS))), []).append(cell)
    return list(rows.values())


def _above(part: PageElement, names: Sequence[str]) -> Tag | None:
    outer = part.parent
    while outer is not None and outer.name not in names:
        outer = outer.parent
    return outer


def _lays_out(table: Tag, rows: Sequence[Sequence[Tag]]) -> bool:
    """Whether a table is only layout: one column, or content unfit for rows."""
    return (
        table.find("table") is not None
        or all(len(cells) < 2 for cells in rows)
        or any("\n" in code.get_text().strip() for code in table("pre"))
        or any(_is_part_of(heading, _above(heading, _CELLS)) for heading in table(_HEADINGS))
    )


def _is_part_of(heading: Tag, cell: Tag | None) -> bool:
    return cell is not None and cell.get_text(strip=True) != heading.get_text(strip=True)


def _write_out(table: Tag, rows: Sequence[Sequence[Tag]], page: BeautifulSoup, converter: MarkdownConverter) -> None:
    """Replaces a table by lines with column names: chunks may separate them."""
    marked = bool(rows and rows[0]) and all(cell.name == "th" for cell in rows[0])
    for part in table((*_HEADINGS, "pre")):
        part.name = "div"
    written = page.new_tag("p")
    for line in table_text(_grid(rows, converter), OF_TEXTS, stated=marked).split("\n"):
        written.extend([line, page.new_tag("br")])
    for caption in table("caption"):
        caption.name = "div"
        table.insert_before(caption)
    table.replace_with(written)


def _grid(rows: Iterable[Iterable[Tag]], converter: MarkdownConverter) -> Iterator[list[str]]:
    below: dict[int, tuple[int, str]] = {}  # remaining rows of a text, by column
    for row in rows:
        values: list[str] = []
        cells, last = deque(row), max(below, default=-1)
        while cells or len(values) <= last:
            if len(values) in below:
                left, text = below.pop(len(values))
                if left > 1:
                    below[len(values)] = left - 1, text
                values.append(text)
            elif cells:
                cell = cells.popleft()
                wide, tall = (_span(cell, name) for name in ("colspan", "rowspan"))
                cell.name = "div"
                text = " ".join(converter.convert_soup(cell).split())
                parts = [text, *[""] * (wide - 1)]
                if tall > 1:
                    below |= {column: (tall - 1, part) for column, part in enumerate(parts, len(values))}
                values += parts
            else:
                values.append("")
        yield values


def _span(cell: Tag, name: str) -> int:
    return max(1, min(parse_whole_number(str(cell.get(name, "")), 1), _MOST_SPANNED))


def _package_of(archive: ZipFile) -> str:
    if _CONTAINER not in archive.namelist():
        raise Unreadable("it is not an EPUB: it has no table of its parts")
    found = next((element.get("full-path") for element in parsed(archive, _CONTAINER).iter("{*}rootfile")), None)
    if not found or found not in archive.namelist():
        raise Unreadable("it is not an EPUB: its contents are missing")
    return str(found)


def _encrypted(archive: ZipFile) -> set[str]:
    if _ENCRYPTION not in archive.namelist():
        return set()
    return {unquote(each.get("URI", "")) for each in parsed(archive, _ENCRYPTION).iter("{*}CipherReference")}


def _chapters(package: Any, folder: str) -> Iterator[str]:
    places = {item.get("id"): item.get("href", "") for item in package.iter("{*}item")}
    for reference in package.iter("{*}itemref"):
        target = places.get(reference.get("idref"))
        if target:
            yield posixpath.normpath(posixpath.join(folder, unquote(target)))
