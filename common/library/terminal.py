"""Output of library commands: results on stdout, sentences and progress on stderr. None of it steers the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from common.library.ingest import Progress as Report


@contextmanager
def progress_bar(what: str, in_bytes: bool) -> Iterator[Report]:
    """A bar on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    counter = DownloadColumn() if in_bytes else TextColumn("{task.completed:.0f}/{task.total:.0f} chunks")
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), counter, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def report(done: int, total: int, path: str) -> None:
            bar.update(task, completed=done, total=total, description=printable(Path(path).name) or what)

        yield report


def show_table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """A table on a terminal, tab-separated lines in a pipe."""
    console = Console()
    if console.is_terminal:
        table = Table(*headings)
        for row in rows:
            table.add_row(*(Text(printable(cell)) for cell in row))
        console.print(table)
        return
    for row in rows:
        print("\t".join(printable(cell) for cell in row))


def say(text: str) -> None:
    """Print a line on stderr."""
    console = Console(stderr=True)
    console.print(Text(printable(text)), soft_wrap=True)


def number(count: int, what: str) -> str:
    """«1 chunk», «2 chunks»."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def printable(text: str) -> str:
    """`text` without what could steer a terminal or break a line: documents are other people's."""
    return "".join("\ufffd" if _steers(character) else character for character in text)


def _steers(character: str) -> bool:
    control = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
    return control or unicodedata.bidirectional(character) in _REORDERING


# Embeddings, overrides and isolates make text look like another one.
_REORDERING = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
