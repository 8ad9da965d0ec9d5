"""Proposals of one length: what the published methods do."""

from __future__ import annotations

from collections.abc import Sequence

from common.draft_policy.values import Outcome, Plan, RoundTimes


class Fixed:
    """The same plan in every round."""

    def __init__(self, length: int, resolution: int | None = None) -> None:
        self._plan = Plan(length, resolution)

    def plan(self, confidences: Sequence[float], times: RoundTimes) -> Plan:
        return self._plan

    def goes_on(self, confidence: float, drafted: int) -> bool:
        return True

    def observe(self, outcome: Outcome) -> None:
        """Nothing changes it."""
