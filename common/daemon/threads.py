"""Threads that serve queues in which tenants take turns."""

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
    """A thread that serves items in order per tenant, and tenants in turns.

    Whoever adds to `_waiting` holds and notifies `_changed`. `__init__` starts the thread, so a subclass sets
    attributes first.
    """

    def __init__(self, name: str, died: Died | None = None) -> None:
        self._waiting = ByTurns[Item]()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = vital_thread(self._run, name, died)
        self._thread.start()

    def close(self) -> None:
        """Drops the waiting items."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    @abstractmethod
    def _serve(self, tenant: Hashable, item: Item) -> None: ...

    def _run(self) -> None:
        while (found := self._next()) is not None:
            self._serve(*found)
            del found  # frees its objects while waiting

    def _next(self) -> tuple[Hashable, Item] | None:
        """Returns None when closed. The returned tenant goes last."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting)
            if self._closing:
                return None
            tenant = next(iter(self._waiting))
            return tenant, self._waiting.take(tenant)


# --- tasks
# A thread for an answer's work besides decoding, e.g. retrieval.

STOPPING = "The daemon is stopping."

Failed = Callable[[Exception], object]  # gets the answer's failure: `AnswerFailed` or `RequestError`

_Task = tuple[Callable[[], object], Failed]


class TaskThread(TurnsThread[_Task]):
    """Runs tasks in order per tenant, and tenants in turns."""

    def submit(self, tenant: Hashable, run: Callable[[], object], failed: Failed) -> None:
        """Queues `run`, from any other thread. `failed` gets its exception; see `as_failure`.

        A closed thread calls `failed` at once.
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
# A thread for work caused by tenants, with bounded shares.

WORK_PER_SECOND: Final = 0.25  # seconds per tenant
WORK_BURST: Final = 0.5  # seconds at once
MOST_WAITING: Final = 2**25  # bytes waiting per tenant
OVERHEAD: Final = 2**10  # bytes counted per task


@dataclass(frozen=True, slots=True)
class _FairThreadTask:
    run: Callable[[], object]
    failed: Failed
    size: int  # bytes


class FairThread(TurnsThread[_FairThreadTask]):
    """Runs tasks in order per tenant, and tenants in turns.

    A tenant whose tasks took too much time waits; the others don't.
    """

    def __init__(self, name: str, died: Died | None = None) -> None:
        self._accounts = Accounts(WORK_PER_SECOND, WORK_BURST)
        self._sizes: dict[Hashable, int] = {}  # that wait
        super().__init__(name, died)

    def submit(self, tenant: Hashable, size: int, run: Callable[[], object], failed: Failed) -> bool:
        """Queues `run` of `size` bytes, from any other thread. Returns False if too much waits.

        `failed` gets its exception; see `as_failure`.
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
        """Skips tenants with overdrawn accounts. Returns None when closed."""
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
# A thread that compiles answers' formats, with bounded shares per device.

FORMAT_LINE_MOST_WAITING: Final = 64  # per device
# Per device: two costly schemas at once, then one per ten seconds. Most cost a fifth of one.
SHARE: Final = 0.25
BURST: Final = 5.0  # seconds
CROWDED: Final = 1.0  # seconds until a refused device may retry
TOO_MUCH = "Compiling answer formats for this device took more than its share of time; try again later."

Wanted = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class _FormatLineTask:
    wanted: Wanted
    run: Callable[[Wanted], object]
    failed: Failed


class FormatLine(TurnsThread[_FormatLineTask]):
    """Runs tasks in order per tenant, and tenants in turns.

    Drops unwanted tasks. Charges time to the tenant, except None, the daemon's user. A tenant above its share gets
    `NoPlace`.
    """

    def __init__(self, died: Died | None = None, accounts: Accounts | None = None) -> None:
        self._accounts = accounts or Accounts(SHARE, BURST)
        super().__init__("formats", died)

    def submit(self, tenant: Hashable, wanted: Wanted, run: Callable[[Wanted], object], failed: Failed) -> None:
        """Queues `run`, from any other thread. `run` gets a function that says whether it is wanted.

        `failed` gets its exception; see `as_failure`. A closed line calls it at once.
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
