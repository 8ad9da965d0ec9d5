"""Samples, a stop-watch for nested stages, and what the figures were measured on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("torch", "numpy", "transformers", "pyzmq", "msgpack")


@dataclass(frozen=True, slots=True)
class Spread:
    """Median with the 10th and 90th percentile of some samples."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Raises `ValueError` without samples."""
        if not samples:
            raise ValueError("nothing was measured")
        low, middle, high = np.percentile(np.asarray(samples, dtype=np.float64), (10, 50, 90))
        return cls(float(middle), float(low), float(high))

    def text(self, digits: int = 0) -> str:
        return f"{self.median:.{digits}f} ({self.low:.{digits}f}-{self.high:.{digits}f})"


class Stages:
    """Exclusive processor time per stage: what an inner stage takes is not counted to the outer one.

    Processor time of this thread, because other programs' work is not the engine's; on an idle machine it is the
    time that passes. Used as `with stages("session"): ...`; `lap` ends a token. One thread.
    """

    def __init__(self) -> None:
        self.laps: list[dict[str, float]] = []  # microseconds by stage, one per token
        self._lap: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    def __call__(self, name: str) -> AbstractContextManager[None]:
        return _Stage(self, name)

    def enter(self, name: str) -> None:
        now = time.thread_time()
        if self._open:
            self._add(self._open[-1], now)
        self._open.append(name)
        self._since = time.thread_time()

    def leave(self) -> None:
        now = time.thread_time()
        self._add(self._open.pop(), now)
        self._since = time.thread_time()

    def lap(self) -> None:
        self.laps.append(self._lap)
        self._lap = {}

    def _add(self, name: str, now: float) -> None:
        self._lap[name] = self._lap.get(name, 0.0) + 1e6 * (now - self._since)


class _Stage(AbstractContextManager[None]):
    __slots__ = ("_name", "_stages")

    def __init__(self, stages: Stages, name: str) -> None:
        self._stages = stages
        self._name = name

    def __enter__(self) -> None:
        self._stages.enter(self._name)

    def __exit__(self, *error: object) -> None:
        self._stages.leave()


def machine() -> dict[str, Any]:
    """Processor, cores, versions and the load of others: a figure means little without them."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "load": load(),
    }


def load() -> list[float]:
    """Load averages of the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
