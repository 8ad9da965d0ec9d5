"""Rules without training for the length of proposals: those of published methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from common.draft_policy.values import MOST_LENGTH, Extension, Learner, Outcome, Plan, RoundTimes


class Fixed:
    """The same plan in every round."""

    taught: ClassVar[Sequence[Learner]] = ()

    def __init__(self, length: int, resolution: int | None = None) -> None:
        self._plan = Plan(length, resolution)

    def plan(self, confidences: Sequence[float], times: RoundTimes) -> Plan:
        return self._plan

    def extension(self, confidence: float, drafted: int) -> Extension:
        return "more"

    def observe(self, outcome: Outcome) -> None:
        """Nothing changes it."""


class Heuristic:
    """One token more after a round that was accepted whole, else as many as were accepted.

    At least 1 (nothing accepted would give 0, and no round after it), at most `most`. `first` is the paper's L^1.
    """

    taught: ClassVar[Sequence[Learner]] = ()

    def __init__(self, first: int = 3, resolution: int | None = None, most: int = MOST_LENGTH) -> None:
        if not 1 <= first <= most:
            raise ValueError(f"the first proposal's length must be in 1..{most}, got {first}")
        self._plan = Plan(first, resolution)
        self._most = most

    def plan(self, confidences: Sequence[float], times: RoundTimes) -> Plan:
        return self._plan

    def extension(self, confidence: float, drafted: int) -> Extension:
        return "more"

    def observe(self, outcome: Outcome) -> None:
        length = outcome.accepted if outcome.rejected else outcome.length + 1
        self._plan = Plan(min(max(length, 1), self._most), self._plan.resolution)
