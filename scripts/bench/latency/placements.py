"""The suite `scheduling-link`: placements on a real link, two daemons in the network lab (DRAGON Fig. 8)."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from statistics import median

from scripts.bench.latency.analysis import cells
from scripts.bench.latency.plan import PLACEMENTS, SHORT_PLACEMENTS
from scripts.bench.latency.suite import measured
from scripts.bench.measuring import SPREADS, Spread, Table
from scripts.bench.results import PLACEMENT_LINES, Results, draw_spreads


def run(results: Results) -> None:
    """Ask every strategy in turn with every seed, check that the tokens are the same, and draw the times."""
    plan = SHORT_PLACEMENTS if results.short else PLACEMENTS
    found = measured(plan, results.say)
    results.samples("answers", [asdict(answer) for answer in found])
    at, rows = cells(found, plan), []
    lines: dict[str, list[Spread]] = {mode.name: [] for mode in plan.modes}
    for leg, mode in product(plan.legs, plan.modes):
        here, device = (
            at[plan.floors[0].name, leg.rtt, leg.temperatures[0], name] for name in (mode.name, plan.modes[0].name)
        )
        ratios = [one.per_token / other.per_token for one, other in zip(here.answers, device.answers, strict=True)]
        switches = median(answer.switches for answer in here.answers)
        rows.append(
            [
                f"{leg.rtt:g}",
                mode.name,
                here.whole.text(),
                here.per_token.text(),
                Spread.of(ratios).text(2),
                f"{switches:g}",
            ]
        )
        lines[mode.name].append(here.whole)
    heads = [
        "added RTT, ms",
        "strategy",
        "whole answer, ms per token",
        "after the first",
        "/ device, same seed",
        "switches",
    ]
    note = (
        f"Shown: {SPREADS}. Steps of {plan.floors[0].name} ms, {plan.questions} answers of "
        f"{plan.max_tokens} tokens each, of a synthetic model of {plan.entropy:g} nats."
    )
    results.table("Placements on a real link, race sampler", Table(heads, rows), note)
    title = f"Race by placement: medians of {plan.questions} answers, bands are their 95 % intervals"
    with results.figure("placements", title=title) as (axis,):
        for name, spreads in lines.items():
            draw_spreads(axis, [leg.rtt for leg in plan.legs], spreads, PLACEMENT_LINES[name], name)
        axis.set(xlabel="added round trip, ms", ylabel="ms per token, whole answer")
        axis.set_ylim(bottom=0)
