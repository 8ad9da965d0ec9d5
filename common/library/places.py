"""Paths as a library knows them: absolute, and where they lead when something is added."""

from __future__ import annotations

import os
from pathlib import Path

from common.library.readers.content import as_typed
from common.library.readers.formats import PARSED, TEXT
from common.process.files import expanded

LONGEST_TITLE = 200  # characters


def is_within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies below it; both absolute."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def below(path: str, folder: str) -> str:
    """The path from `folder` on of what lies in it; both absolute."""
    return path[len(folder.rstrip(os.sep)) + 1 :]


def on_disk(path: str | Path) -> str:
    """The absolute path of what `path` leads to."""
    return os.path.realpath(expanded(path))


def as_written(path: str | Path) -> str:
    """The absolute path of `path` itself, which may lead elsewhere: a link may have taken a folder's place. Up to the
    last `..` it is followed, since that is around what a link leads to.
    """
    written = expanded(path)
    parts = written.parts
    if ".." not in parts:
        return os.path.abspath(written)
    followed = len(parts) - parts[::-1].index("..")
    return os.path.join(os.path.realpath(Path(*parts[:followed])), *parts[followed:])


def places(path: str | Path) -> tuple[str, str]:
    """The absolute paths under which the library may know what `path` names."""
    return on_disk(path), as_written(path)


def relocated(path: str, folder: str, place: str) -> str:
    """The path of what was at `path` in a folder, now that this one is at `place`."""
    return os.path.normpath(os.path.join(place, os.path.relpath(path, folder)))


def stem(path: str) -> str:
    """The file's name without its ending, as people type it: macOS writes an accent as a character of its own."""
    return Path(as_typed(path)).stem[:LONGEST_TITLE]


def suffix_of(path: str) -> str:
    """The ending of a file's name, with its dot, in lower case."""
    return os.path.splitext(path)[1].lower()


def is_read_alike(path: str, other: str) -> bool:
    """Whether files of these names have the same text if they have the same content."""
    suffixes = suffix_of(path), suffix_of(other)
    reader, others = (TEXT.get(suffix) or PARSED.get(suffix) for suffix in suffixes)
    return reader == others


def is_gone(path: str) -> bool:
    """Whether nothing is there any more; False where that can't be seen."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def has_left(path: str) -> bool:
    """Whether a file has gone from its path, where a link may be now."""
    return is_gone(path) or os.path.realpath(path) != path
