"""Tasks beside the passes of a thread that owns a model. Peers that cause them have turns, and a share of its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Final

from common.process.accounts import Accounts
from common.process.by_turns import ByTurns

Task = Callable[[], None]

SHARE: Final = 0.25  # seconds of the thread's time that the tasks of one owner may take, per second
BURST: Final = 0.5  # seconds that they may take at once
SLICE: Final = 0.005  # seconds after which an owner's next task is left to the next round


class Tasks:
    """Waiting tasks, run between two passes. Owners that have overdrawn their account wait, the others don't, nor do
    the daemon's own tasks, of the owner None.
    """

    def __init__(self) -> None:
        self._waiting = ByTurns[Task]()
        self._accounts = Accounts(SHARE, BURST)
        self._lock = threading.Lock()

    def add(self, owner: Hashable, task: Task) -> None:
        """Let `task` wait, which must not raise. From any thread."""
        with self._lock:
            self._waiting.add(owner, task)

    def run(self) -> bool:
        """One round: each owner's tasks for as long as a slice; whether there were any."""
        now = time.monotonic()
        with self._lock:
            due = [owner for owner in self._waiting if not self._until_due(owner, now)]
        for owner in due:
            began = ended = time.monotonic()
            while ended - began < SLICE and (task := self._take(owner)) is not None:
                task()
                ended = time.monotonic()
            if owner is not None:
                self._accounts.of(owner, ended).charge(ended, ended - began)
        return bool(due)

    def wait(self) -> float | None:
        """Seconds until a task is due, None where none waits."""
        now = time.monotonic()
        with self._lock:
            return min((self._until_due(owner, now) for owner in self._waiting), default=None)

    def _until_due(self, owner: Hashable, now: float) -> float:
        return 0.0 if owner is None else self._accounts.of(owner, now).wait(now)

    def _take(self, owner: Hashable) -> Task | None:
        with self._lock:
            return self._waiting.take(owner) if owner in self._waiting else None
