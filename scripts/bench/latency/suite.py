"""The suite `latency`: per-token latency and TTFT of every method against the link's latency."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

from common.figures import REFERENCE
from scripts.bench.latency import analysis
from scripts.bench.latency.measure import measured
from scripts.bench.latency.plan import ENTROPIES, LONG, PAPER_GREEDY, SHORT, SHORT_LONG, Plan
from scripts.bench.measuring import INTERVALS, MEDIANS, Spread
from scripts.bench.results import Results
from scripts.bench.rows import Row, grid, lines, values, where

# Rows of panels: in each a family of methods, and the number of each one's line; a placement has the same line in every
# panel. The race stands beside the best of the paper's.
FAMILIES = {
    "One side, fetched documents": {"device only": 0, "cloud only": 1, "DRCG/text": 2, "DRCG/KV": 3},
    "Synchronous, the paper's": {
        "DRDG/TW": 3,
        "DRDG/SW": 4,
        "paper/device": 0,
        "paper/cloud": 1,
        "paper/random": 2,
        PAPER_GREEDY.name: 5,
    },
    "The race": {"race/device": 0, "race/greedy": 3, "race/mirrored": 4, PAPER_GREEDY.name: 5},
}
LIMIT = "limit: no network"
MIDDLE = 2.0  # nats, of the model that README tells of


def run(results: Results) -> None:
    """Measure, check that the race's tokens are the same everywhere, and draw Fig. 6 and 7."""
    plan = SHORT if results.short else Plan()
    rows = results.measured(grid(quickest=(True, False)), lambda case: measured(plan, results.say, **case))
    rows = analysis.ordered(rows, plan)
    draw(results, rows, plan)
    far = where(rows, rtt=plan.farthest)
    results.table("Whole answers, ms per token", analysis.by_method(far), "In brackets after the first token.")
    results.table("Ratios after the first token", analysis.ratios(far))
    results.table("Ratios of whole answers", analysis.whole_ratios(far))


def run_long(results: Results) -> None:
    """The same with answers of 200 tokens, of synthetic models that hesitate."""
    plan = SHORT_LONG if results.short else LONG
    entropies = ENTROPIES[:1] if results.short else ENTROPIES

    def ask(case: Row) -> Iterator[Row]:
        return iter(measured(replace(plan, entropy=case["nats"]), results.say, case["quickest"]))

    found = results.measured(grid(nats=entropies, quickest=(True, False)), ask)
    rows = [row for nats in entropies for row in analysis.ordered(where(found, nats=nats), plan)]
    middle = min(entropies, key=lambda nats: abs(nats - MIDDLE))
    results.table("In short: whole answers, ms per token", analysis.in_short(where(rows, nats=middle)), MEDIANS)
    results.table("Whole answers by entropy, ms per token", analysis.by_entropy(rows), MEDIANS)
    results.table("Over the slower side's steps, whole answers", analysis.over_limit(rows), MEDIANS)


def draw(results: Results, rows: Sequence[Row], plan: Plan) -> None:
    """Time per token and time to the first token, against the added round trip: Fig. 6 and 7."""
    drawn = where(rows, temperature=plan.legs[0].temperatures[0])
    for name, what, unit, value in (
        ("per-token", "Time per token of the whole answer", "ms per token", "whole_per_token"),
        ("ttft", "Time to the first token", "ms", "ttft"),
    ):
        title = f"{what} by method: medians and their {INTERVALS}. Every panel has a scale of its own"
        with results.figure(name, columns=len(plan.floors), rows=len(FAMILIES), title=title) as axes:
            for axis, ((family, numbers), floors) in zip(axes, product(FAMILIES.items(), plan.floors), strict=True):
                lines(axis, where(drawn, floors=floors.name), "rtt", value, "mode", numbers)
                if name == "per-token":
                    limit = Spread.of(values(where(rows, floors=floors.name), "limit")).median
                    axis.axhline(limit, label=LIMIT, **REFERENCE)
                axis.set_ylim(bottom=0)
                if floors is plan.floors[0]:
                    axis.set_ylabel(f"{family}\n{unit}")
                if family == next(iter(FAMILIES)):
                    axis.set_title(f"decode: device {floors.device:g} ms, cloud {floors.cloud:g} ms")
            for axis in axes[-len(plan.floors) :]:
                axis.set_xlabel("added round trip, ms")
