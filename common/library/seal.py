"""The SHA-256 of a library's database, as the last change left it: damage at rest is told before a row is read.

Checksums within the database can't do that alone: a damaged page may hide rows, or words of the index of words. The
file is as `sha256sum --check` takes it. It is not there while the library is being changed, nor after a change that was
killed, until the next one or the next search makes it anew. A large database has none: each opening and each change
would take as long as reading all of it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from common.library.database import damaged
from common.library.digest import digest_of
from common.library.errors import LibraryDamaged, LibraryError
from common.library.store import DATABASE, Store
from common.process.files import replacing, to_disk

SEAL = f"{DATABASE}.sha256"
_TEMPORARY = f"{SEAL}.new"
_MOST = 256  # bytes; it has some 80
_LARGE = 2**30  # bytes of a database that isn't sealed: half a million chunks, read in seconds

_log = logging.getLogger(__name__)


def check(folder: Path) -> bool:
    """Whether there is a seal. Raises `LibraryDamaged` where the database is not what was sealed, `OSError`."""
    while (told := _read(folder)) is not None:
        if _line(folder / DATABASE) == told:
            return True
        if _read(folder) == told:  # else somebody has begun to change the library meanwhile, or has finished
            raise damaged(folder / DATABASE, "it is not as the last change left it")
    return False


def remove(folder: Path) -> None:
    """Take the seal away, for good when this returns: before a change. Raises `OSError`."""
    with suppress(FileNotFoundError):
        (folder / SEAL).unlink()
        to_disk(folder)


def gather(store: Store, folder: Path, patient: bool) -> bool:
    """Bring all that was committed into the file that is sealed; whether it is. Raises `LibraryDamaged`.

    It is none the less committed where that has no space, and is read from the log of writes. `patient`: as for
    `Database.gather`.
    """
    try:
        return store.gather(patient)
    except LibraryDamaged:
        raise
    except LibraryError as error:
        _log.warning("the database of the library %s could not take in its log: %s", folder, error)
        return False


def write(folder: Path) -> None:
    """Seal the database, all of which is in its file, unless it is large; only the holder of the writer lock may."""
    try:
        if (folder / DATABASE).stat().st_size > _LARGE:
            return
        with replacing(folder / SEAL, temporary=folder / _TEMPORARY) as file:
            file.write(_line(folder / DATABASE))
    except OSError as error:
        _log.warning("the library %s could not be sealed, damage may go unnoticed: %s", folder, error.strerror)


def _read(folder: Path) -> bytes | None:
    try:
        with (folder / SEAL).open("rb") as file:
            return file.read(_MOST)
    except FileNotFoundError:
        return None


def _line(path: Path) -> bytes:
    """A line of the digest and the name of a file; an empty digest where there is none."""
    return f"{digest_of(path)}  {path.name}\n".encode()
