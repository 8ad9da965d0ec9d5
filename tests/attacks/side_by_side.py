"""A good peer's latency while an attack goes on, compared with that in the pauses between."""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds for the attacker to obey


class Attacker:
    """An attacking process. A context manager; strikes only between `go` and `stop`."""

    def __init__(self, kind: str, address: str, *keys: str) -> None:
        command = [sys.executable, "-m", "tests.attacks.attacker", kind, address, *keys]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def __enter__(self) -> Attacker:
        self._told()
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE)

    def go(self) -> None:
        self._say("go")

    def stop(self) -> int:
        """Pause the attack; returns how often it struck so far."""
        return self._say("stop")

    def _say(self, order: str) -> int:
        assert self._process.stdin is not None
        print(order, file=self._process.stdin, flush=True)
        return int(self._told())

    def _told(self) -> str:
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], PATIENCE)[0], "the attacker obeys no more"
        line = self._process.stdout.readline().strip()
        assert line, "the attacker died"
        return line


@dataclass(frozen=True, slots=True)
class Comparison:
    """Median seconds per exchange in quiet and in attacked windows, and how often the attacker struck."""

    quiet: float
    attacked: float
    strikes: int
    exchanges: int

    def __str__(self) -> str:
        more = 100 * (self.attacked / self.quiet - 1)
        return (
            f"median {1000 * self.quiet:.2f} ms quiet, {1000 * self.attacked:.2f} ms attacked ({more:+.0f} %), "
            f"{self.exchanges} exchanges, {self.strikes} strikes"
        )


def side_by_side(attacker: Attacker, exchange: Callable[[], float], windows: int, seconds: float) -> Comparison:
    """Alternate windows without and with the attack, which last `seconds`, those without a quarter of it: a median
    needs no more. `exchange` does one and says how long it took.
    """
    times: dict[bool, list[float]] = {False: [], True: []}
    strikes = 0
    for window in range(2 * windows):
        attacked = window % 2 == 1
        if attacked:
            attacker.go()
        until = time.monotonic() + (seconds if attacked else seconds / 4)
        while time.monotonic() < until:
            times[attacked].append(exchange())
        if attacked:
            strikes = attacker.stop()
    quiet, busy = (statistics.median(times[each]) for each in (False, True))
    return Comparison(quiet, busy, strikes, sum(map(len, times.values())))


def resident_bytes(process: int | None = None) -> int:
    """Memory that a process (this one) has in use."""
    pages = int(Path(f"/proc/{process or os.getpid()}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
