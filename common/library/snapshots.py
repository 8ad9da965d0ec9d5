"""Snapshots of a library for processes on other machines, which can't open the database that is being written.

SQLite's log of writes works on one machine only. So each content is copied to a folder of its own below the library's,
named after its commit, its format and its index, and never changed: any number may read it, over whatever file
system they share.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from common.configuration.settings import Settings
from common.library.database import FORMAT, PUBLISHED
from common.library.errors import LibraryError
from common.library.store import INDEX, IndexLabel, Store
from common.process.files import private_folder, put_in_place, replacing
from common.process.lifetime import LockHeld, sole_process

_FOLDER: Final = "snapshots"
_NEWEST: Final = "newest"  # the file that names the one to read
_NOTHING: Final = "empty"  # name of a content without any commit
_MADE: Final = ".new"  # begins the name of one that is being made
_DIGITS: Final = 8  # of an index's SHA-256 in a name
_KEPT: Final = 60.0  # seconds until a snapshot goes that another one has replaced


def publish(library: Path) -> Path:
    """Copy the library in this folder as it is now, unless that was done; the copy's folder. For one process at a time.

    Raises `LibraryError`.
    """
    folder = library / _FOLDER
    try:
        private_folder(library)
        private_folder(folder)
        store = Store(library)
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


def is_newest(library: Path) -> bool:
    """Whether the latest snapshot is of the present content, with the file of the index that there is now."""
    found = find_newest_snapshot(library)
    if found is None:
        return False
    with closing(Store(library)) as store, store.reading():
        return found.name == _name(store, store.index_label())


def find_newest_snapshot(library: Path) -> Path | None:
    """The folder of the latest snapshot of the library in this folder; None where there is none."""
    folder = library / _FOLDER
    try:
        found = folder / (folder / _NEWEST).read_text()
    except OSError:
        return None
    return found if found.is_dir() else None


def tidy(library: Path) -> None:
    """Remove the snapshots that nobody reads any more: others have replaced them some time ago."""
    folder, kept = library / _FOLDER, find_newest_snapshot(library)
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


def _made(store: Store, library: Path, folder: Path) -> Path:
    """Make the copy, unless there is one; its folder. Call inside of `store.reading()`."""
    label, made, former = store.index_label(), folder / _MADE, find_newest_snapshot(library)
    if former is not None and former.name == _name(store, label):
        return former
    shutil.rmtree(made, ignore_errors=True)
    private_folder(made)
    store.copy(made)
    (made / PUBLISHED).touch()
    if label is not None:
        with suppress(FileNotFoundError):
            _link(library / INDEX, made / INDEX)
        if not label.fits(made / INDEX):  # it was written again meanwhile: the next snapshot has it
            label = None
    name = _name(store, label)
    if not (folder / name).is_dir():
        put_in_place(made, folder / name)
    return folder / name


def _name(store: Store, label: IndexLabel | None) -> str:
    """Name of the snapshot of a content with this file of the index."""
    return f"{store.state().commit or _NOTHING}-{FORMAT}-{'0' if label is None else label.sha256[:_DIGITS]}"


def _link(path: Path, made: Path) -> None:
    """The file is replaced and never changed, so that another name for it is as good as a copy."""
    try:
        os.link(path, made)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, made)
