"""Processor time that other processes take while this one measures."""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import Final

import psutil

_SLACK: Final = 0.25  # cores; what an idle desktop takes


class Neighbours:
    """Watches the machine for the time of a `with` block."""

    def __init__(self) -> None:
        self.cores = 0.0  # that other processes had, on average over the block

    def __enter__(self) -> Neighbours:
        self._began, self._others = time.monotonic(), _others()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = time.monotonic() - self._began
        self.cores = max(0.0, _others() - self._others) / seconds if seconds > 0 else 0.0

    def lacked(self, threads: int) -> float:
        """Cores that `threads` threads of this process had to wait for; 0 where each had one."""
        return max(0.0, self.cores + threads - usable_cores() - _SLACK)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cores_each(processes: int, shares_machine: bool) -> int:
    """Cores for each of `processes` of one daemon, which leaves half of them to another one that `shares_machine`."""
    return max(1, usable_cores() // (2 if shares_machine else 1) // processes)


def _others() -> float:
    """Seconds of processor time since some moment, of all processes but this one."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # A guest's time is part of user's and nice's.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    return float(sum(times) - idle - guests) - time.process_time()
