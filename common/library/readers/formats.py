"""Document formats and their readers, by file suffix."""

from __future__ import annotations

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
    ".mht": "mail:read_web_archive",
    ".mhtml": "mail:read_web_archive",
}
SUFFIXES: Final = frozenset(TEXT) | frozenset(PARSED)
# Files that do not state their encoding.
GUESSED: Final = frozenset(TEXT) | {".csv", ".tsv", ".rst", ".ics"}
# Increment when a reader changes its output, so that libraries read its documents again.
REVISIONS: Final = dict.fromkeys(SUFFIXES, 8)
# Unread formats, with the format to save them as.
CONVERTIBLE: Final = {
    ".doc": "docx",
    ".xls": "xlsx",
    ".ppt": "pptx",
    ".pages": "docx",
    ".numbers": "xlsx",
    ".msg": "eml",
}
READ: Final = " ".join(sorted(suffix[1:] for suffix in SUFFIXES.difference(_SOURCE.split()))) + ", and source code"


def explain_unread_format(suffix: str) -> str:
    """Reason why a file of another suffix is not read, and the remedy."""
    if suffix in CONVERTIBLE:
        return f"{suffix[1:]} is not read: save it as {CONVERTIBLE[suffix]}"
    return f"its type is not supported; supported are: {READ}"


def parser_of(suffix: str) -> Reader:
    """Reader of a parsed format; imports its library."""
    module, _, name = PARSED[suffix].partition(":")
    reader: Reader = getattr(import_module(f"common.library.readers.{module}"), name)
    return reader
