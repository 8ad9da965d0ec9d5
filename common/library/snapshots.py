"""Snapshots of a library for processes on other machines.

SQLite's write-ahead log works on one machine only. So each content is copied to a folder below the library's, named
after commit, format and index. It never changes, so any number of processes may share it.
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
_NEWEST: Final = "newest"  # this file names the snapshot to read
_NOTHING: Final = "empty"  # name of a content without commits
_MADE: Final = ".new"  # prefix of an unfinished snapshot
_DIGITS: Final = 8  # of the index's SHA-256 in a name
_KEPT: Final = 60.0  # seconds until a replaced snapshot is removed


def publish(library: Path) -> Path:
    """Copies the present library unless done, and returns the copy's folder.

    For one process at a time. Raises `LibraryError`.
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
    """Whether the latest snapshot has the present content and index file."""
    found = find_newest_snapshot(library)
    if found is None:
        return False
    with closing(Store(library)) as store, store.reading():
        return found.name == _name(store, store.index_label())


def find_newest_snapshot(library: Path) -> Path | None:
    """Folder of the library's latest snapshot; None without one."""
    folder = library / _FOLDER
    try:
        found = folder / (folder / _NEWEST).read_text()
    except OSError:
        return None
    return found if found.is_dir() else None


def tidy(library: Path) -> None:
    """Removes snapshots replaced some time ago: nobody reads them."""
    folder, kept = library / _FOLDER, find_newest_snapshot(library)
    if kept is None or time.time() - (folder / _NEWEST).stat().st_mtime < _KEPT:
        return
    for path in folder.iterdir():
        if path.is_dir() and path != kept:
            shutil.rmtree(path, ignore_errors=True)


def forget(library: Path) -> None:
    """Removes all snapshots: they may have removed content."""
    shutil.rmtree(library / _FOLDER, ignore_errors=True)


def forget_unread(settings: Settings) -> None:
    """Removes a cluster's remaining snapshots, unless the role's daemon runs and does so."""
    if (settings.library / _FOLDER).exists():
        with suppress(LockHeld, OSError), sole_process(settings.lock):
            forget(settings.library)


def _made(store: Store, library: Path, folder: Path) -> Path:
    """Makes the copy unless it exists. Call inside `store.reading()`."""
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
        if not label.fits(made / INDEX):  # rewritten meanwhile: the next snapshot has it
            label = None
    name = _name(store, label)
    if not (folder / name).is_dir():
        put_in_place(made, folder / name)
    return folder / name


def _name(store: Store, label: IndexLabel | None) -> str:
    return f"{store.state().commit or _NOTHING}-{FORMAT}-{'0' if label is None else label.sha256[:_DIGITS]}"


def _link(path: Path, made: Path) -> None:
    """A link serves as a copy, since the file is replaced and never changed."""
    try:
        os.link(path, made)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(path, made)
