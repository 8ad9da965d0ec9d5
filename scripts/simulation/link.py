"""A simulated one-way link that delays, reorders, drops and repeats what it carries."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from scripts.simulation.clock import Clock

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fate:
    """Fate of one message: copies arrive after these delays (seconds); none means that it is lost."""

    delays: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outage:
    """Nothing that is sent in [start, end) arrives."""

    start: float
    end: float


@dataclass(slots=True)
class SimulatedLink(Generic[T]):
    """One direction. `fate` is asked once per message; `ordered` keeps the order of arrival, as TCP does."""

    clock: Clock
    deliver: Callable[[T], None]
    fate: Callable[[T], Fate]
    ordered: bool = True
    outages: tuple[Outage, ...] = ()
    sent: int = 0
    _last: float = field(default=0.0)

    def send(self, message: T) -> None:
        self.sent += 1
        now = self.clock.now
        if any(outage.start <= now < outage.end for outage in self.outages):
            return
        for delay in self.fate(message).delays:
            arrival = now + delay
            if self.ordered:
                arrival = max(arrival, self._last)
                self._last = arrival
            self.clock.after(arrival - now, lambda: self.deliver(message))
