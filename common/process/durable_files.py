"""Files that take their place at once and stay: a reader, a crash or a power cut meets the old or the new one, whole.

For that a file is written under another name, brought to the disk and renamed, and then its folder, too, is brought to
the disk: else a power cut may undo the renaming.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

PRIVATE: Final = 0o600


@contextmanager
def replacing(
    path: Path, *, mode: int = PRIVATE, temporary: Path | None = None, keep: bool = False
) -> Iterator[IO[bytes]]:
    """Yields a file that becomes the one at `path` as the block ends; a block that raises leaves all as it was.

    It can be read and written. Its name until then is `temporary`, for a caller who is the only writer: what a killed
    one left there is written over. Without it any number may write at once, and the last one wins. With `keep`, a file
    that is at `path` by then stays. Raises `OSError`.
    """
    if temporary is None:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".new")
        temporary = Path(name)
    else:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, PRIVATE)
    try:
        with open(descriptor, "wb+") as file:
            os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)
        if keep:
            with suppress(FileExistsError):
                os.link(temporary, path)
            os.unlink(temporary)
        else:
            os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _folder_to_disk(path.parent)


def put_in_place(made: Path, path: Path) -> None:
    """Rename a file or folder that is complete, on the same file system, to `path`. Raises `OSError`."""
    to_disk(made)
    os.replace(made, path)
    _folder_to_disk(path.parent)


def to_disk(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _folder_to_disk(folder: Path) -> None:
    try:
        to_disk(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems can't do that for folders
            raise
