"""Output of library commands: results on stdout, sentences and progress on stderr.

No output steers the terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from common.library.ingest import Progress as Report
from common.process.log_lines import steers

_FAIR = 40  # readable columns of text


@contextmanager
def progress_bar(what: str, in_bytes: bool) -> Iterator[Report]:
    """Shows a bar on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    counter = DownloadColumn() if in_bytes else TextColumn("{task.completed:.0f}/{task.total:.0f} chunks")
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), counter, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int, path: str, place: str) -> None:
            shown = ", ".join(filter(None, (printable(Path(path).name), place)))
            bar.update(task, completed=done, total=total, description=shown or what)

        yield report


def show_table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Shows a table; a list on narrow terminals, tab-separated lines in a pipe."""
    clean = [tuple(map(printable, row)) for row in rows]
    console = Console()
    if not console.is_terminal:
        for row in clean:
            print("\t".join(row))
        return
    if _fits(headings, clean, console.width):
        table = Table(*(Column(heading, overflow="fold") for heading in headings))
        for row in clean:
            table.add_row(*map(Text, row))
        console.print(table)
        return
    for row in clean:
        console.print(Text(row[0], overflow="fold"))
        grid = Table.grid(Column(no_wrap=True), Column(overflow="fold"), padding=(0, 1))
        for heading, cell in zip(headings[1:], row[1:], strict=True):
            if cell:
                grid.add_row(Text(f"  {heading}"), Text(cell))
        console.print(grid)


def _fits(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]], width: int) -> bool:
    """Whether a table of `width` columns keeps cells whole, except long last ones.

    Gaps and lines take three columns per table column.
    """
    widest = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    return sum(widest[:-1]) + min(widest[-1], _FAIR) + 3 * len(widest) + 1 <= width


def say(text: str) -> None:
    console = Console(stderr=True)
    console.print(Text(printable(text)), soft_wrap=True)


def pluralise(count: int, what: str) -> str:
    """«1 chunk», «2 chunks»."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def printable(text: str) -> str:
    """Replaces terminal controls and line breaks: documents are foreign."""
    return "".join("\ufffd" if steers(character) else character for character in text)
