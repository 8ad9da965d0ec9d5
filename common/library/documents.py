"""Finds and reads the documents of a folder."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from common.library.errors import PathError
from common.library.passed_over import concerns, is_hidden, is_passed_over
from common.library.places import suffix_of
from common.library.readers.content import Content, Unreadable, as_typed, in_lines, is_chosen
from common.library.readers.conversion import converted
from common.library.readers.encodings import in_utf8
from common.library.readers.formats import (
    GUESSED,
    OLD_OFFICE,
    TEXT,
    converter,
    explain_unread_format,
    is_named,
    is_read,
)
from common.library.readers.isolated import IsolatedReader, Reading

if TYPE_CHECKING:
    from common.library.store import FileRecord

MOST_TEXT_BYTES = 10_000_000  # a longer text file is an export or a log rather than a document
MOST_BYTES = 100_000_000  # for other formats, which hold pictures

# File-system clocks tick in milliseconds up to two seconds (FAT). A file changed twice within a tick keeps its times.
# Times this young prove nothing, so the content is compared next time.
_TICK = 2_000_000_000  # nanoseconds


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read; for `stamp` see `File`."""

    path: str
    size: int
    stamp: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file not taken in; `unknown` content keeps the old copy.

    `scans` names its staged scans, which later readings see again.
    """

    path: str
    reason: str
    unknown: bool = False
    scans: str = ""


@dataclass(slots=True)
class Scan:
    """Documents found in a folder.

    `ignored` counts files of other types by suffix. `passed_over` lists unvisited folders.
    """

    files: list[FoundFile] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    passed_over: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class File:
    """A file's bytes with the signs of a change."""

    suffix: str  # in lower case
    content: bytes
    sha256: str
    size: int
    stamp: int  # see `stamp_of`; 0 when the times are too young


class UnusableDocument(Exception):
    """A file not taken in, with the reason."""

    def __init__(self, reason: str, unknown: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unknown = unknown
        self.scans = ""  # see `Skipped`


def scan(root: Path) -> Scan:
    """Finds the documents under `root`, a folder or one file, in a fixed order.

    Hidden files and folders of `is_passed_over` are skipped, except `root`. Symbolic links are not followed, but
    reported if their target is not found under `root`. Raises `PathError` for an unreadable `root`.
    """
    result = Scan()
    try:
        if root.is_file():
            if not is_read(root.suffix.lower()):
                raise PathError(f"{root}: {explain_unread_format(root.suffix.lower())}")
            status = root.stat()
            _consider(str(root), status, result)
            return result
        if not root.is_dir():
            raise PathError(f"{root} is not a folder or a file")
        entries = _entries(str(root))
    except OSError as error:
        raise PathError(f"{root} can't be read: {_reason(error)}") from error
    _walk(entries, root, result)
    return result


def load(path: str) -> File:
    """Reads the bytes of one document. Raises `UnusableDocument`."""
    suffix = suffix_of(path)
    most = most_bytes(suffix)
    # Since the scan the file may have become a link (O_NOFOLLOW) or a pipe (O_NONBLOCK).
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnusableDocument("it is not an ordinary file")
            content = file.read(most + 1)
    except OSError as error:
        raise UnusableDocument(f"it can't be read: {_reason(error)}", unknown=True) from error
    if len(content) > most:
        raise UnusableDocument(_too_large(len(content), most))
    trusted = max(status.st_mtime_ns, status.st_ctime_ns) < time.time_ns() - _TICK
    stamp = stamp_of(status) if trusted else 0
    return File(suffix, content, hashlib.sha256(content).hexdigest(), status.st_size, stamp)


def has_content(record: FileRecord) -> bool:
    """Whether a file still has the library's content of it."""
    try:
        return load(record.path).sha256 == record.sha256
    except UnusableDocument:
        return False


def read_content(file: File, reader: IsolatedReader, encoding: str = "", reading: Reading | None = None) -> Content:
    """Reads a document's text; `reader` parses formats beyond plain text.

    `encoding` is the user's choice for files that do not state theirs. Raises `UnusableDocument` and `Later`.
    """
    try:
        if file.suffix in OLD_OFFICE and converter():
            suffix, raw = f".{OLD_OFFICE[file.suffix]}", converted(file.suffix, file.content)
        else:
            suffix, raw = file.suffix, file.content
        read = TEXT.get(suffix)
        given = in_utf8(raw, encoding) if encoding and suffix in GUESSED else raw
        content = reader.read(suffix, given, reading) if read is None else read(given)
    except Unreadable as error:
        raise UnusableDocument(error.reason) from error
    sections = tuple(replace(section, text=as_typed(in_lines(section.text))) for section in content.sections)
    remarks = tuple(map(_in_a_line, content.remarks))
    if not any(section.text.strip() for section in sections):
        raise UnusableDocument("; ".join(["it is empty", *remarks]))
    title = _in_a_line(content.title)
    return Content(sections, title if is_chosen(title) else "", remarks)


def _in_a_line(text: str) -> str:
    return " ".join(as_typed(text).split())


def _walk(entries: list[os.DirEntry[str]], root: Path, result: Scan) -> None:
    pending = [iter(entries)]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        else:
            below = _visit(entry, root, result)
            if below is not None:
                pending.append(below)


def _visit(entry: os.DirEntry[str], root: Path, result: Scan) -> Iterator[os.DirEntry[str]] | None:
    try:
        suffix = suffix_of(entry.name)
        document = is_read(suffix)
        if entry.is_dir(follow_symlinks=False):
            if is_passed_over(entry.path):
                result.passed_over.append(entry.path)
                return None
            return iter(_entries(entry.path))
        if is_hidden(entry.name):
            return None
        if entry.is_symlink():
            if (document or entry.is_dir()) and (reason := _not_found_at(os.path.realpath(entry.path), root)):
                result.skipped.append(Skipped(entry.path, reason))
            return None
        if not document and is_named(suffix):
            result.skipped.append(Skipped(entry.path, explain_unread_format(suffix)))
        elif not document:
            result.ignored[suffix] += 1
        elif not entry.is_file(follow_symlinks=False):
            result.skipped.append(Skipped(entry.path, "it is not an ordinary file"))
        else:
            status = entry.stat(follow_symlinks=False)
            _consider(entry.path, status, result)
    except OSError as error:
        result.skipped.append(Skipped(entry.path, f"it can't be read: {_reason(error)}", unknown=True))
    return None


def _not_found_at(target: str, root: Path) -> str:
    """Reason why `root` does not contain a link's target; empty if it does."""
    if not Path(target).is_relative_to(root):
        return "it is a link that leads out of the folder"
    if not os.path.lexists(target):
        return "it is a link to nothing"
    if os.path.isfile(target) and not is_read(suffix_of(target)) and not is_named(suffix_of(target)):
        return f"it is a link to a file without the ending of a document: {os.path.basename(target)}"
    return "" if concerns(target, str(root)) else "it is a link to a hidden or skipped file"


def stamp_of(status: os.stat_result) -> int:
    """A number for a file's state, new whenever the content may have changed.

    Setting back a file's times, or replacing it, changes its change time or inode.
    """
    told = f"{status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
    return int.from_bytes(hashlib.sha256(told.encode()).digest()[:8]) >> 1 | 1  # never 0, and within SQLite's range


def _consider(path: str, status: os.stat_result, result: Scan) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        result.skipped.append(Skipped(path, "its name is not valid UTF-8"))
        return
    most = most_bytes(os.path.splitext(path)[1].lower())
    if status.st_size > most:
        result.skipped.append(Skipped(path, _too_large(status.st_size, most)))
    else:
        result.files.append(FoundFile(path, status.st_size, stamp_of(status)))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def most_bytes(suffix: str) -> int:
    """Largest readable size in bytes for a suffix, given with its dot."""
    return MOST_TEXT_BYTES if suffix in TEXT else MOST_BYTES


def _too_large(size: int, most: int) -> str:
    return f"it is too large: {size:,} bytes, at most {most:,} are read"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
