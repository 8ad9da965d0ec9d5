"""The beginning of an index's file, which tells of which content its index is; read without FAISS."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from common.library.store import INDEX

_MAGIC = b"dragon-index-1\n"
HEADER = 512  # bytes, JSON padded with spaces


@dataclass(frozen=True, slots=True)
class Header:
    """The description that an index file has of itself."""

    commit: str  # of which its content is
    sha256: str  # of what follows
    lists: int  # of an approximate index; 0: an exhaustive one


def lists(folder: Path) -> int:
    """Number of lists that the file says its index has; 0: none, or there is no file of ours."""
    named, _ = told(folder)
    return 0 if named is None else named.lists


def header(told: Header) -> bytes:
    """The file's beginning."""
    return (_MAGIC + json.dumps(asdict(told)).encode()).ljust(HEADER)


def written(content: bytes) -> Header | None:
    """Read a file's header; None when it isn't one of ours."""
    if len(content) != HEADER or not content.startswith(_MAGIC):
        return None
    try:
        named = json.loads(content[len(_MAGIC) :])
        return Header(str(named["commit"]), str(named["sha256"]), int(named["lists"]))
    except (ValueError, KeyError, TypeError):
        return None


def told(folder: Path) -> tuple[Header | None, int]:
    """The file's header, see `written`, and the file's bytes."""
    try:
        with (folder / INDEX).open("rb") as file:
            return written(file.read(HEADER)), file.seek(0, os.SEEK_END)
    except OSError:
        return None, 0
