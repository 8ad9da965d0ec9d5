"""Paths of a library: absolute, with links resolved when something is added."""

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
    """The path relative to a containing `folder`; both absolute."""
    return path[len(folder.rstrip(os.sep)) + 1 :]


def on_disk(path: str | Path) -> str:
    """The absolute path with links resolved."""
    return os.path.realpath(expanded(path))


def as_written(path: str | Path) -> str:
    """The absolute path with links kept after the last `..`.

    A link may have replaced a folder. Earlier links are resolved, because `..` refers to their targets.
    """
    written = expanded(path)
    parts = written.parts
    if ".." not in parts:
        return os.path.abspath(written)
    followed = len(parts) - parts[::-1].index("..")
    return os.path.join(os.path.realpath(Path(*parts[:followed])), *parts[followed:])


def places(path: str | Path) -> tuple[str, str]:
    """The absolute paths of `path` in the library: resolved and as written."""
    return on_disk(path), as_written(path)


def relocated(path: str, folder: str, place: str) -> str:
    """The new path of `path` after its `folder` moved to `place`."""
    return os.path.normpath(os.path.join(place, os.path.relpath(path, folder)))


def stem(path: str) -> str:
    """The file's name without suffix, in composed form: macOS separates accents."""
    return Path(as_typed(path)).stem[:LONGEST_TITLE]


def suffix_of(path: str) -> str:
    """The suffix of a file name, with its dot, in lower case."""
    return os.path.splitext(path)[1].lower()


def is_read_alike(path: str, other: str) -> bool:
    """Whether files of these names and equal content have the same text."""
    suffixes = suffix_of(path), suffix_of(other)
    reader, others = (TEXT.get(suffix) or PARSED.get(suffix) for suffix in suffixes)
    return reader == others


def is_gone(path: str) -> bool:
    """Whether nothing exists at `path`; False without access."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def has_left(path: str) -> bool:
    """Whether a file has left its path; a link may be there now."""
    return is_gone(path) or os.path.realpath(path) != path
