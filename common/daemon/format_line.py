"""A thread that compiles the formats of answers: devices take turns, and none takes more of it than its share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from common.answer.errors import AnswerFailed, NoPlace
from common.daemon.failures import as_failure
from common.daemon.tasks import STOPPING, Failed
from common.daemon.turns import ByTurns
from common.process.accounts import Accounts
from common.process.vital import Died, vital_thread
from common.processors.trial import Unwanted

MOST_WAITING: Final = 64  # answers of one device
# What one device may have of the thread: two costly schemas at once, then one in ten seconds. Most take a fifth of one.
SHARE: Final = 0.25
BURST: Final = 5.0  # seconds
CROWDED: Final = 1.0  # seconds after which a device with too many answers in line may try again
TOO_MUCH = "This device has formats of answers compiled for longer than its share of the time; try again later."

Wanted = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class _Task:
    wanted: Wanted
    run: Callable[[Wanted], object]
    failed: Failed


class FormatLine:
    """Runs tasks one at a time: each owner's in their order, the owners by turns.

    A task that nobody wants any more is forgotten. The time that tasks take is charged to their owner, unless that is
    None: this daemon's own user. An owner that has had more than its share gets `NoPlace`, and the others their turns.
    """

    def __init__(self, died: Died | None = None, accounts: Accounts | None = None) -> None:
        self._accounts = accounts or Accounts(SHARE, BURST)
        self._waiting = ByTurns[_Task]()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = vital_thread(self._run, "formats", died)
        self._thread.start()

    def submit(self, owner: Hashable, wanted: Wanted, run: Callable[[Wanted], object], failed: Failed) -> None:
        """Queue `run`, from any other thread, which is told how to find out whether it is `wanted` still.

        An exception in it is passed to `failed`; see `as_failure`. On a closed line `failed` is called at once.
        """
        with self._changed:
            waiting = self._waiting.keep(owner, lambda task: task.wanted())
            closing, crowded = self._closing, waiting >= MOST_WAITING
            if not closing and not crowded:
                self._waiting.add(owner, _Task(wanted, run, failed))
                self._changed.notify()
        if closing:
            failed(AnswerFailed(STOPPING))
        elif crowded:
            failed(NoPlace(CROWDED, TOO_MUCH))

    def close(self) -> None:
        """End the task that is under way; the others are dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (found := self._next()) is not None:
            owner, task = found
            if not task.wanted():
                continue
            began = time.monotonic()
            wait = 0.0 if owner is None else self._accounts.of(owner, began).wait(began)
            if wait:
                task.failed(NoPlace(wait, TOO_MUCH))
                continue
            self._do(task)
            if owner is not None:
                now = time.monotonic()
                self._accounts.of(owner, now).charge(now, now - began)

    def _do(self, task: _Task) -> None:
        try:
            task.run(lambda: task.wanted() and not self._closing)
        except Unwanted:
            pass
        except Exception as error:
            task.failed(as_failure(error))

    def _next(self) -> tuple[Hashable, _Task] | None:
        """The next task and its owner, whose turn comes again after all others'; None when the line is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting)
            if self._closing:
                return None
            owner = next(iter(self._waiting))
            return owner, self._waiting.take(owner)
