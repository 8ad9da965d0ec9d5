"""Puts the words of a page into reading order: columns, tables, paragraphs.

Programs write words in any order, so position decides. The order of writing decides only between several readings.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise
from statistics import median
from typing import Final
from unicodedata import bidirectional

from common.library.readers.tables import OF_TEXTS, filled_down, table_text

_HYPHEN: Final = re.compile(r"(?<=\w)[-\u2010\u00ad]\n(?=\w)")  # also typed and soft hyphens
_WITHIN_PARAGRAPH: Final = re.compile(r"(?<![\n.:;!?])\n(?![\n•*\-])")
_APART: Final = 1.0  # letter sizes between words of different columns
_SAME_LINE: Final = 0.4  # overlap of one line, as part of a word's height
_NEW_PARAGRAPH: Final = 1.5  # usual line distances
_HEADING: Final = 1.15  # usual letter sizes
_FEW_ROWS: Final = 3  # least number in a column or table
_FEW_COLUMNS: Final = 3  # in a table without lines
_CROSSING: Final = 0.25  # share of the rows beside a gutter that may cross it
_FILLED: Final = 0.6  # part of a column's width that most lines of prose fill
_LETTERS: Final = 15  # average letters of lines of prose
_MARGIN: Final = 2  # lines above or below a page
_SNAP: Final = 3.0  # points between table lines that count as one
_SHORTEST: Final = 6.0  # points of a table line
MOST_RULES: Final = 3000  # more are a drawing
_EVEN: Final = 0.15  # usual letter sizes
_TALL: Final = 2.5  # usual sizes; anything taller is not a line of text


@dataclass(frozen=True, slots=True)
class Box:
    """An area of a page in points, from the lower left corner."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def height(self) -> float:
        return self.top - self.bottom

    @property
    def middle(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.bottom + self.top) / 2

    def holds(self, other: Box) -> bool:
        """Whether the middle of another box is within."""
        x, y = other.middle
        return self.left <= x <= self.right and self.bottom <= y <= self.top

    def beside(self, other: Box) -> bool:
        """Whether both boxes are on one line."""
        top, bottom = self.top, self.bottom
        common = (top if top < other.top else other.top) - (bottom if bottom > other.bottom else other.bottom)
        return common > _SAME_LINE * (top - bottom) or common > _SAME_LINE * (other.top - other.bottom)


@dataclass(frozen=True, slots=True)
class Word:
    """Letters without a blank; `order` counts in order of writing."""

    box: Box
    text: str
    size: float
    order: int


@dataclass(frozen=True, slots=True)
class Run:
    """Words of a line without separation, or a table with its lines."""

    box: Box
    text: str
    size: float
    order: int
    is_table: bool = False


@dataclass(slots=True)
class Grid:
    """Lines of a table: positions left to right and top down, and all lines."""

    columns: list[float]
    rows: list[float]
    upright: list[Box] = field(default_factory=list)
    level: list[Box] = field(default_factory=list)

    @property
    def box(self) -> Box:
        return Box(self.columns[0], self.rows[-1], self.columns[-1], self.rows[0])

    def cell(self, box: Box) -> tuple[int, int] | None:
        """Row and column of a box; None outside."""
        x, y = box.middle
        if not (self.columns[0] <= x <= self.columns[-1] and self.rows[-1] <= y <= self.rows[0]):
            return None
        column = min(bisect_right(self.columns, x) - 1, len(self.columns) - 2)
        row = next((number for number, below in enumerate(self.rows[1:]) if y >= below), len(self.rows) - 2)
        return row, column

    def parted_from_right(self, row: int, column: int) -> bool:
        """Whether a line is at the right of a cell."""
        y = (self.rows[row] + self.rows[row + 1]) / 2
        x = self.columns[column + 1]
        return any(abs(each.left - x) <= _SNAP and each.bottom <= y <= each.top for each in self.upright)

    def parted_from_below(self, row: int, column: int) -> bool:
        """Whether a line is below a cell."""
        x = (self.columns[column] + self.columns[column + 1]) / 2
        y = self.rows[row + 1]
        return any(abs(each.top - y) <= _SNAP and each.left <= x <= each.right for each in self.level)


class PageReader:
    """Reads pages in order: a table may continue on the next without its headings."""

    def __init__(self) -> None:
        self._columns = list[float]()  # of the table at the end of the last page
        self._headings = list[str]()

    def text_of(self, words: Sequence[Word], rules: Sequence[Box]) -> str:
        """Text of a page with these words and lines, in paragraphs and table rows."""
        if not words:
            return ""
        tables, left = list[Run](), list(words)
        columns, headings = self._columns, self._headings
        self._columns, self._headings = [], []
        for grid in sorted(grids(rules), key=lambda grid: -grid.box.top):
            within = [word for word in left if grid.cell(word.box) is not None]
            rows = _rows_of_table(grid, within)
            if not rows:
                continue
            left = [word for word in left if grid.cell(word.box) is None]
            goes_on = (
                not tables
                and _alike(grid.columns, columns)
                and _few(word for word in left if word.box.bottom > grid.rows[0])
            )
            named = headings if goes_on and rows[0] != headings else []
            text = table_text([named, *rows] if named else rows, OF_TEXTS)
            text = text.partition("\n")[2] if named else text
            tables.append(Run(grid.box, text, 0, min(word.order for word in within), is_table=True))
            if _few(word for word in left if word.box.top < grid.rows[-1]):
                self._columns, self._headings = grid.columns, named or rows[0]
        runs = runs_of(left)
        usual = median([run.size for run in runs for _ in range(len(run.text))] or [10])
        return "\n\n".join(filter(None, _blocks([*runs, *tables], usual)))


def _alike(columns: Sequence[float], others: Sequence[float]) -> bool:
    return len(columns) == len(others) and all(
        abs(one - other) <= _SNAP for one, other in zip(columns, others, strict=True)
    )


def _few(words: Iterable[Word]) -> bool:
    return len(rows_of(runs_of(words))) <= _MARGIN


def heading_of(words: Sequence[Word]) -> str:
    """Words in a page's largest letters; empty if no letters are larger than others."""
    runs = runs_of(words)
    usual = median([run.size for run in runs for _ in range(len(run.text))] or [0])
    large = max((run.size for run in runs if any(map(str.isalpha, run.text))), default=0)
    if large < _HEADING * usual or large == usual:
        return ""
    first = [run for run in runs if run.size > 0.95 * large]
    lines = [" ".join(run.text for run in row) for row in rows_of(first)]
    return " ".join(lines[:_FEW_ROWS])


def runs_of(words: Iterable[Word]) -> list[Run]:
    """Joins consecutive words of a line, in order of writing."""
    groups = list[list[Word]]()
    for word in words:
        last = groups[-1][-1] if groups else None
        if last is not None and _follows(word, last):
            groups[-1].append(word)
        else:
            groups.append([word])
    return [_run(group) for group in groups]


def _follows(word: Word, last: Word) -> bool:
    """Whether a word is beside the previous one, right or (in some scripts) left."""
    box, other = word.box, last.box
    gap = box.left - other.right
    if gap < -last.size:
        gap = other.left - box.right
    return -0.5 * last.size < gap < _APART * word.size and box.beside(other)


def _run(words: Sequence[Word]) -> Run:
    box = _around(word.box for word in words)
    return Run(box, " ".join(word.text for word in words), max(word.size for word in words), words[0].order)


def _around(boxes: Iterable[Box]) -> Box:
    left, bottom, right, top = zip(*((each.left, each.bottom, each.right, each.top) for each in boxes), strict=True)
    return Box(min(left), min(bottom), max(right), max(top))


def rows_of(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs by line, from the top down, each line in reading order."""
    rows = list[list[Run]]()
    for run in sorted(runs, key=lambda run: (-run.box.top, run.box.left)):
        row = next((row for row in rows[-3:] if _in_row(run, row)), None)
        if row is None:
            rows.append([run])
        else:
            row.append(run)
    return [_as_read(row) for row in rows]


def _in_row(run: Run, row: Sequence[Run]) -> bool:
    return not run.is_table and not row[0].is_table and run.box.beside(row[0].box)


def _as_read(row: list[Run]) -> list[Run]:
    leftwards = False
    if not all(run.text.isascii() for run in row):
        letters = [bidirectional(letter) for run in row for letter in run.text]
        leftwards = sum(each in ("R", "AL") for each in letters) > letters.count("L")
    return sorted(row, key=lambda run: -run.box.right if leftwards else run.box.left)


def _blocks(runs: Sequence[Run], usual: float) -> Iterator[str]:
    rows = rows_of(runs)
    gutter = _gutter(rows, usual)
    if gutter is None:
        yield from _leaf(rows, usual)
        return
    for crossing, group in groupby(rows, lambda row: any(run.box.left < gutter < run.box.right for run in row)):
        band = list(group)
        if crossing:
            yield from _leaf(band, usual)
            continue
        above, between, below = _edges(band, gutter, usual)
        sides = [[run for row in between for run in row if (run.box.left > gutter) == right] for right in (False, True)]
        yield from _leaf(above, usual)
        if not all(sides) or not (_in_columns(sides) or all(_is_prose(side) for side in sides)):
            yield from _leaf(between, usual)
        else:
            for side in sides:
                yield from _blocks(side, usual)
        yield from _leaf(below, usual)


def _gutter(rows: Sequence[Sequence[Run]], usual: float) -> float | None:
    """Position of a blank between columns: rows have both sides, few cross it."""
    spans = [[(run.box.left, run.box.right) for run in row] for row in rows]
    if len(rows) < _FEW_ROWS:
        return None
    first = min(left for row in spans for left, _ in row)
    last = max(right for row in spans for _, right in row)
    width = int(last - first) + 1
    if not 0 < width < 20_000:
        return None
    across, before, behind = ([0] * (width + 2) for _ in range(3))
    for row in spans:
        for left, right in row:
            across[int(left - first)] += 1
            across[int(right - first) + 1] -= 1
        before[int(min(right for _, right in row) - first) + 1] += 1  # from here on the row has something at the left
        behind[int(max(left for left, _ in row) - first)] += 1  # up to here the row has something at the right
    covered, lefts = list(accumulate(across)), list(accumulate(before))
    rights = list(accumulate(behind[::-1]))[::-1]
    beside = [min(pair) for pair in zip(lefts, rights, strict=True)]
    enough = max(beside)
    for most in sorted({count for count in covered if count <= _CROSSING * enough} if enough >= _FEW_ROWS else ()):
        fits = [
            rows_beside >= _FEW_ROWS and count <= most <= _CROSSING * rows_beside
            for count, rows_beside in zip(covered, beside, strict=True)
        ]
        stretches = [list(group) for fit, group in groupby(range(width), fits.__getitem__) if fit]
        wide = [each for each in stretches if len(each) >= _APART * usual]
        if wide:
            best = max(wide, key=lambda each: (beside[each[len(each) // 2]], len(each)))
            return first + (best[0] + best[-1] + 1) / 2
    return None


def _edges(
    band: list[list[Run]], gutter: float, usual: float
) -> tuple[list[list[Run]], list[list[Run]], list[list[Run]]]:
    above, below = list[list[Run]](), list[list[Run]]()
    rows = list(band)
    while len(rows) > _FEW_ROWS and _distance(rows[0], rows[1]) > 1.5 * usual:
        above.append(rows.pop(0))
    while len(rows) > _FEW_ROWS and _distance(rows[-2], rows[-1]) > 1.5 * usual:
        below.insert(0, rows.pop())
    return above, rows, below


def _distance(row: Sequence[Run], below: Sequence[Run]) -> float:
    return min(run.box.bottom for run in row) - max(run.box.top for run in below)


def _in_columns(sides: Sequence[Sequence[Run]]) -> bool:
    left, right = sides
    if min(len(left), len(right)) < 2:
        return False
    return max(run.order for run in left) < min(run.order for run in right)


def _is_prose(side: Sequence[Run]) -> bool:
    lines = [run for run in side if not run.is_table]
    if len(lines) < _FEW_ROWS:
        return False
    whole = max(run.box.right for run in lines) - min(run.box.left for run in lines)
    long = sum(run.box.right - run.box.left >= _FILLED * whole for run in lines)
    return long >= _FILLED * len(lines) and sum(len(run.text) for run in lines) >= _LETTERS * len(lines)


def _leaf(rows: Sequence[Sequence[Run]], usual: float) -> Iterator[str]:
    at = 0
    pending = list[list[Run]]()
    while at < len(rows):
        end = _end_of_table(rows, at, usual)
        if end > at:
            yield from _paragraphs(pending, usual)
            pending = []
            yield _without_lines(rows[at:end])
            at = end
        elif (end := _end_of_blocks(rows, at)) > at:
            yield from _paragraphs(pending, usual)
            pending = []
            yield from _paragraphs([row[:1] for row in rows[at:end]], usual)
            yield from _paragraphs([row[1:] for row in rows[at:end]], usual)
            at = end
        else:
            pending.append(list(rows[at]))
            at += 1
    yield from _paragraphs(pending, usual)


def _end_of_blocks(rows: Sequence[Sequence[Run]], start: int) -> int:
    """End of two blocks side by side, such as addresses, written in turn.

    Returns `start` if none begin there.
    """
    end, left, right = start, 0, rows[start][-1].order
    while end < len(rows) and len(rows[end]) == 2 and not any(run.is_table for run in rows[end]):
        first, second = rows[end]
        if end > start and not (left < first.order and right < second.order):
            break
        left, right, end = first.order, second.order, end + 1
    return end if end - start >= 2 and left < rows[start][-1].order else start


def _paragraphs(rows: Sequence[Sequence[Run]], usual: float) -> Iterator[str]:
    distances = [above[0].box.bottom - below[0].box.bottom for above, below in pairwise(rows)]
    normal = median([each for each in distances if each > 0] or [0])
    lines = list[str]()
    for number, row in enumerate(rows):
        if lines and (
            distances[number - 1] > _NEW_PARAGRAPH * max(normal, usual)
            or _is_heading(row, usual) != _is_heading(rows[number - 1], usual)
            or row[0].is_table
        ):
            yield _flowing("\n".join(lines))
            lines = []
        if row[0].is_table:
            yield row[0].text
            continue
        lines.append(" ".join(run.text for run in row))
    if lines:
        yield _flowing("\n".join(lines))


def _is_heading(row: Sequence[Run], usual: float) -> bool:
    return row[0].size > _HEADING * usual


def _end_of_table(rows: Sequence[Sequence[Run]], start: int, usual: float) -> int:
    if len(rows[start]) < _FEW_COLUMNS:
        return start
    columns, end = list[tuple[float, float]](), start
    full = 0
    for end in range(start, len(rows) + 1):
        if end == len(rows) or any(run.is_table or run.box.height > _TALL * usual for run in rows[end]):
            break
        if end > start and _distance(rows[end - 1], rows[end]) > 2 * usual:
            break
        spans = [(run.box.left, run.box.right) for run in rows[end]]
        merged = _merged([*columns, *spans])
        if len(merged) < max(_FEW_COLUMNS, len(columns)) or (
            len(spans) < 2 and end > start and not _fits(spans, columns)
        ):
            break
        if any(len(set(_places(row, merged))) < len(row) for row in [*rows[start:end], rows[end]]):
            break
        columns = merged
        full += len(spans) >= _FEW_COLUMNS
    while end > start and len(rows[end - 1]) < 2:  # the text after a table is not part of it
        end -= 1
    return end if full >= _FEW_ROWS and not _is_justified(rows[start:end], usual) else start


def _is_justified(rows: Sequence[Sequence[Run]], usual: float) -> bool:
    """Whether the words of each line are equally far apart, and otherwise in other lines.

    Narrow columns of justified prose look like tables.
    """
    gaps = [[right.box.left - left.box.right for left, right in pairwise(row)] for row in rows if len(row) > 2]
    even = [each[0] for each in gaps if max(each) - min(each) < _EVEN * usual]
    return len(even) > _FILLED * len(gaps) and max(even) - min(even) > 2 * _EVEN * usual


def _fits(spans: Sequence[tuple[float, float]], columns: Sequence[tuple[float, float]]) -> bool:
    return all(any(left <= start and end <= right for left, right in columns) for start, end in spans)


def _merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    found = list[tuple[float, float]]()
    for left, right in sorted(spans):
        if found and left < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], right)
        else:
            found.append((left, right))
    return found


def _places(row: Sequence[Run], columns: Sequence[tuple[float, float]]) -> list[int]:
    starts = [left for left, _ in columns]
    return [bisect_right(starts, run.box.left) - 1 for run in row]


def _without_lines(rows: Sequence[Sequence[Run]]) -> str:
    columns = _merged((run.box.left, run.box.right) for row in rows for run in row)
    cells = list[list[str]]()
    for row in rows:
        values = [""] * len(columns)
        for place, run in zip(_places(row, columns), row, strict=True):
            values[place] = " ".join(filter(None, (values[place], run.text)))
        cells.append(values)
    return table_text(cells, OF_TEXTS)


def _rows_of_table(grid: Grid, words: Sequence[Word]) -> list[list[str]]:
    count_of_rows, count_of_columns = len(grid.rows) - 1, len(grid.columns) - 1
    origin = _origins(grid)
    held = dict[tuple[int, int], list[Word]]()
    for word in words:
        place = grid.cell(word.box)
        if place is not None:
            held.setdefault(origin[place], []).append(word)
    if len({column for _, column in held}) < 2 or (len({row for row, _ in held}) < 2 and count_of_rows > 1):
        return []
    rows, spans = list[list[str]](), dict[tuple[int, int], int]()
    for row in range(count_of_rows):
        cells = [held.get((row, column), []) for column in range(count_of_columns)]
        for column in range(count_of_columns):
            tall = sum(origin[below, column] == (row, column) for below in range(row, count_of_rows))
            if tall > 1:
                spans[len(rows), column] = tall
        rows += _lines_of_cells(cells)
    return list(filled_down(rows, spans))


def _origins(grid: Grid) -> dict[tuple[int, int], tuple[int, int]]:
    origin = dict[tuple[int, int], tuple[int, int]]()
    for row in range(len(grid.rows) - 1):
        for column in range(len(grid.columns) - 1):
            if column and not grid.parted_from_right(row, column - 1):
                origin[row, column] = origin[row, column - 1]
            elif row and not grid.parted_from_below(row - 1, column):
                origin[row, column] = origin[row - 1, column]
            else:
                origin[row, column] = row, column
    return origin


def _lines_of_cells(cells: Sequence[Sequence[Word]]) -> list[list[str]]:
    lines = [rows_of(runs_of(words)) for words in cells]
    counts = {len(each) for each in lines if each}
    if len(counts) == 1 and min(counts) >= _FEW_ROWS and sum(map(bool, lines)) > 1:
        filled = [each for each in lines if each]
        if all(row[0].box.beside(filled[0][number][0].box) for each in filled for number, row in enumerate(each)):
            return [
                [" ".join(run.text for run in each[number]) if each else "" for each in lines]
                for number in range(counts.pop())
            ]
    return [[" ".join(run.text for row in each for run in row) for each in lines]]


def grids(rules: Sequence[Box]) -> list[Grid]:
    """Tables made by straight lines, with at least two columns and two rows."""
    if len(rules) > MOST_RULES:
        return []
    level = _joined([each for each in rules if each.right - each.left >= each.height], upright=False)
    upright = _joined([each for each in rules if each.right - each.left < each.height], upright=True)
    found = list[Grid]()
    for levels, uprights in _crossing(level, upright):
        across = [(each.left, each.right) for each in levels], [each.left for each in uprights]
        down = [(each.bottom, each.top) for each in uprights], [each.top for each in levels]
        columns, rows = _places_of_lines(*across), _places_of_lines(*down)[::-1]
        if len(columns) > 2 and len(rows) > 2:
            found.append(Grid(columns, rows, uprights, levels))
    return found


def _places_of_lines(along: Sequence[tuple[float, float]], at: Sequence[float]) -> list[float]:
    ends = min(start for start, _ in along), max(end for _, end in along)
    first, last = min(at), max(at)
    return _clustered([*at, *(end for end in ends if not first - 3 * _SNAP <= end <= last + 3 * _SNAP)])


def _joined(rules: Sequence[Box], upright: bool) -> list[Box]:
    def along(box: Box) -> tuple[float, float]:
        return (box.bottom, box.top) if upright else (box.left, box.right)

    def at(box: Box) -> float:
        return box.middle[0] if upright else box.middle[1]

    found = list[tuple[float, float, float]]()  # position, from, to
    for where, box in sorted(
        ((at(box), box) for box in rules), key=lambda pair: (round(pair[0] / _SNAP), along(pair[1]))
    ):
        start, end = along(box)
        if found and abs(found[-1][0] - where) <= _SNAP and start <= found[-1][2] + _SNAP:
            found[-1] = found[-1][0], found[-1][1], max(found[-1][2], end)
        else:
            found.append((where, start, end))
    kept = [each for each in found if each[2] - each[1] >= _SHORTEST]
    return [Box(where, start, where, end) if upright else Box(start, where, end, where) for where, start, end in kept]


def _crossing(level: Sequence[Box], upright: Sequence[Box]) -> Iterator[tuple[list[Box], list[Box]]]:
    left = set(range(len(upright)))
    unseen = set(range(len(level)))
    while unseen:
        levels, uprights, pending = [unseen.pop()], list[int](), list[int]()
        pending.append(levels[0])
        while pending:
            number = pending.pop()
            touching = [each for each in left if _touch(level[number], upright[each])]
            left.difference_update(touching)
            uprights += touching
            for each in touching:
                others = [other for other in unseen if _touch(level[other], upright[each])]
                unseen.difference_update(others)
                levels += others
                pending += others
        if uprights and len(levels) > 1:
            yield [level[each] for each in levels], [upright[each] for each in uprights]


def _touch(level: Box, upright: Box) -> bool:
    across = level.left - _SNAP <= upright.left <= level.right + _SNAP
    return across and upright.bottom - _SNAP <= level.top <= upright.top + _SNAP


def _clustered(values: Iterable[float]) -> list[float]:
    found = list[float]()
    for value in sorted(values):
        if not found or value - found[-1] > _SNAP:
            found.append(value)
    return found


def _flowing(text: str) -> str:
    return _WITHIN_PARAGRAPH.sub(" ", _HYPHEN.sub(_joined_word, text))


def _joined_word(hyphen: re.Match[str]) -> str:
    text = hyphen.string
    return "" if text[hyphen.start() - 1].islower() and text[hyphen.end()].islower() else "-"
