"""A virtual clock: events in the order of their times, ties in the order they were made."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Clock:
    """Runs callables at virtual times (seconds)."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, delay: float, event: Callable[[], None]) -> None:
        """Run `event` `delay` seconds from now."""
        heapq.heappush(self._events, (self.now + delay, next(self._order), event))

    def run(self, until: float, done: Callable[[], bool]) -> bool:
        """Run events until `done()` or the time `until`; returns whether it was done."""
        while self._events and not done():
            if self._events[0][0] > until:
                self.now = until
                break
            self.now, _, event = heapq.heappop(self._events)
            event()
        return done()
