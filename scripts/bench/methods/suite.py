"""The suites `methods` and `methods-grid`: tokens per second and bytes of methods that draft and verify."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from common.figures import REFERENCE, line_style
from scripts.bench.measuring import INTERVALS, MEDIANS, Spread
from scripts.bench.methods import analysis
from scripts.bench.methods.analysis import PREDICTED_AIM, target_alone
from scripts.bench.methods.measure import measure
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
    TARGET,
    WHOLE,
    Plan,
    rate_name,
)
from scripts.bench.methods.prediction import foreseen
from scripts.bench.results import Results
from scripts.bench.rows import Row, groups, lines, values, where

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


def run(results: Results) -> None:
    """Measure the plan's settings, print them, the aims and the bytes on the line, and draw both figures."""
    rows = report(results, SHORT if results.short else FULL)
    results.table("Methods on the networks of the aims", analysis.by_method(rows), BY_METHOD)
    results.table("Tokens per second by network", analysis.by_network(rows), PACED)


def run_grid(results: Results) -> None:
    """The main methods at every rate with every delay, and four pairs of models on two networks."""
    rows = report(results, SHORT if results.short else GRID)
    results.table("Tokens per second by rate and delay", analysis.grid_table(rows), PACED)


def run_whole(results: Results) -> None:
    """Whole answers beside the target's own, streamed over the same link."""
    plan = SHORT_WHOLE if results.short else WHOLE
    note = (
        f"Answers of {plan.max_tokens} tokens at {rate_name(FAST.rate)}: milliseconds, how many times as fast as the "
        f"target alone, which streams ({MEDIANS} of the ratios by seed), and the first token, later by."
    )
    results.table("Whole answers over streaming", analysis.whole_table(measured(results, [plan])), note)


def run_eager(results: Results) -> None:
    """Whole answers of eager coupled drafting over streaming, by step of the target, pair of models and distance."""
    rows = measured(results, SHORT_EAGERLY if results.short else EAGERLY)
    results.table(
        "Eager answers over streaming",
        analysis.eager_table(rows),
        "How many times as fast as the target alone, which streams its answer, by one-way delay: whole answers, "
        f"{MEDIANS} of the ratios by seed; and the milliseconds by which the first token is later.",
    )


def measured(results: Results, plans: Sequence[Plan]) -> list[Row]:
    """The rows of all plans, which differ in the step of the target."""
    cases = [{"step": plan.verify_ms, "part": number} for plan in plans for number in range(len(plan.parts))]

    def ask(case: Row) -> Iterator[Row]:
        (plan,) = [plan for plan in plans if plan.verify_ms == case["step"]]
        return iter(measure(plan.parts[case["part"]], plan, results.say))

    return results.measured(cases, ask)


def report(results: Results, plan: Plan) -> list[Row]:
    """Measure everything in `plan`, and show it; returns the rows."""
    rows = foreseen(measured(results, [plan]), plan)
    results.table("Aims", analysis.aims(rows))
    for those in groups(rows, "overlap").values():
        draw_speed(results, [row for row in those if row["rate"]])
    draw_predictions(results, rows)
    return rows


def draw_speed(results: Results, rows: list[Row]) -> None:
    """Tokens per second by one-way delay, a panel for each rate, and by rate at the delay that has the most of them."""
    overlap = rows[0]["overlap"]
    rows = sorted(rows, key=lambda row: (row["delay"], row["rate"]))
    delays = {rate: those for (rate,), those in groups(rows, "rate").items() if _places(those, "delay") > MOST_ALIKE}
    delay, at_delay = max(((at, those) for (at,), those in groups(rows, "delay").items()), key=_rates)
    several = _places(at_delay, "rate") > MOST_ALIKE
    if not len(delays) + several:
        return
    title = f"Tokens per second by method, overlap {overlap:g}: medians and their {INTERVALS}"
    with results.figure(f"tokens-per-second-{overlap:g}", len(delays) + several, title=title) as panels:
        for axis, (rate, those) in zip(panels, delays.items(), strict=False):
            _draw(axis, those, "delay", target_alone(rows, overlap))
            axis.set_title(f"uplink {rate_name(rate)}")
            axis.set_xlabel("one-way delay, ms")
        if several:
            axis = panels[-1]
            _draw(axis, at_delay, "rate", target_alone(rows, overlap))
            axis.set_xscale("log")
            axis.set_title(f"{delay:g} ms one way")
            axis.set_xlabel("uplink, kb/s")
        panels[0].set_ylabel("tokens per second")


def _places(rows: list[Row], field: str) -> int:
    return len({row[field] for row in rows})


def _rates(at: tuple[float, list[Row]]) -> int:
    return _places(at[1], "rate")


def _draw(axis: Axes, rows: list[Row], x: str, alone: float | None) -> None:
    lines(axis, rows, x, "per_second", "mode", {mode.name: number for number, mode in enumerate(DRAWN)})
    if alone is not None:
        axis.axhline(alone, label=TARGET.name, **REFERENCE)
    axis.set_ylim(bottom=0)


def draw_predictions(results: Results, rows: Sequence[Row]) -> None:
    """Every setting's measured time against the predicted one."""
    with results.figure("predicted", title="Milliseconds per token by the formulas, and measured") as (axis,):
        for number, family in enumerate(FAMILIES):
            found = analysis.cells(where(rows, family=family)).values()
            points = [[Spread.of(values(those, of)).median for of in ("predicted", "per_token")] for those in found]
            if points:
                style = line_style(number) | {"linestyle": "none"}
                axis.plot(*zip(*points, strict=True), label=family, **style)
        _, most = axis.get_xlim()
        for factor in (1.0, 1.0 - PREDICTED_AIM, 1.0 + PREDICTED_AIM):
            axis.plot([0, most], [0, factor * most], **REFERENCE | {"linewidth": 1.0 if factor == 1.0 else 0.5})
        axis.set_xlabel("predicted, ms per token")
        axis.set_ylabel("measured, ms per token")
