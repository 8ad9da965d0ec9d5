"""Memory, descriptors, threads and files of the daemons, looked at every few seconds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

from scripts.daemons import Daemon
from scripts.soak.checker import Growth, growth

EVERY: Final = 3.0  # seconds between two looks
WARM_UP: Final = 5.0  # seconds of a process's life that are not looked at


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
