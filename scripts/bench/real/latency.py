"""Latency of every method with real decode times, beside the slower side's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from scripts.bench.asking import acceptance_text
from scripts.bench.latency.analysis import Cell, cells
from scripts.bench.latency.measure import Answered
from scripts.bench.latency.plan import CLOUD_ONLY, DEVICE_ONLY, Plan
from scripts.bench.measuring import NOTHING, Table, grouped
from scripts.bench.real.plan import RTTS


def table(found: Sequence[Answered], plan: Plan) -> Table:
    """One row for each method at each latency."""
    every = cells(found, plan)

    def over_alone(cell: Cell) -> str:
        setting = cell.floors.name, cell.rtt, cell.temperature
        alone = [other for side in (DEVICE_ONLY, CLOUD_ONLY) if (other := every.get((*setting, side.name)))]
        slower = max((other.per_token.median for other in alone), default=0.0)
        return f"{cell.per_token.median / slower:.2f}" if alone else "–"

    def per_token(cell: Cell, of: Callable[[Answered], int]) -> float:
        return sum(map(of, cell.answers)) / sum(answer.tokens for answer in cell.answers)

    columns: dict[str, Callable[[Cell], object]] = {
        "added round trip": lambda cell: f"{cell.rtt:g} ms",
        "method": lambda cell: cell.mode,
        "tokens": lambda cell: f"{median(answer.tokens for answer in cell.answers):g}",
        "whole answer, ms per token": lambda cell: cell.whole.text(),
        "after the first": lambda cell: cell.per_token.text(),
        "over the slower side alone": over_alone,
        "TTFT, ms": lambda cell: cell.ttft.text(),
        "accepted, device / cloud": lambda cell: acceptance_text(cell.answers, "–"),
        "bytes per token, up / down": lambda cell: " / ".join(
            f"{per_token(cell, of):.0f}" for of in (lambda one: one.sent, lambda one: one.received)
        ),
        "failed certificates per 1,000 tokens": lambda cell: (
            f"{1e3 * per_token(cell, lambda one: int(one.report['certificate_failures'])):.1f}"
        ),
    }
    return Table.of(every.values(), columns)


def by_question(found: Sequence[Answered], plan: Plan) -> Table:
    """Milliseconds per token of the whole answer, and in brackets after the first token, of every question."""
    every = cells(found, plan)
    by_mode = grouped(every.values(), lambda cell: cell.mode)

    def shown(cell: Cell) -> str:
        whole = ", ".join(f"{answer.whole / answer.tokens:.0f}" for answer in cell.answers)
        return f"{whole} ({', '.join(f'{answer.per_token:.0f}' for answer in cell.answers)})"

    def at(rtt: float) -> Callable[[list[Cell]], str | None]:
        return lambda those: next((shown(cell) for cell in those if cell.rtt == rtt), None)

    def accepted(those: list[Cell]) -> str:
        return acceptance_text([answer for cell in those for answer in cell.answers], NOTHING)

    columns: dict[str, Callable[[list[Cell]], str | None]] = {f"{rtt:g} ms added": at(rtt) for rtt in RTTS}
    columns["accepted, device / cloud"] = accepted
    rows = {(mode,): those for mode, those in by_mode.items()}
    return Table.crossed(["method"], rows, columns, lambda those, show: show(those))


def differing(found: Sequence[Answered], plan: Plan) -> tuple[int, int]:
    """Answers of exact methods whose tokens are not those of the first one to the same question, and all of those.

    In bfloat16 a row's numbers depend a little on the rows that are computed with it.
    """
    exact = {mode.name for mode in plan.modes if mode.exact}
    first: dict[tuple[int, float], tuple[str, ...]] = {}
    others = [answer for answer in found if answer.mode in exact]
    unlike = [
        answer.pieces != first.setdefault((answer.question, answer.temperature), answer.pieces) for answer in others
    ]
    return sum(unlike), len(others)
