"""Tasks beside the passes of a thread that owns a model. Peers that cause them have turns, and shares of its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from typing import Final

from common.process.accounts import Accounts, TokenBucket
from common.process.by_turns import ByTurns

Task = Callable[[], None]

SHARE: Final = 0.25  # seconds of the thread's time that the tasks of one owner may take, per second
BURST: Final = 0.5  # seconds that they may take at once
SHARE_OF_ALL: Final = 0.5  # the same of all owners together, but for the daemon itself
BURST_OF_ALL: Final = 1.0
SLICE: Final = 0.005  # seconds of a round after which the next task is left to the next one


class Tasks:
    """Waiting tasks, run between two passes. Owners that have overdrawn their account wait, and all of them while they
    have overdrawn the one that they share; the daemon's own tasks, of the owner None, do not.
    """

    def __init__(self) -> None:
        self._waiting = ByTurns[Task]()
        self._accounts = Accounts(SHARE, BURST)
        self._of_all = TokenBucket(SHARE_OF_ALL, BURST_OF_ALL, time.monotonic())
        self._lock = threading.Lock()

    def add(self, owner: Hashable, task: Task) -> None:
        """Let `task` wait, which must not raise. From any thread."""
        with self._lock:
            self._waiting.add(owner, task)

    def run(self) -> bool:
        """One round: the daemon's own tasks for as long as a slice, and the owners' by turns for as long; whether there
        were any.
        """
        now = time.monotonic()
        with self._lock:
            due = [owner for owner in self._waiting if not self._until_due(owner, now)]
        self._run(None, SLICE)
        left = SLICE
        for owner in due:
            if owner is not None and left > 0.0:
                spent, ended = self._run(owner, left)
                self._accounts.of(owner, ended).charge(ended, spent)
                self._of_all.charge(ended, spent)
                left -= spent
        return bool(due)

    def _run(self, owner: Hashable, most: float) -> tuple[float, float]:
        """Run the owner's tasks until `most` seconds are over; the seconds that they took, and when they ended."""
        began = ended = time.monotonic()
        while ended - began < most and (task := self._take(owner)) is not None:
            task()
            ended = time.monotonic()
        return ended - began, ended

    def wait(self) -> float | None:
        """Seconds until a task is due, None where none waits."""
        now = time.monotonic()
        with self._lock:
            return min((self._until_due(owner, now) for owner in self._waiting), default=None)

    def _until_due(self, owner: Hashable, now: float) -> float:
        return 0.0 if owner is None else max(self._of_all.wait(now), self._accounts.of(owner, now).wait(now))

    def _take(self, owner: Hashable) -> Task | None:
        with self._lock:
            return self._waiting.take(owner) if owner in self._waiting else None
