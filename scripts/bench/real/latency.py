"""Latency of every method with real decode times, beside the slower side's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from scripts.bench.asking import acceptance_text
from scripts.bench.latency.analysis import Cell, cells
from scripts.bench.latency.measure import Answered
from scripts.bench.latency.plan import CLOUD_ONLY, DEVICE_ONLY, Plan
from scripts.bench.measuring import NOTHING, Spread, Table


def table(found: Sequence[Answered], plan: Plan) -> Table:
    """A row for each method at each latency. The slower side's step is what it takes alone for the same question."""
    alone = {
        (answer.rtt, answer.question, answer.temperature, answer.mode): answer.per_token
        for answer in found
        if answer.mode in (DEVICE_ONLY.name, CLOUD_ONLY.name)
    }

    def over_slower(answer: Answered) -> float | None:
        sides = [(answer.rtt, answer.question, answer.temperature, side.name) for side in (DEVICE_ONLY, CLOUD_ONLY)]
        steps = [alone[side] for side in sides if side in alone]
        return answer.whole / answer.tokens / max(steps) if steps else None

    def ratio(cell: Cell) -> str:
        ratios = [ratio for answer in cell.answers if (ratio := over_slower(answer)) is not None]
        return Spread.of(ratios).short(2) if ratios else NOTHING

    def per_token(cell: Cell, of: Callable[[Answered], int]) -> float:
        return sum(map(of, cell.answers)) / sum(answer.tokens for answer in cell.answers)

    columns: dict[str, Callable[[Cell], object]] = {
        "added round trip": lambda cell: f"{cell.rtt:g} ms",
        "method": lambda cell: cell.mode,
        "answers, tokens": lambda cell: f"{len(cell.answers)}, {median(one.tokens for one in cell.answers):g}",
        "whole answer, ms per token": lambda cell: cell.whole.short(),
        "of the slower side's step": ratio,
        "TTFT, ms": lambda cell: cell.ttft.short(),
        "accepted, device / cloud": lambda cell: acceptance_text(cell.answers, NOTHING),
        "bytes per token, up / down": lambda cell: " / ".join(
            f"{per_token(cell, of):.0f}" for of in (lambda one: one.sent, lambda one: one.received)
        ),
        "failed certificates per 1,000 tokens": lambda cell: (
            f"{1e3 * per_token(cell, lambda one: int(one.report['certificate_failures'])):.1f}"
        ),
    }
    return Table.of(cells(found, plan).values(), columns)


def differing(found: Sequence[Answered], plan: Plan) -> tuple[int, int]:
    """Answers of exact methods whose tokens are not those of the first one to the same question, and all of those."""
    exact = {mode.name for mode in plan.modes if mode.exact}
    first: dict[tuple[int, float], tuple[str, ...]] = {}
    others = [answer for answer in found if answer.mode in exact]
    unlike = [
        answer.pieces != first.setdefault((answer.question, answer.temperature), answer.pieces) for answer in others
    ]
    return sum(unlike), len(others)
