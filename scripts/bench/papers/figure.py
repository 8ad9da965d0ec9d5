"""A paper's figure or table: what is measured for it, and what the paper claims with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final

from common.figures import line_style
from scripts.bench.results import Results
from scripts.bench.rows import Row, Value, groups, values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLAIM: Final = ("claim", "the paper", "here")


@dataclass(frozen=True, slots=True)
class Claim:
    """One number or order of the paper, and what came out here."""

    what: str
    paper: str
    here: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure or table, and the functions that make it.

    `cases` gives what is measured, in full or in short; `ask` measures a case; `show` makes tables and a picture of all
    rows. `made` says what runs.
    """

    name: str
    made: str
    cases: Callable[[bool], Sequence[Row]]
    ask: Callable[[Results, Row], Iterable[Row]]
    show: Callable[[Results, list[Row]], list[Claim]]


def mean(rows: Iterable[Row], value: Value) -> float:
    """The mean of a field over the rows; NaN of none, so that a short run shows what it lacks."""
    return fmean(found) if (found := values(rows, value)) else float("nan")


def times(more: float, less: float) -> str:
    """Returns the ratio as text."""
    return f"{more / less:.2f}×"


def curves(axis: Axes, rows: Iterable[Row], x: str, value: Value, hue: str) -> None:
    """Draws a line of means over `x` for each value of `hue`."""
    for number, ((name,), those) in enumerate(groups(rows, hue).items()):
        points = sorted((at, mean(found, value)) for (at,), found in groups(those, x).items())
        axis.plot(*zip(*points, strict=True), label=name, **line_style(number))


def labelled(axis: Axes, x: str, y: str, title: str = "") -> None:
    """Names both axes; the upright one begins at 0."""
    axis.set_title(title)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_ylim(bottom=0)
