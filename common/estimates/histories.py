"""Knowledge that methods gain over many answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TypeVar

T = TypeVar("T")


class Histories:
    """One object of each kind, made when it is first asked for. For any thread."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, object] = {}
        self._lock = threading.Lock()

    def of(self, kind: type[T], name: str, make: Callable[[], T]) -> T:
        """The object of `kind` for the method `name`."""
        with self._lock:
            known = self._kept.get((kind, name))
            if not isinstance(known, kind):
                known = self._kept[kind, name] = make()
            return known
