"""One style of all pictures: Okabe and Ito's colours, which colour-blind readers tell apart, a marker and a dash of its
own for each line, and keys beside the data.

matplotlib, which nothing but pictures needs, is imported when one is begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE: Final = "#0072B2"
VERMILLION: Final = "#D55E00"
GREEN: Final = "#009E73"
PURPLE: Final = "#CC79A7"
ORANGE: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREY: Final = "#999999"
# In the order of their use. The palette's yellow is too pale for a line on white.
COLORS: Final = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
MARKERS: Final = ("o", "s", "^", "D", "v", "P")
DASHES: Final = (
    "-",
    (0, (5, 1.5)),
    (0, (6, 1.5, 1.5, 1.5)),
    (0, (1.5, 1.5)),
    (0, (9, 2)),
    (0, (3, 1.5, 1, 1.5, 1, 1.5)),
)
HATCHES: Final = ("", "///", "...")
MOST_LINES: Final = len(COLORS)  # of one panel: nobody follows more
REFERENCE: Final[dict[str, Any]] = {"color": "black", "linewidth": 1.0}  # what lines are compared with

DOTS_PER_INCH: Final = 130
PANEL_INCHES: Final = (3.7, 2.7)
MANY_COLUMNS: Final = 4  # from here on, panels are narrower
NARROW: Final = 3.0  # inches
LEAST_WIDTH: Final = 7.0  # inches
TITLE_LETTER: Final = 0.105  # inches of a letter of the figure's title
MARGIN: Final = 1.4  # inches for titles and for the key
LETTER: Final = 0.075  # inches of a key's letter
HANDLE: Final = 0.7  # inches of what stands before a key's text


def line_style(number: int) -> dict[str, Any]:
    """Options of `Axes.plot` for a panel's line of this number. Raises `ValueError` from `MOST_LINES` on."""
    if not 0 <= number < MOST_LINES:
        raise ValueError(f"a panel has {MOST_LINES} lines at most, numbered from 0; line {number} needs another panel")
    return {
        "color": COLORS[number],
        "marker": MARKERS[number],
        "linestyle": DASHES[number],
        "linewidth": 1.6,
        "markersize": 4.5,
        "clip_on": False,  # a marker on the axis is seen whole
    }


def bar_style(number: int) -> dict[str, Any]:
    """Options of `Axes.bar` for one of up to three kinds of bars: a colour and a hatch."""
    return {"color": COLORS[number], "hatch": HATCHES[number], "edgecolor": "white", "linewidth": 0.5}


@contextmanager
def picture(
    path: Path,
    columns: int = 1,
    rows: int = 1,
    *,
    title: str,
    inches: tuple[float, float] | None = None,
    heights: Sequence[float] | None = None,
    share_x: bool = False,
) -> Iterator[list[Axes]]:
    """Axes of a new figure, row by row; at the end of the block it gets its keys and is written to `path` as PNG.

    What has a label is told below the figure if all rows show the same, else beside each row.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches or _inches(columns, rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, height_ratios=heights, sharex=share_x)
    figure.suptitle(fill(title, int(figure.get_figwidth() / TITLE_LETTER)))
    panels = [list(row) for row in grid]
    every = [axis for row in panels for axis in row]
    for axis in every:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3, linewidth=0.6)
        axis.set_axisbelow(True)
    yield every
    for axis in every:
        axis.title.set_fontsize("medium")
    _add_keys(figure, panels)
    figure.savefig(path, format="png", dpi=DOTS_PER_INCH)


def key_beside(axis: Axes, handles: Sequence[Artist], labels: Sequence[str]) -> None:
    """The key of a row of panels, right of its last one."""
    axis.legend(handles, labels, loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize="small", frameon=False)


def _inches(columns: int, rows: int) -> tuple[float, float]:
    width, height = PANEL_INCHES
    if columns >= MANY_COLUMNS:
        width = NARROW
    return max(LEAST_WIDTH, width * columns + MARGIN * (rows > 1)), height * max(rows, 1.2) + MARGIN


def _add_keys(figure: Figure, panels: Sequence[Sequence[Axes]]) -> None:
    keys = [_key(row) for row in panels]
    told = [key for key in keys if key]
    if not told:
        return
    if len(keys) == 1 or (len(told) == len(keys) and all(key.keys() == told[0].keys() for key in told)):
        labels, handles = list(told[0]), list(told[0].values())
        widest = HANDLE + LETTER * max(map(len, labels))
        lines = ceil(len(labels) / max(1, int(figure.get_figwidth() / widest)))
        options: dict[str, Any] = {"ncols": ceil(len(labels) / lines), "fontsize": "small", "frameon": False}
        figure.legend(handles, labels, loc="outside lower center", **options)
        return
    for row, key in zip(panels, keys, strict=True):
        if key:
            key_beside(row[-1], list(key.values()), list(key))


def _key(row: Sequence[Axes]) -> dict[str, Artist]:
    """Signs by their labels."""
    found: dict[str, Artist] = {}
    for axis in row:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return found
