"""A line of what waits, in which owners have turns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

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
