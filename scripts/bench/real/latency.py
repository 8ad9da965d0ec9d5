"""Latency of every method with real decode times, beside the slower side's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, median

from scripts.bench.latency.analysis import Cell, cells
from scripts.bench.latency.measure import Answered
from scripts.bench.latency.plan import CLOUD_ONLY, DEVICE_ONLY, Plan
from scripts.bench.measuring import Table

HEADS = (
    "added round trip",
    "method",
    "tokens",
    "whole answer, ms per token",
    "after the first",
    "over the slower side alone",
    "TTFT, ms",
    "accepted, device / cloud",
    "bytes per token, up / down",
    "failed certificates per 1,000 tokens",
)


def table(found: Sequence[Answered], plan: Plan) -> Table:
    """One row for each method at each latency."""
    return Table(HEADS, list(_rows(found, plan)))


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


def _rows(found: Sequence[Answered], plan: Plan) -> Iterator[list[object]]:
    known = cells(found, plan)
    for (floors, rtt, temperature, mode), cell in known.items():
        alone = [
            other.per_token.median
            for side in (DEVICE_ONLY, CLOUD_ONLY)
            if (other := known.get((floors, rtt, temperature, side.name)))
        ]
        ratio = f"{cell.per_token.median / max(alone):.2f}" if alone else "–"
        tokens = sum(answer.tokens for answer in cell.answers)
        failures = 1e3 * sum(answer.certificate_failures for answer in cell.answers) / tokens
        yield [
            f"{rtt:g} ms",
            mode,
            f"{median(answer.tokens for answer in cell.answers):g}",
            cell.whole.text(),
            cell.per_token.text(),
            ratio,
            cell.ttft.text(),
            _accepted(cell),
            " / ".join(f"{total / tokens:.0f}" for total in _bytes(cell)),
            f"{failures:.1f}",
        ]


def _accepted(cell: Cell) -> str:
    shares = []
    for side in (0, 1):
        known = [share for answer in cell.answers if (share := answer.acceptance[side]) is not None]
        shares.append(f"{fmean(known):.2f}" if known else "–")
    return " / ".join(shares)


def _bytes(cell: Cell) -> tuple[int, int]:
    """Sent and received."""
    return sum(answer.sent for answer in cell.answers), sum(answer.received for answer in cell.answers)
