"""Several models on one machine, computing one at a time (EdgeLLM §III-D)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_COMING_BACK = 0.01  # seconds within which a busy thread comes back


class Gate:
    """Admits one thread at a time, in order of arrival. The holder may lend its turn."""

    def __init__(self) -> None:
        # The condition's lock guards everything below.
        self._changed = threading.Condition()
        self._waiting: deque[object] = deque()
        self._inside: object | None = None
        self._lender: object | None = None
        self._coming_back: set[object] = set()

    @contextmanager
    def turn(self, who: object) -> Iterator[None]:
        """Waits for a turn. Afterwards `who` is expected back at once, unless it calls `rests`."""
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
        """Notes that `who` has nothing to do for now."""
        with self._changed:
            self._coming_back.discard(who)
            self._changed.notify_all()

    def lend(self) -> bool:
        """Lends the caller's turn to another thread. Returns False if none wants it.

        A borrower can't lend.
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
