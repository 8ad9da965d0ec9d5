"""Results of a suite: tables on the screen and in JSON, rows as JSON lines, pictures beside them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.figures import picture
from scripts.bench.measuring import Table, load, machine
from scripts.bench.rows import Row, measured

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEXT_FOLDER = "DRAGON_BENCH_TEXT"  # names the folder with the texts of suites that measure on real ones


class NoText(RuntimeError):
    """There is no text, or no model of it, to measure on; the sentence says what to do."""


@dataclass
class Results:
    """Collects one suite's run: `<suite>.json`, its rows in `<suite>.jsonl`, figures in `<suite>-<name>.png`."""

    suite: str
    folder: Path
    short: bool = False
    record: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.record |= {"suite": self.suite, "short": self.short, "machine": machine()}
        self.record |= {"tables": {}, "pictures": []}

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
        path.write_text(json.dumps(self.record, indent=1) + "\n")
        return path
