"""A thread that compiles the formats of answers: devices take turns, and none takes more of it than its share."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

from common.answer.errors import AnswerFailed, NoPlace
from common.daemon.failures import as_failure
from common.daemon.tasks import STOPPING, Failed
from common.daemon.turns import TurnsThread
from common.process.accounts import Accounts
from common.process.vital import Died
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


class FormatLine(TurnsThread[_Task]):
    """Runs tasks one at a time: each owner's in their order, the owners by turns.

    A task that nobody wants any more is forgotten. The time that tasks take is charged to their owner, unless that is
    None: this daemon's own user. An owner that has had more than its share gets `NoPlace`, and the others their turns.
    """

    def __init__(self, died: Died | None = None, accounts: Accounts | None = None) -> None:
        self._accounts = accounts or Accounts(SHARE, BURST)
        super().__init__("formats", died)

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

    def _serve(self, owner: Hashable, item: _Task) -> None:
        if not item.wanted():
            return
        began = time.monotonic()
        wait = 0.0 if owner is None else self._accounts.of(owner, began).wait(began)
        if wait:
            item.failed(NoPlace(wait, TOO_MUCH))
            return
        self._do(item)
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
