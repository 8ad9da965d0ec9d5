"""The folder of a document store: who may look into it, and who may change it now. Needs no torch."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

SUFFIX = ".safetensors"
LAST_WRITER = "last-writer"  # who changed the folder last: if that was I, I know its size
GENERATION = "generation"  # another one after every `clear_store`

_LOCK = "writer.lock"
_UNFINISHED = "unfinished"  # a folder; what lies there while nobody holds the lock was left by a crash
_POLL = 0.005  # seconds; a small document is written in less
_PATIENCE = 30.0  # seconds for the lock; a writer holds it for one document


def clear_store(folder: Path) -> int:
    """Remove all documents from the store in `folder`, and what is being computed for it now; the number of files.

    Raises `OSError`.
    """
    if not folder.is_dir():
        return 0
    with locked(folder):
        files = list(list_stored_files(folder))
        for _, _, path in files:
            path.unlink(missing_ok=True)
        (folder / LAST_WRITER).unlink(missing_ok=True)
        write_note(folder / GENERATION, secrets.token_hex(16))  # last: a full disk must not keep files alive
    return len(files)


@contextmanager
def locked(folder: Path) -> Iterator[Path]:
    """Lock `folder` against other writers; gives the name of a folder for unfinished files. Raises `OSError`."""
    unfinished = folder / _UNFINISHED
    lock = filelock.FileLock(folder / _LOCK, timeout=_PATIENCE, mode=0o600)
    with lock.acquire(poll_interval=_POLL):
        try:
            with suppress(FileNotFoundError):
                shutil.rmtree(unfinished)
            yield unfinished
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def list_stored_files(folder: Path) -> Iterator[tuple[int, int, Path]]:
    """Last use in nanoseconds, size in bytes and path of every document's file."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_mtime_ns, status.st_size, Path(entry.path)


def write_note(path: Path, text: str) -> None:
    """Replace a small file that says something to other processes. Raises `OSError`."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(text)


def read_note(path: Path) -> str:
    """Content of a note; empty where there is none."""
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""
