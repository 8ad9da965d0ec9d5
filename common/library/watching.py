"""Watches folders and rereads changes while the daemon serves, in a low-priority process."""

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

PAUSE = 5.0  # seconds between checks of the watched folders, and before a retry
TURN = 0.5  # seconds until the first check, and between checks without changes
LOOKED = 30.0  # seconds between checks of folders without system notifications
STEP = 0.25  # seconds between queries for notifications: each wakes an idle processor
QUIET = 1.0  # seconds without changes before reading: a copy of many files is one reading
RESTLESS = 30.0  # seconds until reading despite changes: a file may be written constantly

log = logging.getLogger(__name__)

# Existing folders and documents, with numbers of device and file. Saving in an editor or mounting a disk may replace
# the file at a path.
There = Mapping[str, tuple[int, int]]


def compute_rest_end(first: float, last: float) -> float:
    """Time for reading a folder after its first and last change."""
    return min(last + QUIET, first + RESTLESS)


class FolderWatcher:
    """Reads the library's watched folders at the start and after changes, until closed.

    Another process reads, and receives further changes meanwhile. The library's next search sees its commits.
    """

    def __init__(self, settings: Settings, library: Library) -> None:
        self._library = library
        self._own = os.path.realpath(library.folder)
        self._data = os.path.realpath(settings.data)
        self._closing = threading.Event()
        self._reading = ReadingProcess({name: getattr(settings, name) for name in Settings.model_fields}, library.embed)
        self._due: Changes = {}
        self._changed: dict[str, tuple[float, float]] = {}  # times of the first and last due change, if any
        self._devices: dict[str, int] = {}  # of watched folders when last non-empty
        self._not_before = 0.0  # earliest time of the next reading
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops; a reading in progress continues at the next start."""
        self._closing.set()
        self._reading.close()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                there = self._there()
                if there:
                    # Known folders are read too: they may have changed unobserved.
                    self._note({root: set() for root in there})
                    self._follow(there)
                else:
                    self._closing.wait(PAUSE)
            except Exception as error:
                # Only the type: the text may name documents.
                log.warning("watching folders failed once with %s and continues", type(error).__name__)
                self._closing.wait(PAUSE)

    def _there(self) -> There:
        """The existing watched folders; an unplugged disk's documents stay in the library."""
        found: dict[str, tuple[int, int]] = {}
        for root in self._library.watched():
            with suppress(OSError):
                status = os.stat(root)
                unplugged = status.st_dev != self._devices.get(root)
                empty = stat.S_ISDIR(status.st_mode) and not os.listdir(root)
                if unplugged and empty and not is_within(root, self._data):
                    continue  # the empty mount point of a disk; uploads are never on one
                self._devices[root] = status.st_dev
                found[root] = status.st_dev, status.st_ino
        return found

    def _follow(self, there: There) -> None:
        """Reads due and new changes until the watched or existing folders change."""
        looked = time.monotonic()

        def wanted(change: Change, path: str) -> bool:
            return any(self._concerned(path, there))

        # Changes are collected from the first turn on, also during a reading.
        for changes in self._changes(there, wanted):
            for _, path in changes:
                self._hear(path, there)
            self._read(there)
            # A deletion ends the system's watch, and a replacement may reuse the number.
            if any(change is Change.deleted and path in there for change, path in changes):
                return
            if time.monotonic() - looked > PAUSE:
                looked = time.monotonic()
                if self._there() != there:
                    return

    def _changes(
        self, there: Collection[str], wanted: Callable[[Change, str], bool]
    ) -> Iterator[Collection[tuple[Change, str]]]:
        """Yields system notifications, or polled changes without them; empty for no change.

        Raises `OSError` if folders cannot be read.
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
        except FileNotFoundError:  # deleted meanwhile
            raise
        except OSError as error:
            log.warning(
                "the system can't report changes in the watched folders (%s): they may exceed its limit (Linux: "
                "fs.inotify.max_user_watches), or one is not readable. The daemon looks at them every %g s "
                "instead",
                type(error).__name__,
                LOOKED,
            )
            yield from watch(*sorted(there), **options, force_polling=True, poll_delay_ms=int(LOOKED * 1e3))

    def _note(self, changes: Changes) -> None:
        for root, paths in changes.items():
            self._due.setdefault(root, set()).update(paths)

    def _hear(self, path: str, there: Collection[str]) -> None:
        now = time.monotonic()
        for root in self._concerned(path, there):
            self._note({root: {path}})
            first, _ = self._changed.get(root, (now, now))
            self._changed[root] = first, now

    def _read(self, there: Collection[str]) -> None:
        """Starts reading the quiet due folders; retries after a pause if busy."""
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
        """The folders affected by a change of `path`; the library's own writes affect none."""
        if is_within(path, self._own):
            return iter(())
        return (root for root in roots if is_within(path, root) and concerns(path, root))
