"""The scheduler thread, which makes the answers look at the clock (DRAGON §3: Scheduler)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from common.process.vital import Died, vital_thread

log = logging.getLogger(__name__)

PERIOD = 0.02  # seconds; a stalled answer is noticed this much later than it could be
IDLE = 0.1  # seconds between two looks where nothing is under way: each wakes a processor that could sleep


class Ticker:
    """Calls `tick(now)` periodically, on a thread of its own, until closed; less often while it says that nothing is
    under way.
    """

    def __init__(self, tick: Callable[[float], bool], died: Died | None = None) -> None:
        self._tick = tick
        self._closing = threading.Event()
        self._thread = vital_thread(self._run, "scheduler", died)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        busy = True
        while not self._closing.wait(PERIOD if busy else IDLE):
            try:
                busy = self._tick(time.monotonic())
            except Exception:
                log.exception("the scheduler stumbled; it goes on")
