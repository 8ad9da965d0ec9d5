"""A thread that works through a line in which owners have turns."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import Generic

from common.process.by_turns import ByTurns, Item
from common.process.vital import Died, vital_thread


class TurnsThread(ABC, Generic[Item]):
    """A thread that serves items one at a time: each owner's in their order, the owners by turns.

    Who adds to `_waiting` holds `_changed`, and notifies it. A subclass makes what it needs before it calls `__init__`,
    which starts the thread.
    """

    def __init__(self, name: str, died: Died | None = None) -> None:
        self._waiting = ByTurns[Item]()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = vital_thread(self._run, name, died)
        self._thread.start()

    def close(self) -> None:
        """Finish what is under way; the rest is dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    @abstractmethod
    def _serve(self, owner: Hashable, item: Item) -> None: ...

    def _run(self) -> None:
        while (found := self._next()) is not None:
            self._serve(*found)
            del found  # what it holds is not kept until the next one comes

    def _next(self) -> tuple[Hashable, Item] | None:
        """The next item and its owner, whose turn comes again after all others'; None when the thread is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting)
            if self._closing:
                return None
            owner = next(iter(self._waiting))
            return owner, self._waiting.take(owner)
