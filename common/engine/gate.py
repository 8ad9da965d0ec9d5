"""Several models on one machine, one of which computes at a time (EdgeLLM §III-D)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_COMING_BACK = 0.01  # seconds in which a thread that has more to do comes back, on a busy machine


class Gate:
    """Lets one thread in at a time, in the order in which they come. Who is inside may lend its place for a turn."""

    def __init__(self) -> None:
        # Everything below belongs to whoever holds the condition.
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._inside: object | None = None
        self._lender: object | None = None
        self._coming_back: set[object] = set()

    @contextmanager
    def turn(self, who: object) -> Iterator[None]:
        """Wait, and be inside; afterwards `who` is expected back at once, unless it says that it `rests`."""
        with self._changed:
            self._coming_back.discard(who)
            self._waiting.append(who)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._inside is None and self._waiting[0] is who)
            self._inside = self._waiting.popleft()
        try:
            yield
        finally:
            with self._changed:
                self._coming_back.add(who)
                self._inside, self._lender = self._lender, None
                self._changed.notify_all()

    def rests(self, who: object) -> None:
        """Note that `who` has nothing to do for now."""
        with self._changed:
            self._coming_back.discard(who)
            self._changed.notify_all()

    def lend(self) -> bool:
        """Let another thread have a turn, for who is inside and can't go on; False if none wants one.

        Who is inside as a guest can't lend.
        """
        with self._changed:
            if self._lender is not None:
                return False
            self._changed.wait_for(lambda: self._waiting or not self._coming_back, _COMING_BACK)
            if not self._waiting:
                return False
            lender = self._lender = self._inside
            self._inside = None
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._inside is lender)
            return True
