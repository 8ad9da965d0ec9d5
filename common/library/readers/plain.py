"""Readers of files that are text: plain and Markdown, source code, rich text, notebooks, mail."""

from __future__ import annotations

import email
import email.policy
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from email.headerregistry import HeaderRegistry, UnstructuredHeader
from email.message import EmailMessage, MIMEPart
from email.policy import EmailPolicy
from itertools import chain, groupby, islice
from typing import Any, Final

from common.library.readers.content import Content, Section, TooMuchText, Unreadable, front_title, in_lines
from common.library.readers.encodings import decoded, decoded_as
from common.library.readers.tables import OF_TEXTS, markdown_with_rows_named, table_text

_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_RICH = b"{\\rtf"
_OF_MAC: Final = re.compile(r"(\{\\rtf\d*\s*)\\mac(?![a-z])(?:\s*\\ansicpg10000)?")  # a page that Python has not
_PICTURE: Final = re.compile(r"data:[\w.+/-]+(?:;[\w=-]+)*;base64,[A-Za-z0-9+/=]{64,}")  # all of its bytes
_HAS_WORDS = re.compile(r"\w")


def read_text(content: bytes) -> Content:
    """Text whose places are lines. Raises `Unreadable`."""
    return Content((Section(decoded(content), unit="line"),))


def read_markdown(content: bytes) -> Content:
    """Text whose places are headings, the rows of its tables each naming its columns. Raises `Unreadable`."""
    text = _PICTURE.sub("", in_lines(decoded(content)))
    return Content((Section(markdown_with_rows_named(text), unit="heading"),), front_title(text))


def read_rtf(content: bytes) -> Content:
    """Rich text, with its tables row by row, without looks, pictures, footnotes and what stands above and below pages.
    Raises `Unreadable`.
    """
    from striprtf.striprtf import rtf_to_text

    if not content.lstrip().startswith(_RICH):
        raise Unreadable("it is not rich text: it does not begin as such")
    written, of_mac = _OF_MAC.subn(r"\1", content.decode("latin-1"), count=1)
    text = rtf_to_text(written, "mac_roman" if of_mac else "cp1252", "replace")  # type: ignore[no-untyped-call]
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # halves of characters are put together
    return Content((Section(_rich_with_rows_named(text).strip()),))


def _rich_with_rows_named(text: str) -> str:
    """Text of RTF with its tables, of which each cell ends in a bar, as lines that name their columns."""
    parts = []
    for is_table, lines in groupby(text.split("\n"), lambda line: line.endswith("|") and line.count("|") > 1):
        block = list(lines)
        parts.append(table_text((line.split("|")[:-1] for line in block), OF_TEXTS) if is_table else "\n".join(block))
    return "\n".join(parts)


def read_notebook(content: bytes) -> Content:
    """The cells of a Jupyter notebook, without what they put out. Raises `Unreadable`."""
    try:
        cells = json.loads(decoded(content))["cells"]
        sources = [cell["source"] for cell in cells]
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable("it is not a Jupyter notebook of format 4") from error
    joined = ("".join(source) if isinstance(source, list) else str(source) for source in sources)
    texts = [_PICTURE.sub("", text) for text in joined]
    sections = tuple(Section(text, f"cell {number}") for number, text in enumerate(texts, 1) if text.strip())
    return Content(sections, _first_heading(cells, texts))


def read_mail(content: bytes) -> Content:
    """A message with who wrote it to whom, when and about what; attachments are left out. Raises `Unreadable`."""
    message = email.message_from_bytes(content.removeprefix(BOM_UTF8), _class=EmailMessage, policy=_policy())
    headers = _headers(message)
    if not headers:
        raise Unreadable("it is not a mail: it says neither who wrote it nor about what")
    texts = (text.strip("\r\n") for text in _texts(message))
    return Content((Section("\n".join([*headers, *(f"\n{text}" for text in texts)])),), str(message["Subject"] or ""))


def _headers(message: MIMEPart) -> list[str]:
    """Lines that say who wrote a message to whom, when and about what."""
    return [f"{name}: {message[name]}" for name in _HEADERS if message[name]]


def _policy() -> EmailPolicy[EmailMessage[Any, Any]]:
    """Headers as they are written: addresses that are taken apart and put together lose what no standard allows."""
    registry = HeaderRegistry()
    for name in _HEADERS:
        registry.map_to_type(name.lower(), UnstructuredHeader)  # type: ignore[arg-type]  # it need not be a whole one
    return email.policy.default.clone(header_factory=registry)


def _texts(part: MIMEPart) -> Iterator[str]:
    """The texts that a mail program shows: of alternatives the first one that has words, of a message within with whose
    it is, and no files.
    """
    kind = part.get_content_type()
    undivided = kind.startswith("multipart/") and not part.is_multipart()
    if kind in ("text/plain", "text/html") or undivided:
        payload, said = part.get_payload(decode=True), part.get_content_charset("")
        if isinstance(payload, bytes):
            try:
                text = _page_of_mail(payload, said) if kind == "text/html" else decoded_as(payload, said)
            except TooMuchText:  # then the mail has it, too
                raise
            except Unreadable:  # a part that is no text takes no other one along
                return
            yield text
        return
    parts = [each for each in part.iter_parts() if isinstance(each, MIMEPart) and not each.get_filename()]
    shown = (list(_texts(each)) for each in parts if not each.is_attachment())
    if kind == "message/rfc822":
        yield from ("\n".join(_headers(each)) for each in parts if _headers(each))
    if kind == "multipart/alternative":
        yield from next((texts for texts in shown if any(map(_HAS_WORDS.search, texts))), [])
    else:
        yield from chain.from_iterable(islice(shown, 1) if kind == "multipart/related" else shown)


def _page_of_mail(content: bytes, said: str) -> str:
    from common.library.readers.markup import markdown_of_page  # with which most mails can do without

    return markdown_of_page(content, said)


def _first_heading(cells: list[Any], texts: list[str]) -> str:
    """The first line of the first Markdown cell, if it is a heading."""
    first = next((text for cell, text in zip(cells, texts, strict=True) if cell.get("cell_type") == "markdown"), "")
    line = first.strip().split("\n")[0]
    return line.lstrip("#").strip() if line.startswith("#") else ""
