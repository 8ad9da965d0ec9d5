"""The suite `latency`: per-token latency and TTFT of every method against the link's latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from statistics import median

from scripts.bench.latency import analysis, prediction
from scripts.bench.latency.measure import Answered, measure_demonstration
from scripts.bench.latency.plan import ENTROPIES, LONG, SHORT, SHORT_LONG, Plan
from scripts.bench.measuring import SPREADS, Spread
from scripts.bench.results import Results, draw_spreads

NOTE = (
    f"Over the answers: {SPREADS}. The whole answer is from the request to the last token. Slower hardware is "
    "emulated: each decode step takes at least its floor, longer with context as this model's does, a prompt's tokens "
    "in proportion, and the forward pass still runs. After the first token, what was drafted before it makes the time "
    "smaller than the limit where answers are short."
)

# One for each method.
COLORS = ["gray", "tan", "green", "olive", "brown", "pink", "blue", "cyan", "purple", "dimgray", "red", "gold", "teal"]


def run(results: Results) -> None:
    """Measure, check that the race's tokens are the same everywhere, and draw Fig. 6 and 7."""
    plan = SHORT if results.short else Plan()
    report(results, plan, measured(plan, results.say))


def run_long(results: Results) -> None:
    """The same with answers of 200 tokens, of synthetic models that hesitate: one report for each entropy."""
    for entropy in ENTROPIES[:1] if results.short else ENTROPIES:
        plan = replace(SHORT_LONG if results.short else LONG, entropy=entropy)
        report(results, plan, measured(plan, results.say), f", synthetic model of {entropy:g} nats")


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
    results.samples(f"answers{of}", [asdict(answer) for answer in found])
    results.samples(f"seed{of}", plan.seed)
    results.table(f"Latency by method, link and hardware{of}", analysis.table(found, plan), NOTE)
    results.table(f"Aims{of}", analysis.aims(found, plan))
    predicted = prediction.predict(found, plan)
    results.samples(f"predicted{of}", [asdict(one) for one in predicted])
    results.table(f"The simulator's prediction{of}", prediction.table(predicted), prediction.verdict(predicted))
    if len(plan.legs) > 1:
        _draw(results, found, plan, "per-token", "ms per token, whole answer", lambda cell: cell.whole, limit=True)
        _draw(results, found, plan, "ttft", "ms to the first token", lambda cell: cell.ttft, limit=False)


def _draw(
    results: Results,
    found: Sequence[Answered],
    plan: Plan,
    name: str,
    label: str,
    value: Callable[[analysis.Cell], Spread],
    limit: bool,
) -> None:
    all_cells = analysis.cells(found, plan)
    temperature = plan.legs[0].temperatures[0]
    with results.figure(name, columns=len(plan.floors)) as axes:
        for axis, floors in zip(axes, plan.floors, strict=True):
            for mode, color in zip(plan.modes, COLORS, strict=True):
                points = {
                    rtt: value(cell)
                    for (floor, rtt, t, named), cell in sorted(all_cells.items(), key=lambda item: item[0])
                    if (floor, t, named) == (floors.name, temperature, mode.name)
                }
                style, width = ("-", 2.2) if mode.name.startswith("race") else (":", 1.2)
                if mode.name.startswith("paper"):
                    style = "--"
                if points:
                    options = {"linewidth": width, "color": color, "label": mode.name}
                    draw_spreads(axis, list(points), list(points.values()), style, **options)
            if limit:
                within = [cell.limit for (floor, *_), cell in all_cells.items() if floor == floors.name]
                axis.axhline(median(within), color="black", linewidth=0.7)
            axis.set(title=f"device {floors.device:g} ms, cloud {floors.cloud:g} ms", xlabel="added round trip, ms")
            axis.set_ylim(bottom=0)
        axes[0].set_ylabel(label)
        axes[-1].legend(fontsize="x-small", loc="upper left")
