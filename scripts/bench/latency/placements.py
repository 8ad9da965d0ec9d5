"""The suite `scheduling-link`: placements on a real link, two daemons in the network lab (DRAGON Fig. 8)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from statistics import median

from scripts.bench.latency.analysis import Cell, cells
from scripts.bench.latency.plan import PLACEMENTS, SHORT_PLACEMENTS
from scripts.bench.latency.suite import measured
from scripts.bench.measuring import MEDIANS, Spread, Table, grouped
from scripts.bench.results import PLACEMENT_LINES, Results, draw_spreads


def run(results: Results) -> None:
    """Ask every strategy in turn with every seed, check that the tokens are the same, and draw the times."""
    plan = SHORT_PLACEMENTS if results.short else PLACEMENTS
    found = measured(plan, results.say)
    results.samples("answers", found)
    at = cells(found, plan)
    floors, temperature = plan.floors[0].name, plan.legs[0].temperatures[0]
    here = [at[floors, leg.rtt, temperature, mode.name] for leg, mode in product(plan.legs, plan.modes)]

    def ratio(cell: Cell) -> str:
        pairs = zip(cell.answers, at[floors, cell.rtt, temperature, "device"].answers, strict=True)
        return Spread.of([one.per_token / other.per_token for one, other in pairs]).short(2)

    def switches(cell: Cell) -> str:
        return f"{median(answer.report['switches'] for answer in cell.answers):g}"

    columns: dict[str, tuple[str, Callable[[Cell], str]]] = {
        mode.name: (mode.name, lambda cell: cell.whole.short()) for mode in plan.modes
    }
    columns |= {f"{name} / device": (name, ratio) for name in ("greedy", "mirrored")}
    columns["switches of greedy"] = ("greedy", switches)
    rows = {(f"{leg.rtt:g} ms",): leg.rtt for leg in plan.legs}
    note = (
        f"Milliseconds per token of the whole answer, {MEDIANS}; ratios of answers with the same seed, after the first "
        f"token. Steps of {plan.floors[0].name} ms, {plan.questions} answers of {plan.max_tokens} tokens each, of a "
        f"synthetic model of {plan.entropy:g} nats."
    )
    table = Table.crossed(
        ["added round trip"], rows, columns, lambda rtt, shown: shown[1](at[floors, rtt, temperature, shown[0]])
    )
    results.table("Placements on a real link, race sampler", table, note)
    title = f"Race by placement: medians of {plan.questions} answers, bands are their 95 % intervals"
    with results.figure("placements", title=title) as (axis,):
        for name, line in grouped(here, lambda cell: cell.mode).items():
            spreads = [cell.whole for cell in line]
            draw_spreads(axis, [cell.rtt for cell in line], spreads, PLACEMENT_LINES[name], name)
        axis.set(xlabel="added round trip, ms", ylabel="ms per token, whole answer")
        axis.set_ylim(bottom=0)
