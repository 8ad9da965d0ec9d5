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
    """A finite number in [low, high]."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 text of at most `limit` bytes."""

    limit: int


@dataclass(frozen=True, slots=True)
class Bytes:
    """At most `limit` bytes."""

    limit: int
