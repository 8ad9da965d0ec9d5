"""Threads for publishing a library's contents, and opening them on reading machines."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final

from common.library.library import Library
from common.library.snapshots import find_newest_snapshot, is_newest, publish, tidy

_LOOK: Final = 1.0  # seconds between two checks
_PAUSE: Final = 10.0  # seconds before a retry
_SHARE: Final = 0.1  # largest share of time for copying a constantly changing library

log = logging.getLogger(__name__)


class _Watch(ABC):
    """A thread for repeated looks until closed; errors are retried."""

    def __init__(self, name: str) -> None:
        self._closing = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread after its present work."""
        self._closing.set()
        self._thread.join()

    @abstractmethod
    def _look(self) -> float:
        """Does the pending work and returns the seconds until the next look."""

    def _run(self) -> None:
        pause = 0.0
        while not self._closing.wait(pause):
            try:
                pause, self._failing = self._look(), False
            except Exception as error:  # any error: the next content may succeed
                if not self._failing:
                    log.warning("%s failed with %s; it is tried again", self._thread.name, type(error).__name__)
                pause, self._failing = _PAUSE, True


class Publisher(_Watch):
    """Publishes each content of an open library after indexing, and again after training."""

    def __init__(self, library: Library) -> None:
        self._library = library
        super().__init__("publishing the library")

    def _look(self) -> float:
        tidy(self._library.folder)
        self._library.settle()
        if is_newest(self._library.folder):
            return _LOOK
        self._library.warm()  # otherwise each reader would index it
        began = time.monotonic()
        made = publish(self._library.folder)
        log.info("the library was published: %s, %d chunks", made.name, self._library.count)
        return max(_LOOK, (time.monotonic() - began) / _SHARE)


class Follower(_Watch):
    """Opens and hands over each snapshot newer than `present`, in the background."""

    def __init__(
        self, library: Path, present: Path, opened: Callable[[Path], Library], take: Callable[[Library], None]
    ) -> None:
        """`library` is its folder; `opened` opens a snapshot; the receiver of `take` closes it."""
        self._folder = library
        self._present = present
        self._opened = opened
        self._take = take
        super().__init__("opening a snapshot of the library")

    def _look(self) -> float:
        found = find_newest_snapshot(self._folder)
        if found is not None and found != self._present:
            library = self._opened(found)
            try:
                library.warm()
            except BaseException:
                library.close()
                raise
            self._present = found
            self._take(library)
        return _LOOK
