"""The suite `latency`: per-token latency and TTFT of every method against the link's latency."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median

from common.figures import REFERENCE
from scripts.bench.latency import analysis
from scripts.bench.latency.measure import Answered, measure_demonstration
from scripts.bench.latency.plan import ENTROPIES, LONG, PAPER_GREEDY, SHORT, SHORT_LONG, Plan
from scripts.bench.measuring import INTERVALS, MEDIANS, SPREADS, Spread
from scripts.bench.results import PLACEMENT_LINES, Results, draw_spreads

NOTE = (
    f"Over the answers: {SPREADS}. The whole answer is from the request to the last token. Slower hardware is "
    "emulated: each decode step takes at least its floor, longer with context as this model's does, a prompt's tokens "
    "in proportion, and the forward pass still runs. After the first token, what was drafted before it makes the time "
    "smaller than the limit where answers are short."
)

# Rows of panels: in each a family of methods, and the number of each one's line. The race stands beside the best of the
# paper's.
FAMILIES = {
    "One side, fetched documents": {"device only": 0, "cloud only": 1, "DRCG/text": 2, "DRCG/KV": 3},
    "Synchronous, the paper's": {"DRDG/TW": 3, "DRDG/SW": 4}
    | {f"paper/{name}": PLACEMENT_LINES[name] for name in ("device", "cloud", "random")}
    | {PAPER_GREEDY.name: PLACEMENT_LINES["greedy, Eq. 6"]},
    "The race": {f"race/{name}": PLACEMENT_LINES[name] for name in ("device", "greedy", "mirrored")}
    | {PAPER_GREEDY.name: PLACEMENT_LINES["greedy, Eq. 6"]},
}
LIMIT = "limit: no network"
MIDDLE = 2.0  # nats, of the model that README tells of


def run(results: Results) -> None:
    """Measure, check that the race's tokens are the same everywhere, and draw Fig. 6 and 7."""
    plan = SHORT if results.short else Plan()
    found = measured(plan, results.say)
    report(results, plan, found)
    results.table("Whole answers, ms per token", analysis.by_method(found, plan), "In brackets after the first token.")
    results.table("Ratios after the first token", analysis.ratios(found, plan))
    results.table("Ratios of whole answers", analysis.whole_ratios(found, plan))


def run_long(results: Results) -> None:
    """The same with answers of 200 tokens, of synthetic models that hesitate: one report for each entropy."""
    found = {}
    for entropy in ENTROPIES[:1] if results.short else ENTROPIES:
        plan = replace(SHORT_LONG if results.short else LONG, entropy=entropy)
        found[entropy] = measured(plan, results.say)
        report(results, plan, found[entropy], f", synthetic model of {entropy:g} nats")
    middle = found[min(found, key=lambda entropy: abs(entropy - MIDDLE))]
    results.table("In short: whole answers, ms per token", analysis.in_short(middle, plan), MEDIANS)
    results.table("Whole answers by entropy, ms per token", analysis.by_entropy(found, plan), MEDIANS)
    results.table("Over the slower side's steps, whole answers", analysis.over_limit(found, plan), MEDIANS)


def measured(plan: Plan, say: Callable[[str], None]) -> list[Answered]:
    """The pair with the shortest floors by itself: the processor's own time counts there. The others side by side,
    since long floors leave it idle most of the time.
    """
    first, *others = sorted(plan.floors, key=lambda floors: floors.limit(0.0))
    found = measure_demonstration(first, plan, say)
    with ThreadPoolExecutor(max(len(others), 1)) as pool:
        for part in pool.map(partial(measure_demonstration, plan=plan, say=say), others):
            found += part
    return found


def report(results: Results, plan: Plan, found: Sequence[Answered], of: str = "") -> None:
    """Tables, samples and pictures of all answers; `of` is said in every title."""
    results.samples(f"answers{of}", found)
    results.samples(f"seed{of}", plan.seed)
    results.table(f"Latency by method, link and hardware{of}", analysis.table(found, plan), NOTE)
    if len(plan.legs) > 1:
        draw(results, found, plan)


def draw(results: Results, found: Sequence[Answered], plan: Plan) -> None:
    """Time per token and time to the first token, against the added round trip: Fig. 6 and 7."""
    all_cells = analysis.cells(found, plan)
    whole = "Time per token of the whole answer"
    _draw(
        results,
        all_cells,
        plan,
        "per-token",
        whole,
        "ms per token",
        lambda cell: cell.whole,
        limit=lambda cell: cell.limit,
    )
    _draw(results, all_cells, plan, "ttft", "Time to the first token", "ms", lambda cell: cell.ttft)


def _draw(
    results: Results,
    all_cells: Mapping[tuple[str, float, float, str], analysis.Cell],
    plan: Plan,
    name: str,
    what: str,
    unit: str,
    value: Callable[[analysis.Cell], Spread],
    limit: Callable[[analysis.Cell], float] | None = None,
) -> None:
    temperature = plan.legs[0].temperatures[0]
    title = f"{what} by method: medians and their {INTERVALS}. Every panel has a scale of its own"
    with results.figure(name, columns=len(plan.floors), rows=len(FAMILIES), title=title) as axes:
        for axis, ((family, lines), floors) in zip(axes, product(FAMILIES.items(), plan.floors), strict=True):
            for mode, number in lines.items():
                points = {
                    rtt: value(cell)
                    for (floor, rtt, t, named), cell in sorted(all_cells.items(), key=lambda item: item[0])
                    if (floor, t, named) == (floors.name, temperature, mode)
                }
                if points:
                    draw_spreads(axis, list(points), list(points.values()), number, mode)
            if limit is not None:
                within = [limit(cell) for (floor, *_), cell in all_cells.items() if floor == floors.name]
                axis.axhline(median(within), label=LIMIT, **REFERENCE)
            axis.set_ylim(bottom=0)
            if floors is plan.floors[0]:
                axis.set_ylabel(f"{family}\n{unit}")
            if family == next(iter(FAMILIES)):
                axis.set_title(f"decode: device {floors.device:g} ms, cloud {floors.cloud:g} ms")
        for axis in axes[-len(plan.floors) :]:
            axis.set_xlabel("added round trip, ms")
