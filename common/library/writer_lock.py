"""The lock of whoever changes a library: one process at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from common.library.errors import LibraryError, LibraryLocked

LOCK = "writer.lock"


@contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of the library in `folder`. Raises `LibraryLocked` where another process does,
    `LibraryError`."""
    lock = filelock.FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise LibraryLocked(
            f"the library {folder} is being changed by another process: try again when it is done"
        ) from None
    except OSError as error:
        raise LibraryError(f"the library {folder} can't be locked: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()
