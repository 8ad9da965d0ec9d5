"""Offline stage of the profiler: decode step time by context length (DRAGON §5.2)."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from common.configuration.configuration import ConfigurationError
from common.configuration.settings import Settings
from common.engine.kv.line import KvAllocationError, KvMemoryFullError
from common.engine.model.decoder import Decoder, load_decoder
from common.engine.model.packed import Feed
from common.engine.model.profile import DecodeProfile, profile_decode
from common.estimates.estimators import DecodeLine
from common.estimates.profile_store import KeptLine, ProfileKey, ProfileStore
from common.figures import MOST_LINES, line_style, picture
from common.library.terminal import say
from common.process.files import named_by_user

log = logging.getLogger(__name__)

REPEATS = 5  # steps per context length
OWN_LENGTHS, OWN_LONGEST = 3, 512  # of a daemon's own measurement
ROUGH_SECONDS = 0.5  # limit for a rough line at the first start
ROUGH = 1e6  # cores; marks a rough line, worse than any measured one


@dataclass(frozen=True, slots=True)
class OfflineProfile:
    """Median decode steps with `rows` documents in seconds, and their line."""

    rows: int
    contexts: tuple[int, ...]
    medians: tuple[float, ...]
    line: DecodeLine

    @property
    def residual(self) -> float:
        """Root mean square distance from the line, relative to the medians' mean."""
        distances = [median - self.line.predict(context) for context, median in self.pairs]
        mean = sum(self.medians) / len(self.medians)
        return math.sqrt(sum(distance**2 for distance in distances) / len(distances)) / mean

    @property
    def pairs(self) -> list[tuple[int, float]]:
        return list(zip(self.contexts, self.medians, strict=True))


def evenly(count: int, longest: int) -> list[int]:
    """Returns `count` evenly spaced context lengths; the last is `longest`."""
    return sorted({max(1, longest * step // count) for step in range(1, count + 1)})


def measure_profile(
    decoder: Decoder,
    rows: int,
    contexts: Sequence[int],
    repeats: int = REPEATS,
    reached: Callable[[int], object] = lambda context: None,
    seconds: float = math.inf,
) -> OfflineProfile:
    """Measures decode steps with `rows` documents at increasing context lengths, and fits the line.

    Stops after `seconds`; with one length the line is level. Raises `ContextError` for too long lengths,
    `ValueError` for fewer than two, and `KvMemoryFullError` or `KvAllocationError` for too little memory.
    """
    if len(contexts) < 2:
        raise ValueError("a decode line needs two context lengths or more")
    return fitted(rows, profile_decode(decoder, rows, contexts, repeats, reached=reached, seconds=seconds))


def fitted(rows: int, measured: DecodeProfile) -> OfflineProfile:
    lengths = tuple(int(length) for length in np.unique(measured.contexts))
    # Medians, as a busy machine only lengthens steps.
    medians = tuple(float(np.median(measured.seconds[measured.contexts == length])) for length in lengths)
    line = DecodeLine.fit(lengths, medians) if len(lengths) > 1 else DecodeLine.of(0.0, medians[0], lengths[0])
    return OfflineProfile(rows, lengths, medians, line)


def no_room(error: KvMemoryFullError | KvAllocationError) -> str:
    if isinstance(error, KvAllocationError):
        return error.reason
    return f"its keys and values take {error.needed} bytes at least, and kv_bytes allows for {error.free}"


def profiled_line(decoder: Decoder, rows: int, folder: Path) -> DecodeLine:
    """Returns the decode line with `rows` documents: the best in `folder`, else a rough one.

    A rough line is level, from a few steps, and stored until an idle daemon improves it (`idle_profile`). Raises
    `ConfigurationError` if the documents do not fit.
    """
    if (kept := kept_line(decoder, rows, folder)) is not None:
        return kept.line
    try:
        measured = measure_profile(decoder, rows, measured_lengths(decoder), seconds=ROUGH_SECONDS)
    except (KvMemoryFullError, KvAllocationError) as error:
        raise ConfigurationError(f"an answer from {rows} documents has no room: {no_room(error)}") from None
    log.info("a decode step takes about %.1f ms; the daemon measures it when it is idle", 1e3 * measured.medians[0])
    try:
        keep(decoder, rows, measured.line, folder, ROUGH)
    except OSError as error:
        log.warning("the decode profile can't be saved: %s", error.strerror)
    return measured.line


def measured_lengths(decoder: Decoder) -> list[int]:
    return evenly(OWN_LENGTHS, min(decoder.max_context - 1, OWN_LONGEST))


def pass_seconds(decoder: Decoder) -> float:
    """Returns a pass's seconds, for a model without memory for a profile."""
    rows = decoder.memory.take(1, 1)
    started = time.perf_counter()
    try:
        decoder.forward([Feed(rows, [0])])
    finally:
        decoder.memory.give_back(rows)
    return time.perf_counter() - started


def kept_line(decoder: Decoder, rows: int, folder: Path) -> KeptLine | None:
    return ProfileStore(folder).load(_key(decoder, rows))


def keep(decoder: Decoder, rows: int, line: DecodeLine, folder: Path, lacked: float = 0.0) -> None:
    """Stores a line, and the cores that it `lacked`. Raises `OSError`."""
    ProfileStore(folder).save(_key(decoder, rows), KeptLine(line, lacked))


def _key(decoder: Decoder, rows: int) -> ProfileKey:
    return ProfileKey(decoder.identity, f"{decoder.torch_device}/{decoder.dtype}/{torch.get_num_threads()}", rows)


# --- profile_command
# `dragon profile`: the offline stage of §5.2 for the configured model.

ROWS = (1, 2, 4, 8, 16)
LENGTHS = 6  # by default
LONGEST = 2048  # tokens; answers are rarely longer, and their prefill is slow
MILLISECONDS, MICROSECONDS = 1e3, 1e6


def run_profile(
    settings: Settings, rows: Sequence[int], contexts: Sequence[int], repeats: int, png: Path | None
) -> None:
    """Measures, prints and stores each number of documents; by default those of `ROWS` that fit.

    Raises `ModelError`, `ContextError`, `ValueError` for unmeasurable numbers, `OSError` if writing fails.
    """
    if png is not None:
        _require_matplotlib()
    decoder = load_decoder(settings)
    lengths = sorted(set(contexts)) or evenly(LENGTHS, min(decoder.max_context - 1, LONGEST))
    profiles = []
    for measured in _measured(decoder, sorted(set(rows)) or _with_room(decoder, lengths[-1]), lengths, repeats):
        keep(decoder, measured.rows, measured.line, settings.profiles)
        print(describe_profile(measured), flush=True)
        profiles.append(measured)
    if png is not None:
        with named_by_user(png):
            _plot(profiles, png)


def describe_profile(measured: OfflineProfile) -> str:
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
    """The `ROWS` that fit kv_bytes at `longest` tokens, at least the first."""
    memory = decoder.memory
    limit = inf if memory.limit_bytes is None else memory.limit_bytes
    found = [count for count in ROWS if memory.needed_bytes(count, longest + 1) <= limit] or [ROWS[0]]
    if more := ROWS[len(found) :]:
        say(f"left out: {', '.join(map(str, more))} documents, whose keys and values need more than kv_bytes")
    return found


def _measured(decoder: Decoder, rows: Sequence[int], lengths: Sequence[int], repeats: int) -> Iterator[OfflineProfile]:
    """Shows a progress bar. Raises `ValueError` for too little memory."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal, redirect_stdout=sys.stdout.isatty()
    ) as bar:
        task = bar.add_task("measuring", total=len(rows) * len(lengths))
        for count in rows:
            bar.update(task, description=f"measuring with {count} rows")
            try:
                yield measure_profile(decoder, count, lengths, repeats, reached=lambda context: bar.advance(task))
            except (KvMemoryFullError, KvAllocationError) as error:
                raise ValueError(
                    f"{count} documents at {lengths[-1]} tokens do not fit ({no_room(error)}): measure fewer "
                    "--documents, or a shorter --context"
                ) from None


def _require_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise ValueError("--png needs matplotlib, which is not installed: `pip install matplotlib`") from None


def _plot(profiles: Sequence[OfflineProfile], path: Path) -> None:
    title = "Decode step by documents in the batch: medians (marks) and what was fitted (lines)"
    with picture(path, rows=ceil(len(profiles) / MOST_LINES), title=title) as axes:
        for place, measured in enumerate(profiles):
            axis, style = axes[place // MOST_LINES], line_style(place % MOST_LINES)
            ends = [0, measured.contexts[-1]]
            axis.plot(
                measured.contexts, [MILLISECONDS * each for each in measured.medians], **style | {"linestyle": ""}
            )
            axis.plot(ends, [MILLISECONDS * measured.line.predict(x) for x in ends], **style | {"marker": ""})
            # For the legend: colour, mark and dash.
            label = "1 document" if measured.rows == 1 else f"{measured.rows} documents"
            axis.plot([], [], label=label, **style | {"clip_on": True})
        for axis in axes:
            axis.set(xlabel="context, tokens", ylabel="decode step, ms", ylim=(0, None))
