"""A thread for work that others cause: those who cause it have turns, and none has more of it than its share."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from common.daemon.failures import as_failure
from common.daemon.tasks import Failed
from common.daemon.turns import TurnsThread
from common.process.accounts import Accounts
from common.process.vital import Died

WORK_PER_SECOND: Final = 0.25  # seconds of the thread's time that one owner may take
WORK_BURST: Final = 0.5  # seconds that it may take at once
MOST_WAITING: Final = 2**25  # bytes of what waits for one owner
OVERHEAD: Final = 2**10  # bytes that are counted for a task beside its own


@dataclass(frozen=True, slots=True)
class _Task:
    run: Callable[[], object]
    failed: Failed
    size: int  # bytes


class FairThread(TurnsThread[_Task]):
    """Runs the tasks of each owner in their order, and the owners in turns.

    Each has an account of the time that its tasks take. Whoever has overdrawn it waits; the others don't.
    """

    def __init__(self, name: str, died: Died | None = None) -> None:
        self._accounts = Accounts(WORK_PER_SECOND, WORK_BURST)
        self._sizes: dict[Hashable, int] = {}  # bytes that wait
        super().__init__(name, died)

    def submit(self, owner: Hashable, size: int, run: Callable[[], object], failed: Failed) -> bool:
        """Queue `run`, which holds `size` bytes, for the thread, from any other; False where too much waits already.

        An exception in it is passed to `failed`; see `as_failure`.
        """
        with self._changed:
            size += OVERHEAD
            waiting = self._sizes.get(owner, 0) + size
            if waiting > MOST_WAITING:
                return False
            self._sizes[owner] = waiting
            self._waiting.add(owner, _Task(run, failed, size))
            self._changed.notify()
            return True

    def _serve(self, owner: Hashable, item: _Task) -> None:
        begun = time.thread_time()
        try:
            item.run()
        except Exception as error:
            item.failed(as_failure(error))
        spent, now = time.thread_time() - begun, time.monotonic()
        self._accounts.of(owner, now).charge(now, spent)

    def _next(self) -> tuple[Hashable, _Task] | None:
        """The first task of the next owner that has not overdrawn its account; None when the thread is closed."""
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                waits = {owner: self._accounts.of(owner, now).wait(now) for owner in self._waiting}
                ready = next((owner for owner, wait in waits.items() if not wait), None)
                if ready is not None:
                    return ready, self._take(ready)
                self._changed.wait(min(waits.values(), default=None))
            return None

    def _take(self, owner: Hashable) -> _Task:
        task = self._waiting.take(owner)
        self._sizes[owner] -= task.size
        if not self._sizes[owner]:
            del self._sizes[owner]
        return task
