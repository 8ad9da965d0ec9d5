"""The suite `qsv`, after Figs. 3 and 4 of quantize-sample-verify: right answers and token entropy by temperature, the
bias of rounding too late, and tokens per second at both uplinks and at one that changes between them.

Answers are those of the embedded models to questions of their world. Speed is measured on a made-up pair, as in the
suite `methods`: the embedded models' answers are over after three rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np

from common.figures import REFERENCE, bar_style, line_style
from scripts.bench.measuring import INTERVALS, NOTHING, Spread, Table, grouped
from scripts.bench.methods.analysis import Cell, Cells, cells, up
from scripts.bench.methods.measure import measure
from scripts.bench.methods.plan import TARGET, Network, rate_name
from scripts.bench.methods.prediction import chunk
from scripts.bench.qsv.analysis import Answers, Asked, Laws, Ordering, Speeds, orderings
from scripts.bench.qsv.answers import Answer, Town, ask
from scripts.bench.qsv.changing import changing_table, measure_changing
from scripts.bench.qsv.plan import DDQN, FULL, HEURISTIC, LENGTH, QS, RESOLUTIONS, SHORT, SQ, UPLINKS, Sizes
from scripts.bench.qsv.reading import Computed, Models, models
from scripts.bench.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN: Final = (*SQ.values(), *QS.values(), HEURISTIC[64], DDQN)  # beside the target, the reference
VERDICTS: Final = {True: "shows", False: "does not show", None: "open"}
ANSWERS_NOTE: Final = (
    "Share of right answers [95 % interval, Wilson]; entropy: mean -log p of the tokens given, nats [95 %, bootstrap "
    "over questions], p the target's at that temperature. Fixed lengths are {}."
)
LAWS_NOTE: Final = (
    "Computed, behind the beginnings of right answers: means over the questions, of every token and entropies over all "
    "positions. P(right): of the only right answer in its usual tokens, in rounds of {}. TV: total variation between "
    "the law of a drafted token under S-Q and the target's. S-Q: for "
    + " / ".join(f"ℓ {each}" for each in RESOLUTIONS)
    + "."
)


def run(results: Results) -> None:
    """Ask, compute, measure; tables of each, what shows of the paper's orderings, and both pictures."""
    sizes = SHORT if results.short else FULL
    town = Town.draw(sizes.questions)
    given = ask(town, sizes, results.say)
    with models(town, given) as loaded:
        answers = _judged(given, loaded)
        laws = {(each, at): loaded.computed(at, each) for each in RESOLUTIONS for at in sizes.computed}
        untold = sum(len(each.pieces) - len(loaded.tokens(each)) for each in given)
    results.say(f"{untold} of {sum(len(each.pieces) for each in given)} tokens can't be told from their text")
    results.samples("answers", given)
    results.samples("laws", [{"resolution": key[0], "temperature": key[1], "law": laws[key]} for key in laws])
    results.table("Answers by temperature", _answers_table(answers), ANSWERS_NOTE.format(LENGTH))
    results.table("Sample, then quantise: what it does to laws", _laws_table(laws), LAWS_NOTE.format(LENGTH))
    speeds = _speeds(results, sizes)
    changed = measure_changing(sizes.changing, results.say)
    results.samples("changing uplink", changed)
    results.table("Uplink of two rates: tokens per second", changing_table(changed, sizes.changing.ways))
    found = orderings(answers, laws, speeds)
    results.table("Orderings of Figs. 3 and 4", _orderings_table(found))
    draw_answers(results, answers, laws)
    draw_speeds(results, speeds)


def _judged(given: Sequence[Answer], loaded: Models) -> Answers:
    return {
        key: Asked(
            tuple(each.right for each in those),
            tuple(tuple(loaded.surprises(each)) for each in those),
            tuple(each.question for each in those),
        )
        for key, those in grouped(given, lambda each: (each.way, each.temperature)).items()
    }


def _speeds(results: Results, sizes: Sizes) -> Speeds:
    (part,) = sizes.speed.parts
    every = cells(measure(part, sizes.speed, results.say), sizes.speed)
    results.samples("speed", [answer for cell in every.values() for answer in cell.answers])
    results.table("Tokens per second at temperature 1", _speeds_table(every))
    return {(network, name): cell.per_second for (_, network, name), cell in every.items()}


def _answers_table(answers: Answers) -> Table:
    columns: dict[str, tuple[float, Callable[[Asked], str]]] = {
        f"right, T = {at:g}": (at, lambda each: _interval(each.share, each.interval)) for at in FULL.temperatures
    }
    columns |= {
        f"nats, T = {at:g}": (at, lambda each: _interval(each.entropy, each.entropy_interval))
        for at in FULL.temperatures[1:]  # where there is none to speak of
    }

    def shown(way: str, column: tuple[float, Callable[[Asked], str]]) -> str | None:
        at, show = column
        return show(answers[way, at]) if (way, at) in answers else None

    return Table.crossed(["way"], {(way,): way for way, _ in answers}, columns, shown)


def _laws_table(laws: Laws) -> Table:
    """Figures of S-Q for all resolutions; those of the target are the same for each."""
    columns: dict[str, Callable[[Sequence[Computed]], str]] = {
        "P(right), target": lambda those: f"{those[0].right['target']:.3f}",
        "S-Q": lambda those: _listed([each.right["S-Q"] for each in those], 3),
        "TV, first token": lambda those: _listed([each.first for each in those], 4),
        "every token": lambda those: _listed([each.every for each in those], 4),
        "entropy, target": lambda those: f"{those[0].entropies[0]:.3f}",
        "of S-Q": lambda those: _listed([each.entropies[1] for each in those], 3),
    }
    temperatures = sorted({at for _, at in laws})
    return Table.crossed(
        ["T"],
        {(f"{at:g}",): [laws[each, at] for each in RESOLUTIONS] for at in temperatures},
        columns,
        lambda those, show: show(those),
    )


def _speeds_table(every: Cells) -> Table:
    """Table of speeds by uplink; figures that are the same for all uplinks are told once."""
    ways = dict.fromkeys(name for _, _, name in every)

    def told(show: Callable[[Cell], str]) -> Callable[[str], str]:
        return lambda way: "; ".join(dict.fromkeys(show(cell) for (*_, name), cell in every.items() if name == way))

    def paced(network: Network) -> Callable[[str], str | None]:
        by_way = {name: cell for (_, at, name), cell in every.items() if at == network}
        return lambda way: by_way[way].per_second.short(1, 0) if way in by_way else None

    columns: dict[str, Callable[[str], str | None]] = {
        "bytes up": told(lambda cell: f"{cell.middle(up):.1f}"),
        "accepted, length": told(_accepted),
        **{f"tokens/s, {rate_name(network.rate)} up": paced(network) for network in UPLINKS},
    }
    return Table.crossed(["way"], {(way,): way for way in ways}, columns, lambda way, show: show(way))


def _accepted(cell: Cell) -> str:
    if cell.mode == TARGET:
        return NOTHING
    length = median(chunk(answer, cell.mode) for answer in cell.answers)
    return f"{cell.middle(lambda one: one.held or 0.0):.2f}, {length:.1f}"


def _listed(values: Sequence[float], digits: int) -> str:
    return " / ".join(f"{value:.{digits}f}" for value in values)


def _orderings_table(found: Sequence[Ordering]) -> Table:
    rows = [[each.figure, each.said, each.found, VERDICTS[each.shows]] for each in found]
    return Table(["Fig.", "ordering", "here", ""], rows)


def _interval(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.2f} [{interval[0]:.2f}-{interval[1]:.2f}]"


def draw_answers(results: Results, answers: Answers, laws: Laws) -> None:
    """Fig. 3: right answers and entropy by temperature, and S-Q's bias."""
    title = "Right answers and token entropy by temperature, with 95 % intervals; S-Q's bias is computed"
    with results.figure("answers", columns=3, title=title) as (right, entropy, bias):
        for number, name in enumerate(way.name for way in (*DRAWN, TARGET)):
            found = {at: each for (way, at), each in answers.items() if way == name}
            if found:
                _line(right, list(found), [(each.share, each.interval) for each in found.values()], number, name)
                values = [(each.entropy, each.entropy_interval) for each in found.values()]
                _line(entropy, list(found), values, number, name)
        for resolution, way in SQ.items():
            at = sorted(temperature for each, temperature in laws if each == resolution)
            style = line_style(DRAWN.index(way))
            bias.plot(at, [laws[resolution, each].every for each in at], label=way.name, **style)
        right.set(ylabel="share of right answers", ylim=(0, 1.03), xlabel="temperature")
        entropy.set(ylabel="nats per token", xlabel="temperature")
        entropy.set_ylim(bottom=0)
        bias.set(ylabel="total variation from the target", xlabel="temperature")
        bias.set_ylim(bottom=0)


def _line(
    axis: Axes, places: Sequence[float], values: Sequence[tuple[float, tuple[float, float]]], number: int, label: str
) -> None:
    style = REFERENCE if label == TARGET.name else line_style(number)
    (line,) = axis.plot(places, [value for value, _ in values], label=label, **style)
    least, most = zip(*(interval for _, interval in values), strict=True)
    axis.fill_between(places, least, most, color=line.get_color(), alpha=0.08, linewidth=0)


def draw_speeds(results: Results, speeds: Speeds) -> None:
    """Fig. 4 at temperature 1: tokens per second of every way at each uplink."""
    networks = list(dict.fromkeys(network for network, _ in speeds))
    ways = list(dict.fromkeys(way for _, way in speeds))
    places = np.arange(len(ways), dtype=float)
    title = f"Tokens per second at temperature 1: medians and their {INTERVALS}"
    with results.figure("speeds", title=title) as (axis,):
        for number, network in enumerate(networks):
            found: list[Spread] = [spread for (each, _), spread in speeds.items() if each == network]
            medians = [each.median for each in found]
            errors = [
                [each.median - each.interval[0] for each in found],
                [each.interval[1] - each.median for each in found],
            ]
            shifted = places + 0.4 * (number - (len(networks) - 1) / 2)
            label = f"uplink {network.rate:g} kb/s"
            axis.barh(shifted, medians, height=0.38, xerr=errors, capsize=2, label=label, **bar_style(number))
        axis.set_yticks(places, ways)
        axis.invert_yaxis()
        axis.set_xlabel("tokens per second")
