"""Limits that a field of a message carries in its type."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Count:
    """An integer from `least` on and below `limit`; on a tuple, as many items."""

    limit: int
    least: int = 0


@dataclass(frozen=True, slots=True)
class Real:
    """A finite number in [low, high], or 0 where `or_zero`."""

    low: float
    high: float
    or_zero: bool = False

    def allows(self, value: float) -> bool:
        """NaN fails every comparison."""
        return self.low <= value <= self.high or (self.or_zero and value == 0)


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 text of at most `limit` bytes."""

    limit: int


@dataclass(frozen=True, slots=True)
class Bytes:
    """At most `limit` bytes."""

    limit: int
