"""The folder of a document store: its files, notes and lock. Needs no torch."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

SUFFIX = ".safetensors"
LAST_WRITER = "last-writer"  # the last process to change the folder; it has the folder's size
GENERATION = "generation"  # changes with every `clear_store`

_LOCK = "writer.lock"
_UNFINISHED = "unfinished"  # a folder; without a lock its files are from a crash
_POLL = 0.005  # seconds; writing a small document takes less
_PATIENCE = 30.0  # seconds for the lock; a writer holds it for one document


def clear_store(folder: Path) -> int:
    """Removes all documents, including those being computed. Returns the number of files.

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
    """Locks `folder` against other writers. Yields a folder for unfinished files.

    Raises `OSError`.
    """
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
    """Yields last use in nanoseconds, size in bytes and path of every document."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIX):
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield status.st_mtime_ns, status.st_size, Path(entry.path)


def write_note(path: Path, text: str) -> None:
    """Replaces a file for other processes. Raises `OSError`."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
        file.write(text)


def read_note(path: Path) -> str:
    """Returns an empty text without a note."""
    try:
        return path.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""
