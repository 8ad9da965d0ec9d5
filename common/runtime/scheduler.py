"""The scheduler thread: looks at the clock for everybody (DRAGON §3: Scheduler)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

log = logging.getLogger(__name__)

PERIOD = 0.02  # seconds; a stalled answer is noticed this much later than it could be


def look_at_each(items: Iterable[T], look: Callable[[T], None], failed: Callable[[T], None]) -> None:
    """Call `look` on each of the items. One that raises is told to `failed`, which ends it, and delays no other one."""
    for item in items:
        try:
            look(item)
        except Exception:
            log.exception("an answer failed at the clock; the others go on")
            failed(item)


class Scheduler:
    """Calls `tick(now)` periodically, on a thread of its own, until closed."""

    def __init__(self, tick: Callable[[float], None]) -> None:
        self._tick = tick
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(PERIOD):
            try:
                self._tick(time.monotonic())
            except Exception:
                log.exception("the scheduler stumbled; it goes on")
