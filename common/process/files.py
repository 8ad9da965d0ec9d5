"""Files that are whole at any time, files that only this user can read, and paths.

A reader, a crash or a power cut meets the old file or the new one, whole. For that a file is written under another
name, brought to the disk and renamed, and then its folder, too, is brought to the disk: else a power cut may undo the
renaming.
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


# --- private_files
# Files that this user alone may read: what a process makes is private from the first moment, what is not is mended.
#
# Libraries, keys and values of documents, and what was measured with them lie in files of many makers, SQLite and FAISS
# among them. So the process says once what new files are like, and nobody has to think of it again.

_OTHERS: Final = 0o077  # the rights of group and others
_USUAL: Final = 0o666  # rights of a new file before the umask
_umask: int = -1  # the user's own; this process has it no more when it is known

log = logging.getLogger(__name__)


def keep_private() -> None:
    """Let whatever this process makes from now on, and its children, be its user's alone; see `named_by_user`."""
    global _umask
    before = os.umask(_OTHERS)
    _umask = before if _umask < 0 else _umask


@contextmanager
def named_by_user(path: Path) -> Iterator[None]:
    """A block that writes a file whose name the user gave: a new one has the rights that the user's files have.

    The umask stays as it is meanwhile: it is that of all threads.
    """
    there = path.exists()
    yield
    if not there and _umask >= 0:
        path.chmod(_USUAL & ~_umask)


def private_folder(folder: Path) -> None:
    """Make `folder` unless it is there, and let nobody else enter it. Raises `OSError`."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if _is_open(found):
        folder.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)


def make_private(folders: Iterable[Path]) -> None:
    """Take the rights of others from all that lies in `folders`, and say so where there were any.

    Links are not followed, and what belongs to another user is left as it is.
    """
    for folder in folders:
        mended = 0
        try:
            # Each folder before what lies in it: then nobody can exchange that any more.
            for _, _, names, descriptor in os.fwalk(folder.resolve()):
                mended += _close(descriptor, names)
        except FileNotFoundError:
            continue
        except OSError as error:
            log.warning("what others can read of %s can't be made private: %s", folder, error.strerror)
        if mended:
            log.warning("others could read %d files and folders of %s; now only this user can", mended, folder)


def _close(folder: int, names: Iterable[str]) -> int:
    """The number of what others had rights to: the folder of this descriptor, and files in it."""
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
    """Whether others have rights to what this user has, and may take them away."""
    return bool(found.st_mode & _OTHERS) and found.st_uid == os.geteuid()


# --- paths
# Paths as people write them.


def expanded(path: str | Path) -> Path:
    """`path` with the home folder in place of `~` or `~user`; `~name` of a user who is not known is a name like others.

    As shells have it. `Path.expanduser` raises `RuntimeError` there, which nobody expects of a path.
    """
    return Path(os.path.expanduser(path))
