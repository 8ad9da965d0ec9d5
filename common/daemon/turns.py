"""A line of what waits, in which owners have turns, and a thread that works through one."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from common.process.vital import Died, vital_thread

Item = TypeVar("Item")


class ByTurns(Generic[Item]):
    """Items that wait: each owner's in their order, the owners by turns. For one thread, or under its caller's lock."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Item]] = {}  # whose turn is next first; none is empty

    def __iter__(self) -> Iterator[Hashable]:
        """The owners of what waits, whose turn is next first."""
        return iter(self._waiting)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, owner: Hashable, item: Item) -> None:
        """Put an item behind its owner's others."""
        self._waiting.setdefault(owner, deque()).append(item)

    def keep(self, owner: Hashable, wanted: Callable[[Item], bool]) -> int:
        """Drop what is not wanted of an owner's; returns how much waits then."""
        items = deque(item for item in self._waiting.get(owner, ()) if wanted(item))
        if items:
            self._waiting[owner] = items
        else:
            self._waiting.pop(owner, None)
        return len(items)

    def take(self, owner: Hashable) -> Item:
        """The owner's first item; it has its next turn after all others."""
        items = self._waiting.pop(owner)
        item = items.popleft()
        if items:
            self._waiting[owner] = items
        return item


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
