"""Threads that publish each content of a library, and that open each one on the machines that read it."""

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

_LOOK: Final = 1.0  # seconds between two looks for another content
_PAUSE: Final = 10.0  # seconds until what failed is tried again
_SHARE: Final = 0.1  # of the time that copying may take, of a library that changes all the time

log = logging.getLogger(__name__)


class _Watch(ABC):
    """A thread that looks over and over, until closed, and outlives what fails, which is tried again."""

    def __init__(self, name: str) -> None:
        self._closing = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End; what is under way is waited for."""
        self._closing.set()
        self._thread.join()

    @abstractmethod
    def _look(self) -> float:
        """Do what there is to do; the seconds until the next look."""

    def _run(self) -> None:
        pause = 0.0
        while not self._closing.wait(pause):
            try:
                pause, self._failing = self._look(), False
            except Exception as error:  # whatever it is, the next content may do
                if not self._failing:
                    log.warning("%s failed with %s; it is tried again", self._thread.name, type(error).__name__)
                pause, self._failing = _PAUSE, True


class Publisher(_Watch):
    """Publishes each content of a library that is open here, once it is indexed, and again when that was trained."""

    def __init__(self, library: Library) -> None:
        self._library = library
        super().__init__("publishing the library")

    def _look(self) -> float:
        tidy(self._library.folder)
        self._library.settle()
        if is_newest(self._library.folder):
            return _LOOK
        self._library.warm()  # else each of its readers would index it
        began = time.monotonic()
        made = publish(self._library.folder)
        log.info("the library was published: %s, %d chunks", made.name, self._library.count)
        return max(_LOOK, (time.monotonic() - began) / _SHARE)


class Follower(_Watch):
    """Opens each snapshot of a library that comes after `present`, beside the searches, and hands it over."""

    def __init__(
        self, library: Path, present: Path, opened: Callable[[Path], Library], take: Callable[[Library], None]
    ) -> None:
        """`library` is the folder of the library, `opened` opens a snapshot. Whoever takes one closes it."""
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
