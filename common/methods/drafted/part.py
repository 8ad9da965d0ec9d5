"""The engine's part in an answer by rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from common.answer.driver import Driver, Machine, Part
from common.answer.values import Action, Drawn, View, Work


class RoundsMachine(Machine, Protocol):
    """The drafter's or the verifier's state machine."""

    def work(self) -> Work | None: ...

    def drawn(self, work: Work, views: Sequence[View], seconds: float, now: float) -> list[Action]: ...


def rounds_part(driver: Driver, machine: RoundsMachine) -> Part[Work]:
    """The part in which `driver` has the distributions drawn that its `machine` wants."""

    def drawn(work: Work, drawn: Sequence[Drawn], seconds: float, now: float) -> Sequence[object]:
        driver.record.drafted(work.position, [draft.mixing for draft in drawn])
        return machine.drawn(work, [draft.view for draft in drawn], seconds, now)

    return Part(driver, machine.work, drawn)
