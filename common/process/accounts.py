"""Token buckets: rates that are kept, and the seconds of work that each owner, told by its key, is charged for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

OWNERS: Final = 1024  # whose accounts are kept before those that are even are forgotten


class TokenBucket:
    """Allows `rate` per second on average, `burst` at once. The caller brings the clock (seconds). For one thread.

    What can be refused is asked for before (`take`). What work costs is known when it is done (`charge`): then the
    bucket may be overdrawn, and its owner waits until it is even.
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
    """The accounts of all owners, so that whoever comes back, or comes twice, has the one that it had."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._kept: dict[Hashable, TokenBucket] = {}

    def of(self, owner: Hashable, now: float) -> TokenBucket:
        """The account of `owner`. To be asked for anew each time: one that is even is forgotten some day."""
        known = self._kept.get(owner)
        if known is None:
            if len(self._kept) >= OWNERS:
                self._kept = {each: account for each, account in self._kept.items() if not account.full(now)}
            known = self._kept[owner] = TokenBucket(self._rate, self._burst, now)
        return known
