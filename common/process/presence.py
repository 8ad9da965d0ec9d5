"""A sign that processes are at some work, which others can look for: it ends when the last of them does."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.process.durable_files import PRIVATE


@contextmanager
def present(file: Path) -> Iterator[None]:
    """Shows others that this process is at work, by a shared lock of `file`. The file and its folder are made.

    Several processes may be present at once. Their children are not. Where nothing can be locked, nothing is shown.
    """
    descriptor = _opened(file)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def anybody_present(file: Path) -> bool:
    """Whether another process shows its presence by `file`."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    else:
        return False
    finally:
        os.close(descriptor)


def _opened(file: Path) -> int | None:
    """The descriptor that holds the lock; None where nothing can be locked."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # whoever looks has the lock for a moment only
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
