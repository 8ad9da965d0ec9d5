"""Vital threads of a daemon, and fair queues for tenants.

An exception in a vital thread ends the process: a daemon that runs without serving is not restarted.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, NoReturn, TypeVar

THREAD_DIED = 70  # exit code; EX_SOFTWARE of sysexits.h

_LOG = logging.getLogger(__name__)

Died = Callable[[str, BaseException], None]  # called on the thread with its name and error


def end_process(name: str, error: BaseException) -> NoReturn:
    """Ends the process at once with one line on stderr.

    Data on disk is safe at any moment. The error is named but not quoted: its text may repeat a peer's.
    """
    _LOG.debug("The failure was:", exc_info=error)
    print(
        f"dragon: the thread {name!r} failed with {type(error).__name__}; the daemon stops.",
        file=sys.stderr,
        flush=True,
    )
    # sys.exit would end only this thread, and an orderly end waits for all threads including this one.
    os._exit(THREAD_DIED)


def vital_thread(run: Callable[[], None], name: str, died: Died | None = None) -> threading.Thread:
    """A daemon thread for `run`; `died` receives its fatal exception.

    Without `died` the exception is handled as in other threads. Daemons pass `end_process`.
    """

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            if died is None:
                raise
            died(name, error)

    return threading.Thread(target=guarded, name=name, daemon=True)


# --- by_turns

Item = TypeVar("Item")


class ByTurns(Generic[Item]):
    """Waiting items: each tenant's in order, tenants in turn.

    For one thread, or under the caller's lock.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Item]] = {}  # next turn first, without empty queues

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._waiting)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, tenant: Hashable, item: Item) -> None:
        self._waiting.setdefault(tenant, deque()).append(item)

    def keep(self, tenant: Hashable, wanted: Callable[[Item], bool]) -> int:
        """Drops a tenant's unwanted items and returns the number of the others."""
        items = deque(item for item in self._waiting.get(tenant, ()) if wanted(item))
        if items:
            self._waiting[tenant] = items
        else:
            self._waiting.pop(tenant, None)
        return len(items)

    def take(self, tenant: Hashable) -> Item:
        """The tenant's first item; its next turn is after all others."""
        items = self._waiting.pop(tenant)
        item = items.popleft()
        if items:
            self._waiting[tenant] = items
        return item


# --- accounts
# Token buckets: rates, and the work seconds charged to each tenant by key.

TENANTS: Final = 1024  # accounts kept before even ones are forgotten


class TokenBucket:
    """Allows `rate` per second on average and `burst` at once, by the caller's clock.

    Times are in seconds. For one thread. `take` asks before refusable work. `charge` books known costs: it may overdraw
    the bucket, and the tenant waits until it is even.
    """

    __slots__ = ("_burst", "_level", "_rate", "_updated")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._updated = now

    def allows(self, now: float, amount: float = 1.0) -> bool:
        """Whether `amount` more is allowed at `now`."""
        return self._at(now) >= amount

    def take(self, now: float, amount: float = 1.0) -> bool:
        """Uses `amount` if allowed; a refusal (False) costs nothing."""
        if not self.allows(now, amount):
            return False
        self.charge(now, amount)
        return True

    def charge(self, now: float, amount: float) -> None:
        """Uses `amount`, allowed or not."""
        self._level = self._at(now) - amount
        self._updated = max(now, self._updated)

    def wait(self, now: float) -> float:
        """Seconds until the bucket is even; 0 if it is."""
        return max(0.0, -self._at(now) / self._rate)

    def full(self, now: float) -> bool:
        """Whether the bucket equals a new one and can be forgotten."""
        return self._at(now) >= self._burst

    def _at(self, now: float) -> float:
        return min(self._burst, self._level + max(0.0, now - self._updated) * self._rate)


class Accounts:
    """Accounts of all tenants, kept across repeated and parallel connections."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._kept: dict[Hashable, TokenBucket] = {}

    def of(self, tenant: Hashable, now: float) -> TokenBucket:
        """The account of `tenant`; ask again each time, since even ones are forgotten."""
        known = self._kept.get(tenant)
        if known is None:
            if len(self._kept) >= TENANTS:
                self._kept = {each: account for each, account in self._kept.items() if not account.full(now)}
            known = self._kept[tenant] = TokenBucket(self._rate, self._burst, now)
        return known


# --- quiet_log

_LINES_PER_SECOND: Final = 0.2
_LINES_AT_ONCE: Final = 5.0


class QuietLog:
    """Limits the rate of lines to `log`: peers cannot fill the disk.

    The next line reports the number of omitted ones.
    """

    def __init__(
        self,
        log: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
        rate: float = _LINES_PER_SECOND,
        burst: float = _LINES_AT_ONCE,
    ) -> None:
        self._log = log
        self._clock = clock
        self._lines = TokenBucket(rate, burst, clock())
        self._untold = 0

    def tell(self, level: int, text: str, *arguments: object) -> bool:
        """Logs a line without a full stop at `level`; False if omitted."""
        if not self._log.isEnabledFor(level):
            return False
        if not self._lines.take(self._clock()):
            self._untold += 1
            return False
        if self._untold:
            text, arguments = f"{text}; %d more were not logged", (*arguments, self._untold)
            self._untold = 0
        self._log.log(level, text, *arguments)
        return True
