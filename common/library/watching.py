"""Watched folders: what changes in them is read again while the daemon serves, in a process of low priority."""

from __future__ import annotations

import json
import logging
import subprocess
import threading
import time
from collections.abc import Iterable
from pathlib import Path

from watchfiles import watch

from common.configuration.settings import Settings
from common.library.ingest import is_within
from common.library.library import Library
from common.process.python import child_command, python_environment

PAUSE = 5.0  # seconds between two looks at which folders are watched, and before what failed is tried again
TURN = 0.5  # seconds until the first look, and between two without changes
QUIET = 1.0  # seconds without a change until the changes before are read: a copy of many files is one reading

log = logging.getLogger(__name__)


class FolderWatcher:
    """Reads the library's watched folders at the start and whenever something changes in them, until closed.

    Another process does the reading: its search for joints and its embedding would take turns with decoding. The
    library's next search sees what it has committed.
    """

    def __init__(self, settings: Settings, library: Library) -> None:
        self._settings = settings
        self._library = library
        self._closing = threading.Event()
        self._reader: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # guards the start and the end of the reader
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop; a reading under way ends where it is, and goes on at the next start."""
        self._closing.set()
        with self._lock:
            if self._reader is not None:
                self._reader.terminate()
        self._thread.join()

    def _run(self) -> None:
        known: set[str] = set()
        while not self._closing.is_set():
            try:
                there = self._there()
                if there:
                    # Those that are new, or were away, are read: things changed there while nobody looked.
                    self._follow(there, there - known)
                else:
                    self._closing.wait(PAUSE)
                known = there
            except Exception as error:
                known = set()
                # No more of it: its text may name documents.
                log.warning("watching folders stumbled over %s; it goes on", type(error).__name__)
                self._closing.wait(PAUSE)

    def _there(self) -> set[str]:
        """The watched folders that exist: an unplugged disk's documents stay in the library."""
        return {root for root in self._library.watched() if Path(root).exists()}

    def _follow(self, there: set[str], due: set[str]) -> None:
        """Read the folders `due`, and what changes in all that are `there`, until others are watched, or one of these
        comes or goes.
        """
        looked = time.monotonic()
        # It notes changes from its first turn on, also while something is being read.
        for changes in watch(
            *sorted(there),
            stop_event=self._closing,
            debounce=int(QUIET * 1e3),
            rust_timeout=int(TURN * 1e3),
            yield_on_timeout=True,
            raise_interrupt=False,
        ):
            due = self._read(due | {root for root in there for _, path in changes if is_within(path, root)})
            if due:
                self._closing.wait(PAUSE)
            if time.monotonic() - looked > PAUSE:
                looked = time.monotonic()
                if self._there() != there:
                    return

    def _read(self, roots: Iterable[str]) -> set[str]:
        """Bring the library up to date with `roots`; returns those that have to be tried again."""
        roots = sorted(roots)
        if not roots or self._closing.is_set():
            return set()
        settings = {name: getattr(self._settings, name) for name in Settings.model_fields}
        task = json.dumps({"settings": settings, "paths": roots}, default=str).encode()
        with self._lock:
            if self._closing.is_set():
                return set()
            self._reader = subprocess.Popen(
                child_command("common.library.add_process"),
                env=python_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        self._reader.communicate(task)
        code = self._reader.returncode
        log.info("a change in %d of the watched folders was read (exit code %d)", len(roots), code)
        return set(roots) if code > 1 else set()  # busy, for example; what was merely skipped is told by `status`
