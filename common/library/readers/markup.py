"""Readers of marked-up text: HTML, EPUB, Word and reStructuredText. All become Markdown, whose headings are places."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from bs4 import BeautifulSoup
from markdownify import MarkdownConverter

from common.library.readers.archive import open_archive, parsed, title_in
from common.library.readers.content import Content, Section, Unreadable
from common.library.readers.encodings import decoded

_SILENT = ("script", "style", "noscript", "template", "iframe", "svg", "head")  # nobody reads them on the page
_SPACE = re.compile(r"\n{3,}")
_TRAILING = re.compile(r"[ \t]+$", re.MULTILINE)
_PREAMBLE_TITLE = re.compile(r"(?:[\w-]+:.*\n(?:[ \t].*\n)*)*?Title:[ \t]*(\S.*)")  # of a Python Enhancement Proposal
_CONTAINER = "META-INF/container.xml"


def read_html(content: bytes) -> Content:
    """A page as Markdown. Its encoding is what it says, or what it looks like."""
    page = BeautifulSoup(content, "lxml")
    title = page.title.get_text(" ", strip=True) if page.title else ""
    return Content((Section(_markdown(page), unit="heading"),), title)


def read_epub(content: bytes) -> Content:
    """The chapters in reading order. Raises `Unreadable`."""
    with open_archive(content) as archive:
        package = _package_of(archive)
        root = parsed(archive, package)
        title = next((element.text or "" for element in root.iter("{*}title")), "")
        sections = []
        for name in _chapters(root, posixpath.dirname(package)):
            try:
                page = BeautifulSoup(archive.read(name), "lxml")
            except KeyError:
                continue  # a book that names a chapter it does not have
            sections.append(Section(_markdown(page), unit="heading"))
        return Content(tuple(sections), title.strip())


def read_docx(content: bytes) -> Content:
    """Headings, paragraphs, lists and tables; pictures are left out. Raises `Unreadable`."""
    import mammoth  # not above: most documents that need the rest do without it

    with open_archive(content) as archive:
        title = title_in(archive, "docProps/core.xml")
    page = mammoth.convert_to_html(io.BytesIO(content), convert_image=lambda image: []).value
    return Content((Section(_markdown(BeautifulSoup(page, "lxml")), unit="heading"),), title)


def read_rst(content: bytes) -> Content:
    """reStructuredText; nothing that it includes is read, and what docutils does not know stays as it is written."""
    from docutils.core import publish_parts  # the same

    settings = {
        "file_insertion_enabled": False,
        "raw_enabled": False,
        "report_level": 5,  # unknown directives of Sphinx are not errors here
        "halt_level": 5,
        "input_encoding": "unicode",
        "output_encoding": "unicode",
        "smart_quotes": False,
        "toc_backlinks": False,
        "_disable_config": True,
    }
    text = decoded(content)
    parts = publish_parts(text, writer="html5", settings_overrides=settings)
    preamble = _PREAMBLE_TITLE.match(text.replace("\r\n", "\n"))
    title = preamble.group(1).strip() if preamble else BeautifulSoup(parts["title"], "lxml").get_text()
    return Content((Section(_markdown(BeautifulSoup(parts["html_body"], "lxml")), unit="heading"),), title)


def _markdown(page: BeautifulSoup) -> str:
    for element in page(_SILENT):
        element.decompose()
    converter = MarkdownConverter(
        heading_style="ATX", strip=["a", "img"], escape_asterisks=False, escape_underscores=False, escape_misc=False
    )
    return _SPACE.sub("\n\n", _TRAILING.sub("", converter.convert_soup(page))).strip()


def _package_of(archive: ZipFile) -> str:
    if _CONTAINER not in archive.namelist():
        raise Unreadable("it is not an EPUB: it has no table of its parts")
    found = next((element.get("full-path") for element in parsed(archive, _CONTAINER).iter("{*}rootfile")), None)
    if not found or found not in archive.namelist():
        raise Unreadable("it is not an EPUB: its contents are missing")
    return str(found)


def _chapters(package: Any, folder: str) -> Iterator[str]:
    """Names of the chapters' files, in the order in which they are read."""
    places = {item.get("id"): item.get("href", "") for item in package.iter("{*}item")}
    for reference in package.iter("{*}itemref"):
        target = places.get(reference.get("idref"))
        if target:
            yield posixpath.normpath(posixpath.join(folder, unquote(target)))
