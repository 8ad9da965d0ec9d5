"""Sizes of a suite's run: one plan in full, and a short one that shows that the suite works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Each part of the suite `engine` gives the sizes that it uses. Times are milliseconds, lengths tokens."""

    questions: int = 0
    tokens: int = 0  # of an answer, at most
    rounds: int = 1  # everything in turn, so many times over: a disturbance hits all alike
    seed: int = 0
    lengths: tuple[tuple[int, ...], ...] = ()  # of the rows of a batch
    temperatures: tuple[float, ...] = ()
    vocabularies: tuple[int, ...] = ()
    positions: int = 0  # of each synthetic distribution
