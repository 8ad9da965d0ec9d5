"""Threads that work through lines in which tenants have turns."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic

from common.answer.request import AnswerFailed, NoPlace
from common.daemon.handshake import as_failure
from common.process.threads import Accounts, ByTurns, Died, Item, vital_thread
from common.processors.trial import Unwanted


class TurnsThread(ABC, Generic[Item]):
    """A thread that serves items one at a time: each tenant's in their order, the tenants by turns.

    Who adds to `_waiting` holds `_changed`, and notifies it. A subclass makes what it needs before it calls `__init__`,
    which starts the thread.
    """

    def __init__(self, name: str, died: Died | None = None) -> None:
        self._waiting = ByTurns[Item]()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = vital_thread(self._run, name, died)
        self._thread.start()

    def close(self) -> None:
        """Finish what is under way; the rest is dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    @abstractmethod
    def _serve(self, tenant: Hashable, item: Item) -> None: ...

    def _run(self) -> None:
        while (found := self._next()) is not None:
            self._serve(*found)
            del found  # what it holds is not kept until the next one comes

    def _next(self) -> tuple[Hashable, Item] | None:
        """The next item and its tenant, whose turn comes again after all others'; None when the thread is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting)
            if self._closing:
                return None
            tenant = next(iter(self._waiting))
            return tenant, self._waiting.take(tenant)


# --- tasks
# A thread for the work of answers besides decoding, such as retrieval; a task's exception goes to its answer.

STOPPING = "The daemon is stopping."

Failed = Callable[[Exception], object]  # told why an answer can't go on: `AnswerFailed` or `RequestError`

_Task = tuple[Callable[[], object], Failed]


class TaskThread(TurnsThread[_Task]):
    """Runs tasks one at a time: each tenant's in their order, the tenants by turns."""

    def submit(self, tenant: Hashable, run: Callable[[], object], failed: Failed) -> None:
        """Queue `run` for the thread, from any other. An exception in it is passed to `failed`; see `as_failure`.

        On a closed thread `failed` is called at once.
        """
        with self._changed:
            closing = self._closing
            if not closing:
                self._waiting.add(tenant, (run, failed))
                self._changed.notify()
        if closing:
            failed(AnswerFailed(STOPPING))

    def _serve(self, tenant: Hashable, item: _Task) -> None:
        run, failed = item
        try:
            run()
        except Exception as error:
            failed(as_failure(error))


# --- fair_thread
# A thread for work that others cause: those who cause it have turns, and none has more of it than its share.

WORK_PER_SECOND: Final = 0.25  # seconds of the thread's time that one tenant may take
WORK_BURST: Final = 0.5  # seconds that it may take at once
MOST_WAITING: Final = 2**25  # bytes of what waits for one tenant
OVERHEAD: Final = 2**10  # bytes that are counted for a task beside its own


@dataclass(frozen=True, slots=True)
class _FairThreadTask:
    run: Callable[[], object]
    failed: Failed
    size: int  # bytes


class FairThread(TurnsThread[_FairThreadTask]):
    """Runs the tasks of each tenant in their order, and the tenants in turns.

    Each has an account of the time that its tasks take. Whoever has overdrawn it waits; the others don't.
    """

    def __init__(self, name: str, died: Died | None = None) -> None:
        self._accounts = Accounts(WORK_PER_SECOND, WORK_BURST)
        self._sizes: dict[Hashable, int] = {}  # bytes that wait
        super().__init__(name, died)

    def submit(self, tenant: Hashable, size: int, run: Callable[[], object], failed: Failed) -> bool:
        """Queue `run`, which holds `size` bytes, for the thread, from any other; False where too much waits already.

        An exception in it is passed to `failed`; see `as_failure`.
        """
        with self._changed:
            size += OVERHEAD
            waiting = self._sizes.get(tenant, 0) + size
            if waiting > MOST_WAITING:
                return False
            self._sizes[tenant] = waiting
            self._waiting.add(tenant, _FairThreadTask(run, failed, size))
            self._changed.notify()
            return True

    def _serve(self, tenant: Hashable, item: _FairThreadTask) -> None:
        begun = time.thread_time()
        try:
            item.run()
        except Exception as error:
            item.failed(as_failure(error))
        spent, now = time.thread_time() - begun, time.monotonic()
        self._accounts.of(tenant, now).charge(now, spent)

    def _next(self) -> tuple[Hashable, _FairThreadTask] | None:
        """The first task of the next tenant that has not overdrawn its account; None when the thread is closed."""
        with self._changed:
            while not self._closing:
                now = time.monotonic()
                waits = {tenant: self._accounts.of(tenant, now).wait(now) for tenant in self._waiting}
                ready = next((tenant for tenant, wait in waits.items() if not wait), None)
                if ready is not None:
                    return ready, self._take(ready)
                self._changed.wait(min(waits.values(), default=None))
            return None

    def _take(self, tenant: Hashable) -> _FairThreadTask:
        task = self._waiting.take(tenant)
        self._sizes[tenant] -= task.size
        if not self._sizes[tenant]:
            del self._sizes[tenant]
        return task


# --- format_line
# A thread that compiles the formats of answers: devices take turns, and none takes more of it than its share.

FORMAT_LINE_MOST_WAITING: Final = 64  # answers of one device
# What one device may have of the thread: two costly schemas at once, then one in ten seconds. Most take a fifth of one.
SHARE: Final = 0.25
BURST: Final = 5.0  # seconds
CROWDED: Final = 1.0  # seconds after which a device with too many answers in line may try again
TOO_MUCH = "This device has formats of answers compiled for longer than its share of the time; try again later."

Wanted = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class _FormatLineTask:
    wanted: Wanted
    run: Callable[[Wanted], object]
    failed: Failed


class FormatLine(TurnsThread[_FormatLineTask]):
    """Runs tasks one at a time: each tenant's in their order, the tenants by turns.

    A task that nobody wants any more is forgotten. The time that tasks take is charged to their tenant, unless that is
    None: this daemon's own user. A tenant that has had more than its share gets `NoPlace`, and the others their turns.
    """

    def __init__(self, died: Died | None = None, accounts: Accounts | None = None) -> None:
        self._accounts = accounts or Accounts(SHARE, BURST)
        super().__init__("formats", died)

    def submit(self, tenant: Hashable, wanted: Wanted, run: Callable[[Wanted], object], failed: Failed) -> None:
        """Queue `run`, from any other thread, which is told how to find out whether it is `wanted` still.

        An exception in it is passed to `failed`; see `as_failure`. On a closed line `failed` is called at once.
        """
        with self._changed:
            waiting = self._waiting.keep(tenant, lambda task: task.wanted())
            closing, crowded = self._closing, waiting >= FORMAT_LINE_MOST_WAITING
            if not closing and not crowded:
                self._waiting.add(tenant, _FormatLineTask(wanted, run, failed))
                self._changed.notify()
        if closing:
            failed(AnswerFailed(STOPPING))
        elif crowded:
            failed(NoPlace(CROWDED, TOO_MUCH))

    def _serve(self, tenant: Hashable, item: _FormatLineTask) -> None:
        if not item.wanted():
            return
        began = time.monotonic()
        wait = 0.0 if tenant is None else self._accounts.of(tenant, began).wait(began)
        if wait:
            item.failed(NoPlace(wait, TOO_MUCH))
            return
        self._do(item)
        if tenant is not None:
            now = time.monotonic()
            self._accounts.of(tenant, now).charge(now, now - began)

    def _do(self, task: _FormatLineTask) -> None:
        try:
            task.run(lambda: task.wanted() and not self._closing)
        except Unwanted:
            pass
        except Exception as error:
            task.failed(as_failure(error))
