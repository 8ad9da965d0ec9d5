"""`dragon profile`: the offline stage of §5.2 for the configured model, printed and kept in the store."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from math import ceil, inf
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from common.configuration.settings import Settings
from common.daemon.offline import OfflineProfile, evenly, keep, no_room, profile
from common.engine.kv.errors import KvAllocationError, KvMemoryFullError
from common.engine.model.configured import load_decoder
from common.engine.model.decoder import Decoder
from common.figures import MOST_LINES, line_style, picture
from common.library.terminal import say
from common.process.private_files import named_by_user

ROWS = (1, 2, 4, 8, 16)
LENGTHS = 6  # context lengths where none are named
LONGEST = 2048  # tokens; answers with their documents are seldom longer, and a prefill of it takes a while
MILLISECONDS, MICROSECONDS = 1e3, 1e6


def run(settings: Settings, rows: Sequence[int], contexts: Sequence[int], repeats: int, png: Path | None) -> None:
    """Measure with each number of documents, print and store; with none given, with those of `ROWS` that have room.
    Raises `ModelError`, `ContextError`, `ValueError` for numbers that can't be measured, `OSError` when something can't
    be written.
    """
    if png is not None:
        _require_matplotlib()
    decoder = load_decoder(settings)
    lengths = sorted(set(contexts)) or evenly(LENGTHS, min(decoder.max_context - 1, LONGEST))
    profiles = []
    for measured in _measured(decoder, sorted(set(rows)) or _with_room(decoder, lengths[-1]), lengths, repeats):
        keep(decoder, measured.rows, measured.line, settings.profiles)
        print(described(measured), flush=True)
        profiles.append(measured)
    if png is not None:
        with named_by_user(png):
            _plot(profiles, png)


def described(measured: OfflineProfile) -> str:
    """The line and what it was fitted to, as text."""
    line = measured.line
    documents = "1 document" if measured.rows == 1 else f"{measured.rows} documents"
    intercept, slope = MILLISECONDS * line.intercept, MICROSECONDS * line.slope
    lines = [
        f"{documents}: {intercept:.2f} ms + {slope:.2f} us per token of context, residual {measured.residual:.1%}",
        f"{'context':>10}{'measured ms':>14}{'fitted ms':>12}",
    ]
    for context, median in measured.pairs:
        lines.append(f"{context:>10}{MILLISECONDS * median:>14.2f}{MILLISECONDS * line.predict(context):>12.2f}")
    return "\n".join(lines) + "\n"


def _with_room(decoder: Decoder, longest: int) -> list[int]:
    """The numbers of `ROWS` for which kv_bytes has room at `longest` tokens, and the first in any case."""
    memory = decoder.memory
    limit = inf if memory.limit_bytes is None else memory.limit_bytes
    found = [count for count in ROWS if memory.needed_bytes(count, longest + 1) <= limit] or [ROWS[0]]
    if more := ROWS[len(found) :]:
        say(f"left out: {', '.join(map(str, more))} documents, whose keys and values kv_bytes has no room for")
    return found


def _measured(decoder: Decoder, rows: Sequence[int], lengths: Sequence[int], repeats: int) -> Iterator[OfflineProfile]:
    """One profile after the other, with a bar on a terminal. Raises `ValueError` where there is no room for one."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal, redirect_stdout=sys.stdout.isatty()
    ) as bar:
        task = bar.add_task("measuring", total=len(rows) * len(lengths))
        for count in rows:
            bar.update(task, description=f"measuring with {count} rows")
            try:
                yield profile(decoder, count, lengths, repeats, reached=lambda context: bar.advance(task))
            except (KvMemoryFullError, KvAllocationError) as error:
                raise ValueError(
                    f"{count} documents at {lengths[-1]} tokens have no room ({no_room(error)}): measure fewer"
                    " --documents, or a shorter --context"
                ) from None


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("--png needs matplotlib, which is not installed: `pip install matplotlib`") from None


def _plot(profiles: Sequence[OfflineProfile], path: Path) -> None:
    """Medians and the fitted lines, `MOST_LINES` numbers of documents to a panel."""
    title = "Decode step by documents in the batch: medians (marks) and what was fitted (lines)"
    with picture(path, rows=ceil(len(profiles) / MOST_LINES), title=title) as axes:
        for place, measured in enumerate(profiles):
            axis, style = axes[place // MOST_LINES], line_style(place % MOST_LINES)
            ends = [0, measured.contexts[-1]]
            axis.plot(
                measured.contexts, [MILLISECONDS * each for each in measured.medians], **style | {"linestyle": ""}
            )
            axis.plot(ends, [MILLISECONDS * measured.line.predict(x) for x in ends], **style | {"marker": ""})
            # A line without points, for the key: it tells colour, mark and dash at once.
            label = "1 document" if measured.rows == 1 else f"{measured.rows} documents"
            axis.plot([], [], label=label, **style | {"clip_on": True})
        for axis in axes:
            axis.set(xlabel="context, tokens", ylabel="decode step, ms", ylim=(0, None))
