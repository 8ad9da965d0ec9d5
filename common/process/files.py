"""Atomic files, private files, and paths.

A reader, a crash or a power cut finds the whole old or new file. A file is written under another name, flushed to disk
and renamed. Its folder is flushed too, else a power cut may undo the renaming.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

PRIVATE: Final = 0o600


@contextmanager
def replacing(
    path: Path, *, mode: int = PRIVATE, temporary: Path | None = None, keep: bool = False
) -> Iterator[IO[bytes]]:
    """Yields a file to replace `path` at the block's end, unless it raises.

    The file can be read and written. A single writer may name the `temporary` file and overwrites a killed one's.
    Otherwise several may write at once, and the last one wins. With `keep`, an existing file at `path` stays. Raises
    `OSError`.
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
    """Renames a complete file or folder on the same file system to `path`.

    Raises `OSError`.
    """
    to_disk(made)
    os.replace(made, path)
    _folder_to_disk(path.parent)


def to_disk(path: Path) -> None:
    """Flushes a file's content, or a folder's names, to disk. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _folder_to_disk(folder: Path) -> None:
    try:
        to_disk(folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot flush folders
            raise


# --- private_files
# Private from the start, or repaired. Many libraries write private data, SQLite and FAISS among them, so the process
# sets the rights for all new files.

_OTHERS: Final = 0o077  # the rights of group and others
_USUAL: Final = 0o666  # rights of a new file before the umask
_umask: int = -1  # the user's own, kept here after this process changed it

log = logging.getLogger(__name__)


def keep_private() -> None:
    """Makes all new files of this process and its children private; see `named_by_user`."""
    global _umask
    before = os.umask(_OTHERS)
    _umask = before if _umask < 0 else _umask


@contextmanager
def named_by_user(path: Path) -> Iterator[None]:
    """Gives a new file with a user-given name the user's usual rights.

    The umask stays unchanged, since all threads share it.
    """
    there = path.exists()
    yield
    if not there and _umask >= 0:
        path.chmod(_USUAL & ~_umask)


def private_folder(folder: Path) -> None:
    """Makes `folder` private, creating it if needed. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if _is_open(found):
        folder.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)


def make_private(folders: Iterable[Path]) -> None:
    """Removes other users' rights from all files in `folders`, and logs it.

    Links are not followed. Other users' files stay unchanged.
    """
    for folder in folders:
        mended = 0
        try:
            # Folders first: then nobody can exchange their files.
            for _, _, names, descriptor in os.fwalk(folder.resolve()):
                mended += _close(descriptor, names)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("files of %s that others can read can't be made private: %s", folder, error.strerror)
        if mended:
            log.warning("others could read %d files and folders of %s; now only this user can", mended, folder)


def _close(folder: int, names: Iterable[str]) -> int:
    mended = 0
    found = os.fstat(folder)
    if _is_open(found):
        os.fchmod(folder, stat.S_IMODE(found.st_mode) & ~_OTHERS)
        mended += 1
    for name in names:
        with suppress(FileNotFoundError):  # SQLite's come and go
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(found.st_mode) and _is_open(found):
                os.chmod(name, stat.S_IMODE(found.st_mode) & ~_OTHERS, dir_fd=folder)
                mended += 1
    return mended


def _is_open(found: os.stat_result) -> bool:
    """Whether others have rights, and this user may remove them."""
    return bool(found.st_mode & _OTHERS) and found.st_uid == os.geteuid()


# --- paths


def expanded(path: str | Path) -> Path:
    """Expands `~` and `~user`; keeps `~name` of an unknown user, like shells.

    `Path.expanduser` would raise `RuntimeError`.
    """
    return Path(os.path.expanduser(path))
