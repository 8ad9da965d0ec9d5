"""A lock that one process at a time holds: until it lets go of it, or ends, however that happens."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from common.process.durable_files import PRIVATE

_TRIES: Final = 100  # each is in vain only if the file is removed just then


class LockHeld(Exception):
    """Another process holds the lock."""


@contextmanager
def sole_process(file: Path) -> Iterator[None]:
    """A block that no other process is in with the same `file`, an empty one that is made and stays.

    Who holds the lock may remove the file. Children that are started meanwhile don't hold it. Raises `LockHeld` at
    once, `OSError` where nothing can be locked there.
    """
    descriptor = _locked(file)
    try:
        yield
    finally:
        os.close(descriptor)


def _locked(file: Path) -> int:
    for _ in range(_TRIES):
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):  # removed meanwhile; then another one may lie there, too
                if os.path.samestat(os.fstat(descriptor), os.stat(file, follow_symlinks=False)):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise LockHeld from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(file))
