"""Memory, descriptors, threads and files of the daemons, looked at every few seconds, and judged."""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Final

import psutil

from scripts.daemons import Daemon

EVERY: Final = 3.0  # seconds between two looks
WARM_UP: Final = 5.0  # seconds of a process's life that are not looked at
LEAST_SAMPLES: Final = 8
LEAST_SECONDS: Final = 45.0
MOST_SAMPLES: Final = 1_000  # of a half of a life; each is compared with all others, and a day has 14,400
# Rises over the second half of a process's life that are no growth. Memory goes on rising for the first 700 answers or
# so, ever more slowly, and is level after that; short lives are not through with it.
RISES: Final[Mapping[str, float]] = {"MB": 48.0, "descriptors": 12.0, "threads": 6.0, "files": 40.0, "temporary": 0.0}


@dataclass(frozen=True, slots=True)
class Growth:
    """A quantity of one process over the second half of its life. `rise` is by its slope; None: too short to tell."""

    name: str
    start: float
    end: float
    per_minute: float | None
    grows: bool

    def __str__(self) -> str:
        slope = "-" if self.per_minute is None else f"{self.per_minute:+.2f}"
        return f"{self.name} {self.start:.0f} {self.end:.0f} {slope}{' GROWS' if self.grows else ''}"


def growth(name: str, samples: Sequence[tuple[float, float]]) -> Growth:
    """The growth of a quantity by its samples (seconds, value): the Theil-Sen slope of the second half."""
    middle = (samples[0][0] + samples[-1][0]) / 2
    half = [each for each in samples if each[0] >= middle]
    span = half[-1][0] - half[0][0]
    start, end = samples[0][1], samples[-1][1]
    if len(half) < LEAST_SAMPLES or span < LEAST_SECONDS:
        return Growth(name, start, end, None, False)
    thinned = half[:: math.ceil(len(half) / MOST_SAMPLES)]
    slope = median((y - x) / (later - sooner) for (sooner, x), (later, y) in combinations(thinned, 2))
    return Growth(name, start, end, 60 * slope, slope * span > RISES[name])


@dataclass
class Lives:
    """Samples of each process of the named daemons, by quantity. Their temporary files are in `temporary`."""

    daemons: Mapping[str, Daemon]
    temporary: Path
    clock: Callable[[], float]
    samples: dict[str, dict[str, list[tuple[float, float]]]] = field(default_factory=dict)  # by process and quantity

    def look(self) -> None:
        """Take one sample of every process that runs, of workers behind a gateway, too."""
        for name, daemon in self.daemons.items():
            if daemon.process is None or not daemon.running:
                continue
            try:
                process = psutil.Process(daemon.process.pid)
                self._add(f"{name} {process.pid}", _of_process(process) | self._of_files(daemon))
                for worker in daemon.workers:
                    with suppress(psutil.Error):  # it ended meanwhile; the others did not
                        self._add(f"{name} worker {worker.pid}", _of_process(worker))
            except (psutil.Error, OSError):
                continue  # it was killed meanwhile

    def _add(self, name: str, found: Mapping[str, float]) -> None:
        samples = self.samples.setdefault(name, {})
        for quantity, value in found.items():
            samples.setdefault(quantity, []).append((round(self.clock(), 1), round(value, 1)))

    def _of_files(self, daemon: Daemon) -> dict[str, float]:
        return {
            "files": sum(1 for path in (daemon.data / daemon.role).rglob("*") if path.is_file()),
            "temporary": sum(1 for _ in self.temporary.iterdir()),
        }

    def judged(self) -> Sequence[tuple[str, Sequence[Growth]]]:
        """The growths of each process's quantities, in the order in which they came."""
        return [
            (name, [growth(quantity, warm) for quantity, each in samples.items() if (warm := _warm(each))])
            for name, samples in self.samples.items()
        ]


def _warm(samples: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    return [each for each in samples if each[0] >= samples[0][0] + WARM_UP]


def _of_process(process: psutil.Process) -> dict[str, float]:
    with process.oneshot():
        return {
            "MB": process.memory_info().rss / 1e6,
            "descriptors": process.num_fds(),
            "threads": process.num_threads(),
        }


def place_for_temporary(folder: Path) -> Path:
    """A folder below `folder` for the temporary files of this process and of those that it starts."""
    place = folder / "temporary"
    place.mkdir()
    os.environ["TMPDIR"] = str(place)
    tempfile.tempdir = str(place)
    return place
