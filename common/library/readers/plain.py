"""Readers of text files: plain text, Markdown, source code, rich text, notebooks."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import Any, Final

from common.library.readers.content import Content, Section, Unreadable, front_title, in_lines, unread
from common.library.readers.encodings import decoded, text_and_remarks
from common.library.readers.tables import OF_TEXTS, markdown_with_rows_named, table_text

_RICH = b"{\\rtf"
_OF_MAC: Final = re.compile(r"(\{\\rtf\d*\s*)\\mac(?![a-z])(?:\s*\\ansicpg10000)?")  # a code page that Python lacks
_UNREAD_RICH: Final = (
    (r"\\footnote(?![a-z])", "footnote"),
    (r"\\objdata(?![a-z])", "embedded object"),
    (r"\\shptxt(?![a-z])", "text box"),
    (r"\\(?:header|footer)[lrf]?(?![a-z])", "page margin"),
)
_PICTURE: Final = re.compile(r"data:[\w.+/-]+(?:;[\w=-]+)*;base64,[A-Za-z0-9+/=]{64,}")  # with all its bytes


def read_text(content: bytes) -> Content:
    """Text with lines as places. Raises `Unreadable`."""
    text, remarks = text_and_remarks(content)
    return Content((Section(text, unit="line"),), remarks=remarks)


def read_markdown(content: bytes) -> Content:
    """Markdown with headings as places and complete table rows. Raises `Unreadable`."""
    text, remarks = text_and_remarks(content)
    text = _PICTURE.sub("", in_lines(text))
    return Content((Section(markdown_with_rows_named(text), unit="heading"),), front_title(text), remarks)


def read_rtf(content: bytes) -> Content:
    """Rich text with table rows; pictures, footnotes and page margins are left out.

    Raises `Unreadable`.
    """
    from striprtf.striprtf import rtf_to_text

    if not content.lstrip().startswith(_RICH):
        raise Unreadable("it is not rich text: it does not begin like an RTF file")
    written, of_mac = _OF_MAC.subn(r"\1", content.decode("latin-1"), count=1)
    text = rtf_to_text(written, "mac_roman" if of_mac else "cp1252", "replace")  # type: ignore[no-untyped-call]
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # joins surrogate pairs
    left = (remark for sign, thing in _UNREAD_RICH for remark in unread(len(re.findall(sign, written)), thing))
    return Content((Section(_rich_with_rows_named(text).strip()),), remarks=tuple(left))


def _rich_with_rows_named(text: str) -> str:
    parts = []
    for is_table, lines in groupby(text.split("\n"), lambda line: line.endswith("|") and line.count("|") > 1):
        block = list(lines)
        parts.append(table_text((line.split("|")[:-1] for line in block), OF_TEXTS) if is_table else "\n".join(block))
    return "\n".join(parts)


def read_notebook(content: bytes) -> Content:
    """The cells of a Jupyter notebook without outputs. Raises `Unreadable`."""
    try:
        cells = json.loads(decoded(content))["cells"]
        sources = [cell["source"] for cell in cells]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable("it is not a Jupyter notebook of format 4") from error
    joined = ("".join(source) if isinstance(source, list) else str(source) for source in sources)
    texts = [_PICTURE.sub("", text) for text in joined]
    sections = tuple(Section(text, f"cell {number}") for number, text in enumerate(texts, 1) if text.strip())
    shown = sum(bool(cell.get("outputs")) for cell in cells if isinstance(cell, dict))
    return Content(sections, _first_heading(cells, texts), unread(shown, "cell output"))


def _first_heading(cells: list[Any], texts: list[str]) -> str:
    first = next((text for cell, text in zip(cells, texts, strict=True) if cell.get("cell_type") == "markdown"), "")
    line = first.strip().split("\n")[0]
    return line.lstrip("#").strip() if line.startswith("#") else ""
