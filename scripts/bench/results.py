"""Results of a suite: tables on the screen, raw samples in JSON, pictures beside it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.figures import line_style, picture
from scripts.bench.measuring import Spread, Table, load, machine
from scripts.bench.rows import Row, measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A placement has the same line in every picture; `greedy, Eq. 6` is the paper's.
PLACEMENT_LINES = {"device": 0, "cloud": 1, "random": 2, "greedy": 3, "mirrored": 4, "greedy, Eq. 6": 5}


TEXT_FOLDER = "DRAGON_BENCH_TEXT"  # names the folder with the texts of suites that measure on real ones


class NoText(RuntimeError):
    """There is no text, or no model of it, to measure on; the sentence says what to do."""


@dataclass
class Results:
    """Collects one suite's run. `write` leaves `<folder>/<suite>.json`; figures go to `<folder>/<suite>-<name>.png`."""

    suite: str
    folder: Path
    short: bool = False
    record: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.record |= {"suite": self.suite, "short": self.short, "machine": machine()}
        self.record |= {"tables": {}, "samples": {}, "pictures": []}

    def say(self, sentence: str) -> None:
        """Progress of a long run, on stderr."""
        print(f"[{time.strftime('%H:%M:%S')}] {self.suite}: {sentence}", file=sys.stderr, flush=True)

    def table(self, title: str, table: Table, note: str = "") -> None:
        """Print a table, and keep it."""
        self.record["tables"][title] = {"heads": list(table.heads), "rows": [list(map(str, row)) for row in table.rows]}
        print(f"\n{title}\n\n{table}" + (f"\n\n{note}" if note else ""), flush=True)

    def measured(self, cases: Iterable[Row], ask: Callable[[Row], Iterable[Row]]) -> list[Row]:
        """Returns the rows of all cases, which `<suite>.jsonl` gets, too; goes on with an interrupted run."""
        run = {"suite": self.suite, "short": self.short, "commit": self.record["machine"]["commit"]}
        return measured(cases, ask, self.folder / f"{self.suite}.part.jsonl", run)

    def samples(self, name: str, values: Any) -> None:
        """Raw samples, of which dataclasses become objects in JSON: seeds and settings belong to them."""
        self.record["samples"][name] = values

    @contextmanager
    def figure(self, name: str, columns: int = 1, rows: int = 1, *, title: str) -> Iterator[list[Axes]]:
        """Axes of a new figure, row by row; it gets its keys and is saved at the end of the block."""
        with picture(self.path_of(name), columns, rows, title=title) as axes:
            yield axes

    def path_of(self, name: str) -> Path:
        """Path for the figure of this name, which is one of the run's then."""
        path = self.folder / f"{self.suite}-{name}.png"
        self.record["pictures"].append(path.name)
        return path

    def write(self) -> Path:
        """Write the JSON; returns its path. The rows of an unfinished run become those of a finished one."""
        self.record["load at the end"] = load()
        path = self.folder / f"{self.suite}.json"
        if (part := self.folder / f"{self.suite}.part.jsonl").exists():
            part.replace(self.folder / f"{self.suite}.jsonl")
        path.write_text(json.dumps(self.record, indent=1, default=_plain) + "\n")
        return path


def _plain(value: Any) -> dict[str, Any]:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"samples of {type(value).__name__} have no form in JSON")


def draw_spreads(axes: Axes, places: Sequence[float], spreads: Sequence[Spread], number: int, label: str) -> None:
    """The panel's line of this number: medians over `places`, on a band of their intervals."""
    (line,) = axes.plot(places, [spread.median for spread in spreads], label=label, **line_style(number))
    least, most = zip(*(spread.interval for spread in spreads), strict=True)
    axes.fill_between(places, least, most, color=line.get_color(), alpha=0.15, linewidth=0)
