"""Watched folders: what changes in them is read again while the daemon serves, in a process of low priority."""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from watchfiles import Change, watch

from common.configuration.settings import Settings
from common.library.library import Library
from common.library.passed_over import concerns
from common.library.places import is_within
from common.library.reading_process import Changes, ReadingProcess

PAUSE = 5.0  # seconds between two looks at which folders are watched, and before what failed is tried again
TURN = 0.5  # seconds until the first look, and between two without changes
LOOKED = 30.0  # seconds between two looks at folders of whose changes the system does not tell
STEP = 0.25  # seconds between two looks at what the system has told: each wakes a processor that could sleep
QUIET = 1.0  # seconds without a change until the changes before are read: a copy of many files is one reading
RESTLESS = 30.0  # seconds after which they are read all the same: something may be written on and on

log = logging.getLogger(__name__)

# Folders and documents that are there, each with its device's number and its own on that: under the same path may be
# another one, as after a document was saved by an editor, or a disk was mounted.
There = Mapping[str, tuple[int, int]]


def compute_rest_end(first: float, last: float) -> float:
    """The time from which a folder may be read of whose changes the first and the last came at these times."""
    return min(last + QUIET, first + RESTLESS)


class FolderWatcher:
    """Reads the library's watched folders at the start and whenever something changes in them, until closed.

    Another process does the reading, and hears of changes while it reads. The library's next search sees what it has
    committed.
    """

    def __init__(self, settings: Settings, library: Library) -> None:
        self._library = library
        self._own = os.path.realpath(library.folder)
        self._data = os.path.realpath(settings.data)
        self._closing = threading.Event()
        self._reading = ReadingProcess({name: getattr(settings, name) for name in Settings.model_fields}, library.embed)
        self._due: Changes = {}
        self._changed: dict[str, tuple[float, float]] = {}  # when the first and the last of what is due came, if it did
        self._devices: dict[str, int] = {}  # of watched folders, as they were when there was something in them
        self._not_before = 0.0  # when what is due may be read
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; a reading under way ends where it is, and goes on at the next start."""
        self._closing.set()
        self._reading.close()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                there = self._there()
                if there:
                    # All are read, the known ones, too: things may have changed there while nobody looked.
                    self._note({root: set() for root in there})
                    self._follow(there)
                else:
                    self._closing.wait(PAUSE)
            except Exception as error:
                # No more of it: its text may name documents.
                log.warning("watching folders stumbled over %s; it goes on", type(error).__name__)
                self._closing.wait(PAUSE)

    def _there(self) -> There:
        """The watched folders that exist: an unplugged disk's documents stay in the library."""
        found: dict[str, tuple[int, int]] = {}
        for root in self._library.watched():
            with suppress(OSError):
                status = os.stat(root)
                unplugged = status.st_dev != self._devices.get(root)
                empty = stat.S_ISDIR(status.st_mode) and not os.listdir(root)
                if unplugged and empty and not is_within(root, self._data):
                    continue  # the empty folder on which a disk was mounted, or will be; uploads are on no other one
                self._devices[root] = status.st_dev
                found[root] = status.st_dev, status.st_ino
        return found

    def _follow(self, there: There) -> None:
        """Have read what is due and what changes in all folders that are `there`, until others are watched, or one of
        these comes, goes or becomes another one.
        """
        looked = time.monotonic()

        def wanted(change: Change, path: str) -> bool:
            return any(self._concerned(path, there))

        # It notes changes from its first turn on, also while something is being read.
        for changes in self._changes(there, wanted):
            for _, path in changes:
                self._hear(path, there)
            self._read(there)
            # What goes takes the system's watch of it along; who comes at once in its place may get its number, too.
            if any(change is Change.deleted and path in there for change, path in changes):
                return
            if time.monotonic() - looked > PAUSE:
                looked = time.monotonic()
                if self._there() != there:
                    return

    def _changes(
        self, there: Collection[str], wanted: Callable[[Change, str], bool]
    ) -> Iterator[Collection[tuple[Change, str]]]:
        """Changes in folders as the system tells of them, or else, from time to time, as they are seen; none in a turn
        without. Raises `OSError` where they can't be looked at.
        """
        options: dict[str, Any] = {
            "watch_filter": wanted,
            "stop_event": self._closing,
            "rust_timeout": int(TURN * 1e3),
            "step": int(STEP * 1e3),
            "yield_on_timeout": True,
            "raise_interrupt": False,
        }
        try:
            yield from watch(*sorted(there), **options)
        except FileNotFoundError:  # it has gone meanwhile
            raise
        except OSError as error:
            log.warning(
                "the system can't tell of changes in the watched folders (%s): they may be more than its limit (Linux:"
                " fs.inotify.max_user_watches), or one may not be read; they are looked at every %g s instead",
                type(error).__name__,
                LOOKED,
            )
            yield from watch(*sorted(there), **options, force_polling=True, poll_delay_ms=int(LOOKED * 1e3))

    def _note(self, changes: Changes) -> None:
        for root, paths in changes.items():
            self._due.setdefault(root, set()).update(paths)

    def _hear(self, path: str, there: Collection[str]) -> None:
        """Note a change that has just come."""
        now = time.monotonic()
        for root in self._concerned(path, there):
            self._note({root: {path}})
            first, _ = self._changed.get(root, (now, now))
            self._changed[root] = first, now

    def _read(self, there: Collection[str]) -> None:
        """Have read what is due where nothing changes just now, unless something stands in the way: then it is tried
        again after a pause.
        """
        if failed := self._reading.failed():
            self._note(failed)
            self._not_before = time.monotonic() + PAUSE
        self._due = {root: paths for root, paths in self._due.items() if root in there}
        now = time.monotonic()
        ready = [
            root for root in self._due if root not in self._changed or compute_rest_end(*self._changed[root]) <= now
        ]
        if not ready or now < self._not_before:
            return
        if not self._reading.running and self._library.busy:
            self._not_before = now + PAUSE
            return
        self._reading.read({root: self._due.pop(root) for root in ready})
        for root in ready:
            self._changed.pop(root, None)

    def _concerned(self, path: str, roots: Collection[str]) -> Iterator[str]:
        """The folders whose reading a change of `path` can change. What reading writes itself is none."""
        if is_within(path, self._own):
            return iter(())
        return (root for root in roots if is_within(path, root) and concerns(path, root))
