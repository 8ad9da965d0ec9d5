"""Work for the engine: one distribution at a time, whose draw is the token."""

from __future__ import annotations

from collections.abc import Sequence

from common.answer.driver import Driver, ModelSeat
from common.answer.values import SideDraft, Work
from tests.common.methods.turns.rules import Rules


def part_of(driver: Driver, rules: Rules) -> ModelSeat[Work]:
    """The part in the engine's work."""

    def drawn(work: Work, drawn: Sequence[SideDraft], seconds: float, now: float) -> Sequence[object]:
        (draft,) = drawn
        return rules.drawn(work, draft.view.token)

    return ModelSeat(driver, rules.work, drawn)
