"""Document formats and their readers, by file suffix."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from typing import Final

from common.library.readers.content import Content
from common.library.readers.plain import read_markdown, read_text

Reader = Callable[[bytes], Content]

_SOURCE: Final = (
    ".py .pyi .js .mjs .ts .tsx .jsx .java .kt .scala .c .h .cc .cpp .hpp .cs .go .rs .rb .php .swift .sh .bash .ps1"
    " .sql .r .jl .lua .pl .hs .ex .exs .clj .toml .yaml .yml .ini .cfg .tex"
)
# Decoded in this process, with little further work.
TEXT: Final[dict[str, Reader]] = {
    **dict.fromkeys((".md", ".markdown"), read_markdown),
    **dict.fromkeys((".txt", *_SOURCE.split()), read_text),
}
# Parsed in another process, since any document may be too much for a parser.
PARSED: Final = {
    ".pdf": "pdf:read_pdf",
    ".pptx": "slides:read_pptx",
    ".xlsx": "sheets:read_xlsx",
    ".odt": "opendocument:read_odt",
    ".odp": "opendocument:read_odp",
    ".ods": "opendocument:read_ods",
    ".docx": "word:read_docx",
    ".html": "markup:read_html",
    ".htm": "markup:read_html",
    ".xhtml": "markup:read_html",
    ".epub": "markup:read_epub",
    ".rst": "restructured:read_rst",
    ".rtf": "plain:read_rtf",
    ".csv": "tables:read_csv",
    ".tsv": "tables:read_csv",
    ".ipynb": "plain:read_notebook",
    ".eml": "mail:read_mail",
    ".mbox": "mail:read_mbox",
    ".ics": "mail:read_calendar",
    ".msg": "outlook:read_msg",
    ".xls": "old_sheets:read_xls",
    ".mht": "mail:read_web_archive",
    ".mhtml": "mail:read_web_archive",
}
SUFFIXES: Final = frozenset(TEXT) | frozenset(PARSED)
# Files that do not state their encoding.
GUESSED: Final = frozenset(TEXT) | {".csv", ".tsv", ".rst", ".ics"}
# Old binary formats and the ones that LibreOffice converts them to.
OLD_OFFICE: Final = {".doc": "docx", ".ppt": "pptx", ".xls": "xlsx"}
# Increment when a reader changes its output, so that libraries read its documents again.
REVISIONS: Final = dict.fromkeys([*SUFFIXES, *OLD_OFFICE], 8) | {".pdf": 9}
# Unread formats, with the format to save them as.
CONVERTIBLE: Final = {".pages": "docx", ".numbers": "xlsx"}
_NAMES: Final = ("soffice", "libreoffice", "/Applications/LibreOffice.app/Contents/MacOS/soffice")
READ: Final = " ".join(sorted(suffix[1:] for suffix in SUFFIXES.difference(_SOURCE.split()))) + ", and source code"


def explain_unread_format(suffix: str) -> str:
    """Reason why a file of another suffix is not read, and the remedy."""
    if suffix in OLD_OFFICE:
        return f"{suffix[1:]} is read if LibreOffice is installed: install it, or save it as {OLD_OFFICE[suffix]}"
    if suffix in CONVERTIBLE:
        return f"{suffix[1:]} is not read: save it as {CONVERTIBLE[suffix]}"
    return f"its type is not supported; supported are: {READ}"


def converter() -> str:
    """Path of LibreOffice; empty if it is not installed."""
    return next(filter(None, map(shutil.which, _NAMES)), "")


def is_read(suffix: str) -> bool:
    """Whether files of this suffix are documents."""
    return suffix in SUFFIXES or (suffix in OLD_OFFICE and bool(converter()))


def is_named(suffix: str) -> bool:
    """Whether unread files of this suffix are named."""
    return suffix in CONVERTIBLE or suffix in OLD_OFFICE


def parser_of(suffix: str) -> Reader:
    """Reader of a parsed format; imports its library."""
    module, _, name = PARSED[suffix].partition(":")
    reader: Reader = getattr(import_module(f"common.library.readers.{module}"), name)
    return reader
