"""Succession to documents that go: a copy of one, which was passed over until then, goes on with its content."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from common.library.documents import UnusableDocument, load, suffix_of
from common.library.readers.content import as_typed
from common.library.readers.formats import PARSED, TEXT
from common.library.store import FileRecord, Store


def pass_on(store: Store, record: FileRecord, goes: Callable[[FileRecord], bool]) -> bool:
    """Let a copy of a document take its place, and return whether there is one. `goes` says of what would be a copy's
    record that it is none to go on with. Call inside of `store.writing()`.
    """
    for path, root in store.copies.of(record.sha256):
        moved = moved_to(record, path, root)
        if goes(moved) or not is_read_alike(record.path, path):
            continue
        try:
            file = load(path)
        except UnusableDocument:
            continue
        if file.sha256 == record.sha256:
            store.move_file(replace(moved, size=file.size, mtime=file.mtime))
            return True
    return False


def moved_to(record: FileRecord, path: str, root: str) -> FileRecord:
    """The record under another path; a title that was the name of the file is that of the new one."""
    title = typed(path).stem if record.title == typed(record.path).stem else record.title
    return replace(record, path=path, root=root, title=title)


def is_read_alike(path: str, other: str) -> bool:
    """Whether files of these names have the same text if they have the same content."""
    return _reader(path) == _reader(other)


def typed(path: str) -> Path:
    """The path as people type it; macOS writes an accent as a character of its own."""
    return Path(as_typed(path))


def is_gone(path: str) -> bool:
    """Whether nothing is there any more; False where that can't be seen."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _reader(path: str) -> object:
    suffix = suffix_of(path)
    return TEXT.get(suffix) or PARSED.get(suffix)
