"""The suites `methods` and `methods-grid`: tokens per second and bytes of methods that draft and verify."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from common.figures import REFERENCE, line_style
from scripts.bench.measuring import INTERVALS, MEDIANS, Table
from scripts.bench.methods.analysis import (
    PREDICTED_AIM,
    Cells,
    aims,
    by_method,
    by_network,
    bytes_table,
    cells,
    grid_table,
    over_streaming,
    table,
    target_alone,
    whole_table,
)
from scripts.bench.methods.measure import Answered, measure
from scripts.bench.methods.plan import (
    AHEAD,
    DSSD,
    DSSD_GOODPUT,
    EAGERLY,
    FAST,
    FULL,
    GRID,
    QSV_FIXED_INDEX,
    QSV_GOODPUT,
    SHORT,
    SHORT_EAGERLY,
    SHORT_WHOLE,
    SLOW,
    TARGET,
    WHOLE,
    Network,
    Part,
    Plan,
    rate_name,
)
from scripts.bench.methods.prediction import ENCRYPTED
from scripts.bench.results import Results, draw_spreads

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = (DSSD[1], DSSD_GOODPUT, QSV_FIXED_INDEX[0], QSV_GOODPUT, AHEAD)
FAMILIES: Final = ("dsd top-k 10", "dssd", "qsv fixed index", "qsv short index", "coupled synchronous", "coupled ahead")
MOST_ALIKE: Final = 1  # networks that a panel would show as points only
BEHIND: Final = "Tokens per second behind the first verdict, which comes with the first token"
PACED: Final = f"{BEHIND}, and measured over predicted time."
BY_METHOD: Final = (
    f"{BEHIND}, {MEDIANS}, and over those of the target alone; bytes per token as reported, with the fast uplink."
)
NOTE: Final = (
    f"{BEHIND}: {MEDIANS} over the seeds; the other columns are medians. The downlink has the uplink's delay and no "
    f"limit of its rate. Bytes are the reported ones; the prediction adds {ENCRYPTED} that encryption costs a message."
)


def run(results: Results) -> None:
    """Measure the plan's cells, print them, the aims and the bytes on the line, and draw both figures."""
    every = report(results, SHORT if results.short else FULL)
    results.table("Methods on the networks of the aims", by_method(every), BY_METHOD)
    results.table("Tokens per second by network", by_network(every), PACED)


def run_grid(results: Results) -> None:
    """The main methods at every rate with every delay, and four pairs of models on two networks."""
    every = report(results, SHORT if results.short else GRID)
    results.table("Tokens per second by rate and delay", grid_table(every), PACED)


def run_whole(results: Results) -> None:
    """Whole answers beside the target's own, streamed over the same link."""
    plan = SHORT_WHOLE if results.short else WHOLE
    found = _measured(plan, results)
    results.samples("answers", found)
    note = (
        f"Answers of {plan.max_tokens} tokens at {rate_name(FAST.rate)}: milliseconds, how many times as fast as the "
        f"target alone, which streams ({MEDIANS} of the ratios by seed), and the first token, later by."
    )
    results.table("Whole answers over streaming", whole_table(cells(found, plan)), note)


def run_eager(results: Results) -> None:
    """Whole answers of eager coupled drafting over streaming, by step of the target, pair of models and distance."""
    rows: dict[tuple[object, ...], dict[str, str]] = {}
    answers: list[Answered] = []
    for plan in SHORT_EAGERLY if results.short else EAGERLY:
        found = _measured(plan, results)
        answers += found
        for (overlap, network), faster in over_streaming(cells(found, plan)).items():
            rows.setdefault((f"{plan.verify_ms:g} ms", overlap), {})[f"{network.delay:g} ms"] = faster
    results.samples("answers", answers)
    delays = list(dict.fromkeys(delay for row in rows.values() for delay in row))
    results.table(
        "Eager answers over streaming",
        Table(["step of the target", "overlap", *delays], [[*key, *row.values()] for key, row in rows.items()]),
        "How many times as fast as the target alone, which streams its answer, by one-way delay: whole answers, "
        f"{MEDIANS} of the ratios by seed; and the milliseconds by which the first token is later.",
    )


def _measured(plan: Plan, results: Results) -> list[Answered]:
    return [answer for part in plan.parts for answer in measure(part, plan, results.say)]


def report(results: Results, plan: Plan) -> Cells:
    """Measure everything in `plan`, and show it; returns the cells."""
    found = _measured(plan, results)
    results.samples("answers", found)
    results.samples("floors", {"draft_ms": plan.draft_ms, "verify_ms": plan.verify_ms})
    every = cells(found, plan)
    results.table("Methods that draft and verify", table(every), NOTE)
    slow = next(iter(plan.parts[0].modes))
    line = "On the line there are the question, passages, probes and encryption, too."
    results.table(f"Bytes per token at {slow.name}", bytes_table(every, plan.parts[0].overlap, slow), line)
    results.table("Aims", aims(every, SLOW, FAST))
    for part in {part.overlap: part for part in reversed(plan.parts)}.values():  # the first of each pair
        draw_speed(results, every, part)
    draw_predictions(results, every)
    return every


def draw_speed(results: Results, every: Cells, part: Part) -> None:
    """Tokens per second by one-way delay, a panel for each rate, and by rate at the delay that has the most of them."""
    by_rate: dict[float, list[Network]] = {}
    by_delay: dict[float, list[Network]] = {}
    for network in sorted(part.modes):
        by_rate.setdefault(network.rate, []).append(network)
        by_delay.setdefault(network.delay, []).append(network)
    rows = [(rate_name(rate), networks) for rate, networks in by_rate.items() if len(networks) > MOST_ALIKE]
    delay, at_delay = max(by_delay.items(), key=lambda one: len(one[1]))
    columns = len(rows) + (len(at_delay) > MOST_ALIKE)
    if not columns:
        return
    title = f"Tokens per second by method, overlap {part.overlap:g}: medians and their {INTERVALS}"
    with results.figure(f"tokens-per-second-{part.overlap:g}", columns, title=title) as panels:
        for axis, (name, networks) in zip(panels, rows, strict=False):
            _draw(axis, every, part, networks, [network.delay for network in networks])
            axis.set_title(f"uplink {name}")
            axis.set_xlabel("one-way delay, ms")
        if len(at_delay) > MOST_ALIKE:
            axis = panels[-1]
            _draw(axis, every, part, at_delay, [network.rate for network in at_delay])
            axis.set_xscale("log")
            axis.set_title(f"{delay:g} ms one way")
            axis.set_xlabel("uplink, kb/s")
        panels[0].set_ylabel("tokens per second")


def _draw(axis: Axes, every: Cells, part: Part, networks: Sequence[Network], places: Sequence[float]) -> None:
    for number, mode in enumerate(DRAWN):
        found = [
            (place, every[part.overlap, network, mode.name].per_second)
            for place, network in zip(places, networks, strict=True)
            if (part.overlap, network, mode.name) in every
        ]
        if found:
            draw_spreads(axis, [place for place, _ in found], [spread for _, spread in found], number, mode.name)
    alone = target_alone(every, part.overlap)
    if alone is not None:
        axis.axhline(alone, label=TARGET.name, **REFERENCE)
    axis.set_ylim(bottom=0)


def draw_predictions(results: Results, every: Cells) -> None:
    """Every cell's measured time against the predicted one."""
    with results.figure("predicted", title="Milliseconds per token by the formulas, and measured") as (axis,):
        for number, family in enumerate(FAMILIES):
            points = [
                (cell.predicted, cell.middle(lambda one: one.per_token))
                for cell in every.values()
                if cell.mode.family == family
            ]
            if points:
                style = line_style(number) | {"linestyle": "none"}
                axis.plot(*zip(*points, strict=True), label=family, **style)
        _, most = axis.get_xlim()
        for factor in (1.0, 1.0 - PREDICTED_AIM, 1.0 + PREDICTED_AIM):
            axis.plot([0, most], [0, factor * most], **REFERENCE | {"linewidth": 1.0 if factor == 1.0 else 0.5})
        axis.set_xlabel("predicted, ms per token")
        axis.set_ylabel("measured, ms per token")
