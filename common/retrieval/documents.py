"""Finding and reading the documents of a folder."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from common.retrieval.errors import LibraryError

SUFFIXES = frozenset({".txt", ".md", ".markdown"})
MOST_BYTES = 10_000_000  # a longer file is an export or a log rather than a document

# A file system's clock ticks in milliseconds up to two seconds (FAT): a file changed again within a tick
# keeps its time stamp, so a time stamp this young proves nothing and the content is compared next time.
_TICK = 2_000_000_000  # nanoseconds


@dataclass(frozen=True, slots=True)
class Found:
    """A file to read; `mtime` in nanoseconds."""

    path: str
    size: int
    mtime: int


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that isn't taken in. `unknown` says that its content couldn't be seen, so an old copy stays."""

    path: str
    reason: str
    unknown: bool = False


@dataclass(slots=True)
class Scan:
    """Documents found in a folder; `ignored` counts files of other types."""

    files: list[Found] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    ignored: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A file's text with what tells whether it changed."""

    text: str
    sha256: str
    size: int
    mtime: int  # nanoseconds; 0 when too young to be trusted


class UnusableDocument(Exception):
    """A file that can't be taken in, and why."""

    def __init__(self, reason: str, unknown: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.unknown = unknown


def scan(root: Path) -> Scan:
    """The documents under `root`, a folder or one file, in a fixed order.

    Hidden files and folders are passed over. No symbolic link is followed: what it points to inside of `root`
    is found anyway, and what lies outside was not asked for. Raises `LibraryError` when `root` can't be read.
    """
    result = Scan()
    try:
        if root.is_file():
            if root.suffix.lower() not in SUFFIXES:
                raise LibraryError(f"{root} is not a text document: {', '.join(sorted(SUFFIXES))} are read")
            status = root.stat()
            _consider(str(root), status.st_size, status.st_mtime_ns, result)
            return result
        if not root.is_dir():
            raise LibraryError(f"{root} is not a folder or a file")
        entries = _entries(str(root))
    except OSError as error:
        raise LibraryError(f"{root} can't be read: {_reason(error)}") from error
    _walk(entries, root, result)
    return result


def read(path: str) -> Document:
    """Read one document. Raises `UnusableDocument`."""
    # O_NOFOLLOW: the file may have been exchanged for a link since the scan; O_NONBLOCK: or for a pipe.
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnusableDocument("it is not an ordinary file")
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnusableDocument(f"it can't be read: {_reason(error)}", unknown=True) from error
    if len(content) > MOST_BYTES:
        raise UnusableDocument(_too_large(len(content)))
    if b"\0" in content:
        raise UnusableDocument("it is not text: it contains NUL bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnusableDocument(f"it is not UTF-8 text: byte {error.start} can't be decoded") from error
    if not text.strip():
        raise UnusableDocument("it is empty")
    trusted = time.time_ns() - status.st_mtime_ns > _TICK
    mtime = status.st_mtime_ns if trusted else 0
    return Document(text, hashlib.sha256(content).hexdigest(), status.st_size, mtime)


def _walk(entries: list[os.DirEntry[str]], root: Path, result: Scan) -> None:
    pending = [iter(entries)]
    while pending:
        entry = next(pending[-1], None)
        if entry is None:
            pending.pop()
        elif not entry.name.startswith("."):
            below = _visit(entry, root, result)
            if below is not None:
                pending.append(below)


def _visit(entry: os.DirEntry[str], root: Path, result: Scan) -> Iterator[os.DirEntry[str]] | None:
    """Record one entry; the entries below it when it is a folder."""
    try:
        document = os.path.splitext(entry.name)[1].lower() in SUFFIXES
        if entry.is_symlink():
            if (document or entry.is_dir()) and not Path(os.path.realpath(entry.path)).is_relative_to(root):
                result.skipped.append(Skipped(entry.path, "it is a link that leads out of the folder"))
            return None
        if entry.is_dir(follow_symlinks=False):
            return iter(_entries(entry.path))
        if not document:
            result.ignored += 1
        elif not entry.is_file(follow_symlinks=False):
            result.skipped.append(Skipped(entry.path, "it is not an ordinary file"))
        else:
            status = entry.stat(follow_symlinks=False)
            _consider(entry.path, status.st_size, status.st_mtime_ns, result)
    except OSError as error:
        result.skipped.append(Skipped(entry.path, f"it can't be read: {_reason(error)}", unknown=True))
    return None


def _consider(path: str, size: int, mtime: int, result: Scan) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        result.skipped.append(Skipped(path, "its name is not valid UTF-8"))
        return
    if size > MOST_BYTES:
        result.skipped.append(Skipped(path, _too_large(size)))
    else:
        result.files.append(Found(path, size, mtime))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _too_large(size: int) -> str:
    return f"it is too large: {size:,} bytes, at most {MOST_BYTES:,} are read"


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
