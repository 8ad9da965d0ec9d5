"""Snapshots of a library for processes on other machines, which can't open the database that is being written.

SQLite's log of writes works on one machine only. So each content is copied to a folder of its own below the library's,
named after its commit, its format and its index's lists, and never changed: any number may read it, over whatever file
system they share.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from common.configuration.settings import Settings
from common.library import index_header, seal
from common.library.database import FORMAT, PUBLISHED
from common.library.errors import LibraryError, LibraryOutdated
from common.library.store import DATABASE, INDEX, Store
from common.library.writer_lock import writer_lock
from common.process.files import private_folder, put_in_place, replacing
from common.process.lifetime import LockHeld, sole_process

_FOLDER: Final = "snapshots"
_NEWEST: Final = "newest"  # the file that names the one to read
_NOTHING: Final = "empty"  # name of a content without any commit
_MADE: Final = ".new"  # begins the name of one that is being made
_KEPT: Final = 60.0  # seconds until a snapshot goes that another one has replaced


def publish(library: Path) -> Path:
    """Copy the library in this folder as it is now, unless that was done; the copy's folder. For one process at a time.

    Raises `LibraryError`.
    """
    folder = library / _FOLDER
    try:
        private_folder(library)
        private_folder(folder)
        store = _opened(library)
        try:
            with store.reading():
                made = _made(store, library, folder)
        finally:
            store.close()
        with replacing(folder / _NEWEST) as file:
            file.write(made.name.encode())
    except OSError as error:
        raise LibraryError(f"the library {library} can't be published: {error.strerror}") from error
    return made


def is_newest(library: Path, commit: str) -> bool:
    """Whether the latest snapshot is of this commit, with the kind of index that there is now."""
    found = newest(library)
    return found is not None and found.name == _name(commit, library)


def newest(library: Path) -> Path | None:
    """The folder of the latest snapshot of the library in this folder; None where there is none."""
    folder = library / _FOLDER
    try:
        found = folder / (folder / _NEWEST).read_text()
    except OSError:
        return None
    return found if found.is_dir() else None


def tidy(library: Path) -> None:
    """Remove the snapshots that nobody reads any more: others have replaced them some time ago."""
    folder, kept = library / _FOLDER, newest(library)
    if kept is None or time.time() - (folder / _NEWEST).stat().st_mtime < _KEPT:
        return
    for path in folder.iterdir():
        if path.is_dir() and path != kept:
            shutil.rmtree(path, ignore_errors=True)


def forget(library: Path) -> None:
    """Remove all snapshots of the library in this folder, which may have what was removed from that."""
    shutil.rmtree(library / _FOLDER, ignore_errors=True)


def forget_unread(settings: Settings) -> None:
    """Remove all snapshots that a cluster has left, unless the role's daemon runs, which removes its own."""
    if (settings.library / _FOLDER).exists():
        with suppress(LockHeld, OSError), sole_process(settings.lock):
            forget(settings.library)


def _opened(library: Path) -> Store:
    """The database, brought up to date where it is of an earlier version; the next search seals it."""
    try:
        return Store(library)
    except LibraryOutdated:
        with writer_lock(library):
            seal.remove(library)
            return Store(library, upgrade=True)


def _made(store: Store, library: Path, folder: Path) -> Path:
    """Make the copy, unless there is one; its folder. Call inside of `store.reading()`."""
    commit, made, former = store.state().commit, folder / _MADE, newest(library)
    if former is not None and former.name == _name(commit, library):
        return former
    shutil.rmtree(made, ignore_errors=True)
    private_folder(made)
    if former is not None and former.name.startswith(_content(commit)):
        _link(former / DATABASE, made / DATABASE)  # another index of the same content
    else:
        store.copy(made)
    (made / PUBLISHED).touch()
    with suppress(FileNotFoundError):  # it names its content: one of another content is of use, too, or ignored
        _link(library / INDEX, made / INDEX)
    name = _name(commit, made)
    if not (folder / name).is_dir():
        put_in_place(made, folder / name)
    return folder / name


def _name(commit: str, library: Path) -> str:
    """Name of the snapshot of a commit with the kind of index that is in this folder."""
    return f"{_content(commit)}{index_header.lists(library)}"


def _content(commit: str) -> str:
    """Beginning of the names of snapshots that have the same database."""
    return f"{commit or _NOTHING}-{FORMAT}-"


def _link(path: Path, made: Path) -> None:
    """The file is replaced and never changed, so that another name for it is as good as a copy."""
    try:
        os.link(path, made)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, made)
