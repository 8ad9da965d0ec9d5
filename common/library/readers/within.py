"""Documents inside documents: attachments of mails and PDFs, objects in office documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import replace
from itertools import islice
from typing import Final

from common.library.readers.content import Content, Section, Unreadable
from common.library.readers.formats import CONVERTIBLE, OLD_OFFICE, PARSED, TEXT, parser_of
from common.library.readers.scans import Later

_DEEPEST: Final = 3  # nested documents: an archive may contain itself
_MOST: Final = 64  # documents inside one
_LONGEST_NAME: Final = 31  # characters in a place, which also names more
Inner = bytes | Callable[[], Content]
_level: Final = ContextVar("level", default=0)


def read_within(documents: Iterable[tuple[str, Inner]], kind: str = "attachment") -> Content:
    """Sections of inner documents, given as (name, bytes or reader), and remarks on unread ones.

    Places begin with `kind` and name. Raises `MemoryError`, `RecursionError` and `Later`, which
    concern the outer document too.
    """
    sections, remarks = list[Section](), list[str]()
    listed = iter(documents)
    for name, content in islice(listed, _MOST):
        try:
            found = _read(name, content)
        except Unreadable as error:
            remarks.append(f"{kind} {name}: {error.reason}")
        except (MemoryError, RecursionError, Later):
            raise
        except Exception:  # any error of a library about a damaged file
            remarks.append(f"{kind} {name}: it is damaged")
        else:
            place = f"{kind} {name[:_LONGEST_NAME]}"
            sections += (
                replace(section, place=", ".join(filter(None, (place, section.place)))) for section in found.sections
            )
            remarks += (f"{kind} {name}: {remark}" for remark in found.remarks)
    if next(listed, None) is not None:
        remarks.append(f"only the first {_MOST} {kind}s are read")
    return Content(tuple(sections), "", tuple(remarks))


def _read(name: str, inner: Inner) -> Content:
    suffix = os.path.splitext(name)[1].lower()
    if isinstance(inner, bytes) and suffix not in TEXT and suffix not in PARSED:
        present = (CONVERTIBLE | OLD_OFFICE).get(suffix)
        raise Unreadable(f"{suffix[1:]} is not read: save it as {present}" if present else "it is not read")
    if _level.get() >= _DEEPEST:
        raise Unreadable("it is nested too deeply to be read")
    level = _level.set(_level.get() + 1)
    try:
        found = (TEXT.get(suffix) or parser_of(suffix))(inner) if isinstance(inner, bytes) else inner()
    finally:
        _level.reset(level)
    if not any(section.text.strip() for section in found.sections):
        raise Unreadable("; ".join(["it is empty", *found.remarks]))
    return found
