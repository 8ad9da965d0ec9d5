"""Sizes of a suite's run: one plan in full, and a short one that shows that the suite works."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Each suite gives the sizes that it uses. Times are milliseconds, lengths tokens."""

    questions: int = 0  # or answers, where nothing is asked
    tokens: int = 0  # of an answer, at most
    rounds: int = 1  # everything in turn, so many times over: a disturbance hits all alike
    seed: int = 0
    documents: tuple[int, ...] = ()  # per side
    lengths: tuple[tuple[int, ...], ...] = ()  # of the rows of a batch
    temperatures: tuple[float, ...] = ()
    periods: tuple[int, ...] = ()  # of a scorer
    entries: tuple[int, ...] = ()  # K of the race
    vocabularies: tuple[int, ...] = ()
    entropies: tuple[float, ...] = ()  # nats of synthetic distributions
    disagreements: tuple[float, ...] = ()  # standard deviation of each side's noise on their logits
    positions: int = 0  # of each synthetic distribution
    steps: tuple[tuple[float, float], ...] = ()  # of (device, cloud): emulated hardware
    rtts: tuple[float, ...] = ()  # added to the network's own

    def sizes(self) -> dict[str, Any]:
        """The sizes that were given, for the record."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in given.items() if value not in (0, ())}
