"""Flat rows: the samples of a suite, kept as JSON lines, and the tables and pictures that are made of them.

A case says what is measured, and a sample what came of it. A row is both. A suite is its cases, its `ask` and some
tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.figures import line_style
from scripts.bench.measuring import NOTHING, Spread, Table, grouped, share_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]  # numbers, texts, truths and None, by name
Cell = Callable[[list[Row]], object]  # shows some rows; None: there is nothing to show
Value = str | Callable[[Row], float | None]  # a field, or what is computed of a row
Index = Sequence[str] | Mapping[str, str]  # fields, or fields by the heads of their columns


def grid(**axes: Iterable[object]) -> list[Row]:
    """Returns every combination of the axes' values; the last axis changes first."""
    return [dict(zip(axes, point, strict=True)) for point in product(*axes.values())]


def measured(cases: Iterable[Row], ask: Callable[[Row], Iterable[Row]], file: Path, run: Row) -> list[Row]:
    """Returns all rows: every case with the samples that `ask` gives for it.

    `file` gets the rows of a case when the case is done. An interrupted run goes on after its last case, if `run`, the
    file's first line, is the same; otherwise it starts again.
    """
    known = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    if known[:1] != [run]:
        known = [run]
        file.write_text(json.dumps(run) + "\n", "utf-8")
    rows = known[1:]
    for case in cases:
        if not where(rows, **case):
            found = [case | sample for sample in ask(case)]
            with file.open("a", encoding="utf-8") as out:
                out.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found))
            rows += found
    return rows


def where(rows: Iterable[Row], /, **fields: object) -> list[Row]:
    """Returns the rows with these values."""
    return [row for row in rows if fields.items() <= row.items()]


def groups(rows: Iterable[Row], *fields: str) -> dict[tuple[Any, ...], list[Row]]:
    """Returns the rows by their values of these fields, in the order of the first ones."""
    return grouped(rows, lambda row: tuple(row[field] for field in fields))


def values(rows: Iterable[Row], value: Value) -> list[float]:
    """Returns the numbers that rows have, without None."""
    found = [row[value] if isinstance(value, str) else value(row) for row in rows]
    return [number for number in found if number is not None]


def paired(rows: Iterable[Row], base: Iterable[Row], value: Value, *by: str) -> list[tuple[float, float]]:
    """Returns the value of each row with that of the row of `base` that is equal in `by`."""
    others = groups(base, *by)
    pairs = [(row, others[key][0]) for row in rows if (key := tuple(row[field] for field in by)) in others]
    return [(values([row], value)[0], values([other], value)[0]) for row, other in pairs]


def spread(value: Value, digits: int = 0, of_interval: int | None = None, *, tails: bool = False) -> Cell:
    """Shows the median with its interval, as `Spread.short`; with `tails` as `Spread.text`."""

    def shown(rows: list[Row]) -> str | None:
        if not (found := values(rows, value)):
            return None
        return Spread.of(found).text(digits) if tails else Spread.of(found).short(digits, of_interval)

    return shown


def middle(value: Value, form: str = ".0f") -> Cell:
    """Shows the median alone."""
    return lambda rows: f"{Spread.of(found).median:{form}}" if (found := values(rows, value)) else None


def only(cell: Cell, **fields: object) -> Cell:
    """Shows the rows with these values, where there are any."""
    return lambda rows: cell(found) if (found := where(rows, **fields)) else None


def over(base: Iterable[Row], value: Value, *by: str, digits: int = 2) -> Cell:
    """Shows the median ratio to the rows of `base` that are equal in `by`, with its interval."""
    base = list(base)

    def shown(rows: list[Row]) -> str | None:
        ratios = [one / other for one, other in paired(rows, base, value, *by)]
        return Spread.of(ratios).short(digits) if ratios else None

    return shown


def share(field: str, **fields: object) -> Callable[[list[Row]], str]:
    """Shows the share of the rows with these values where `field` is true."""

    def shown(rows: list[Row]) -> str:
        chosen = where(rows, **fields)
        return share_interval(sum(bool(row[field]) for row in chosen), len(chosen))

    return shown


def table(rows: Iterable[Row], index: Index, columns: Mapping[str, Cell]) -> Table:
    """A line for each combination of values that the fields of `index` have, and a cell for each column."""
    heads, fields = _index(index)
    lines = [
        [*map(_text, key), *(_shown(cell(those)) for cell in columns.values())]
        for key, those in groups(rows, *fields).items()
    ]
    return Table([*heads, *columns], lines)


def pivot(
    rows: Iterable[Row],
    index: Index,
    column: str,
    cell: Cell,
    across: Iterable[object] | Mapping[str, object] | None = None,
) -> Table:
    """A line for each combination of values of `index`, and a column for each value of the field `column`.

    `across`: the values that have a column, or values by the heads of their columns; those of the rows if None. A
    column stays where a short run has no rows for it.
    """
    rows = list(rows)
    if isinstance(across, Mapping):
        named = dict(across)
    else:
        those = (row[column] for row in rows) if across is None else across
        named = {_text(value): value for value in those}

    return table(rows, index, {head: only(cell, **{column: value}) for head, value in named.items()})


def lines(axes: Axes, rows: Iterable[Row], x: str, y: Value, hue: str, numbers: Mapping[str, int]) -> None:
    """Draws a panel's lines: medians of `y` over `x` in a band of their intervals, for each value of `hue`.

    `numbers` gives each value the number of its line's style.
    """
    rows = list(rows)
    for name, number in numbers.items():
        points = {at: Spread.of(values(those, y)) for (at,), those in groups(where(rows, **{hue: name}), x).items()}
        if not points:
            continue
        places = sorted(points)
        (line,) = axes.plot(places, [points[at].median for at in places], label=name, **line_style(number))
        least, most = zip(*(points[at].interval for at in places), strict=True)
        axes.fill_between(places, least, most, color=line.get_color(), alpha=0.15, linewidth=0)


def _index(index: Index) -> tuple[list[str], list[str]]:
    return (list(index), list(index.values())) if isinstance(index, Mapping) else (list(index), list(index))


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _shown(found: object) -> object:
    return NOTHING if found is None else found
