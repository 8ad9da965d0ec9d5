"""Threads that a daemon can't serve without, and lines of tasks in which tenants have turns.

When such a thread ends by an exception, the process ends, too, and says so. A daemon that lives and serves nobody is
worse than one that ended: nothing starts it again.
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

Died = Callable[[str, BaseException], None]  # told of the thread's name and of what ended it, on that thread


def end_process(name: str, error: BaseException) -> NoReturn:
    """End the process at once, with one line on stderr; what is on disk is safe at any moment.

    The error is named, but not quoted: its text may repeat what a peer sent.
    """
    _LOG.debug("The failure was:", exc_info=error)
    print(
        f"dragon: the thread {name!r} failed with {type(error).__name__}; the daemon stops.",
        file=sys.stderr,
        flush=True,
    )
    # Not sys.exit: it would end this thread only, and the orderly way down waits for threads, this one among them.
    os._exit(THREAD_DIED)


def vital_thread(run: Callable[[], None], name: str, died: Died | None = None) -> threading.Thread:
    """A daemon thread that runs `run`; `died` is told of the exception that ends it.

    Without `died` the exception goes where those of other threads go. Daemons pass `end_process`.
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
# A line of what waits, in which tenants have turns.

Item = TypeVar("Item")


class ByTurns(Generic[Item]):
    """Items that wait: each tenant's in their order, the tenants by turns. For one thread, or under its caller's
    lock.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[Item]] = {}  # whose turn is next first; none is empty

    def __iter__(self) -> Iterator[Hashable]:
        """The tenants of what waits, whose turn is next first."""
        return iter(self._waiting)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, tenant: Hashable, item: Item) -> None:
        """Put an item behind its tenant's others."""
        self._waiting.setdefault(tenant, deque()).append(item)

    def keep(self, tenant: Hashable, wanted: Callable[[Item], bool]) -> int:
        """Drop what is not wanted of a tenant's; returns how much waits then."""
        items = deque(item for item in self._waiting.get(tenant, ()) if wanted(item))
        if items:
            self._waiting[tenant] = items
        else:
            self._waiting.pop(tenant, None)
        return len(items)

    def take(self, tenant: Hashable) -> Item:
        """The tenant's first item; it has its next turn after all others."""
        items = self._waiting.pop(tenant)
        item = items.popleft()
        if items:
            self._waiting[tenant] = items
        return item


# --- accounts
# Token buckets: rates that are kept, and the seconds of work that each tenant, told by its key, is charged for.

TENANTS: Final = 1024  # whose accounts are kept before those that are even are forgotten


class TokenBucket:
    """Allows `rate` per second on average, `burst` at once. The caller brings the clock (seconds). For one thread.

    What can be refused is asked for before (`take`). What work costs is known when it is done (`charge`): then the
    bucket may be overdrawn, and its tenant waits until it is even.
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
        """Use `amount` of what is allowed; False if it is not: what is refused costs nothing."""
        if not self.allows(now, amount):
            return False
        self.charge(now, amount)
        return True

    def charge(self, now: float, amount: float) -> None:
        """Use `amount`, allowed or not."""
        self._level = self._at(now) - amount
        self._updated = max(now, self._updated)

    def wait(self, now: float) -> float:
        """Seconds until the bucket is even, 0 for now."""
        return max(0.0, -self._at(now) / self._rate)

    def full(self, now: float) -> bool:
        """Whether a new bucket would behave the same, so that this one can be forgotten."""
        return self._at(now) >= self._burst

    def _at(self, now: float) -> float:
        return min(self._burst, self._level + max(0.0, now - self._updated) * self._rate)


class Accounts:
    """The accounts of all tenants, so that whoever comes back, or comes twice, has the one that it had."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._kept: dict[Hashable, TokenBucket] = {}

    def of(self, tenant: Hashable, now: float) -> TokenBucket:
        """The account of `tenant`. To be asked for anew each time: one that is even is forgotten some day."""
        known = self._kept.get(tenant)
        if known is None:
            if len(self._kept) >= TENANTS:
                self._kept = {each: account for each, account in self._kept.items() if not account.full(now)}
            known = self._kept[tenant] = TokenBucket(self._rate, self._burst, now)
        return known


# --- quiet_log
# Log lines that a peer causes: some at once, then one now and then, so that nobody can fill the disk with them.

_LINES_PER_SECOND: Final = 0.2
_LINES_AT_ONCE: Final = 5.0


class QuietLog:
    """Passes lines on to `log`, and says with the next one how many were left out meanwhile."""

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
        """Log a line, which ends without a full stop, at `level`; whether it was."""
        if not self._log.isEnabledFor(level):
            return False
        if not self._lines.take(self._clock()):
            self._untold += 1
            return False
        if self._untold:
            text, arguments = f"{text}; %d more were not told", (*arguments, self._untold)
            self._untold = 0
        self._log.log(level, text, *arguments)
        return True
