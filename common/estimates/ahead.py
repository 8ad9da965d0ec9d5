"""Decoding ahead: so many drafts along a side's chain, and branches beside it. Pure.

A prefix that is decoded before it is known to be the answer's brings the answer forward by a step of the slower side.
A branch is decoded where that, times its chance, is more than what it adds to this side's step. What it adds is nothing
as long as this side waits for the other in every step anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

FAINT: Final = 0.01  # chance of a branch that is decoded where it costs nothing

_FIRST: Final = 30.0  # branches per second that a new connection may carry
_MOST: Final = 1_000.0  # more than models of a few milliseconds a step decode
_INFLATED: Final = 1.35  # times the usual round trip; a longer one says that the link is full, or the machine busy
_NOISE: Final = 0.01  # seconds that round trips differ by in any case
_CAREFUL: Final = 1.1  # growth where half of what was too much is reached


@dataclass(frozen=True, slots=True)
class Ahead:
    """Bounds of decoding ahead."""

    drafts: int = 1  # of the chain, beyond the committed prefix; 1 is synchronous
    rows: int = 1  # prefixes of one decode step, at most
    worth: float = inf  # chance that a branch must have at least; more than 1: there are none
    free: int = 0  # branches of one decode step that cost nothing: `FAINT` is enough for them
    room: int = 0  # tokens of branches that the rows hold beside a whole answer

    @property
    def branching(self) -> bool:
        return self.rows > 1 and self.worth <= 1.0


def branches(drafts: int, most: int, own: float, other: float, trip: float, row: float) -> Ahead:
    """Branches beside a chain of `drafts`, in steps of `most` prefixes at most.

    Seconds: `own` and `other` are both sides' decode steps, `trip` is how long a rejection waits for the network, `row`
    what one prefix more adds to this side's step.
    """
    waits = trip + own - other if trip > 0.0 else 2 * own - other  # after a rejection, as the slower side sees it
    slower = max(own, other)
    if drafts < 2 or most < 2 or waits <= 0.0 or row > slower or slower <= 0.0:
        return Ahead(drafts)
    if row <= 0.0:
        return Ahead(drafts, most, FAINT, most)
    return Ahead(drafts, most, max(FAINT, row / slower), int(min(max(0.0, other - own) / row, most)))


class Allowance:
    """Branches per second that a connection carries: more and more, until round trips grow by it.

    A queue is seen late, and is long then. So what was too much once is approached slowly the next time, and what may
    have been too much, as the way has become another one, as well.
    """

    def __init__(self) -> None:
        self.rate = _FIRST
        self._enough = _MOST
        self._next = 0.0
        self._changes = 0

    def observe(self, now: float, trip: float, usual: float, changes: int) -> None:
        """Take in a smoothed round trip and the `usual` one, at `now`, all in seconds, after so many `changes` of the
        way.
        """
        if changes != self._changes:
            self._changes = changes
            self._too_much(min(_FIRST, self.rate))
        if now < self._next:
            return
        self._next = now + max(trip, 0.05)
        if trip > _INFLATED * usual + _NOISE:
            self._too_much(max(1.0, 0.25 * self.rate))
        else:
            self.rate = min(_MOST, self.rate * (2.0 if self.rate < self._enough else _CAREFUL))

    def _too_much(self, rate: float) -> None:
        self._enough = max(_FIRST, 0.5 * self.rate)
        self.rate = rate
