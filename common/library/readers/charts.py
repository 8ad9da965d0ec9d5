"""Charts and diagrams of Office as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from typing import Any, Final

from common.library.readers.content import parse_whole_number
from common.library.readers.tables import table_text

DRAWING: Final = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
DIAGRAM: Final = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
OF_OUTLINE: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}dm"
_DIGITS: Final = 15  # significant digits of spreadsheet numbers
CHART: Final = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"


def of_chart(root: Any) -> Iterator[str]:
    """Title and data table of a chart, given the root of its part."""
    title = root.find(f"{CHART}chart/{CHART}title/{CHART}tx/{CHART}rich")
    if title is not None:
        yield "\n".join(_paragraphs(title))
    area = root.find(f"{CHART}chart/{CHART}plotArea")
    for plot in () if area is None else area:
        yield from _of_plot(plot)


def _of_plot(plot: Any) -> Iterator[str]:
    series = list(plot.iterchildren(CHART + "ser"))
    categories = next(filter(None, (_points(each, "cat") for each in series)), {})
    for first, several in groupby(series, lambda each: _points(each, "xVal") or categories):
        columns = [("", first)]
        for each in several:
            name = "".join(_points(each, "tx").values()) or each.findtext(f"{CHART}tx/{CHART}v", "")
            columns += [(name, _points(each, "val", "yVal")), ("", _points(each, "bubbleSize"))]
        names, points = zip(*columns, strict=True)
        rows = sorted(set(chain.from_iterable(points)))
        yield table_text([names, *([column.get(row, "") for column in points] for row in rows)])


def _points(series: Any, *names: str) -> dict[int, str]:
    part = next(series.iterchildren(*(CHART + name for name in names)), None)
    if part is None:
        return {}
    numbers = next(part.iter(CHART + "numCache", CHART + "numLit"), None) is not None
    level = next(part.iter(CHART + "lvl"), part)  # the innermost of nested categories
    values = {
        parse_whole_number(each.get("idx", ""), 0): each.findtext(CHART + "v", "") for each in level.iter(CHART + "pt")
    }
    return {number: _rounded(value) if numbers else value for number, value in values.items()}


def _rounded(number: str) -> str:
    try:
        return f"{float(number):.{_DIGITS}g}"
    except ValueError:  # e.g. a formula error
        return number


def of_diagram(outline: Iterable[Any]) -> Iterator[str]:
    """Texts of a diagram's parts, in outline order."""
    for point in outline:
        yield from _paragraphs(point)


def _paragraphs(element: Any) -> Iterator[str]:
    for paragraph in element.iter(DRAWING + "p"):
        yield "".join(run.text or "" for run in paragraph.iter(DRAWING + "t"))
