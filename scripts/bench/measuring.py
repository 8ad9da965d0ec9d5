"""Samples, and what the figures were measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("torch", "numpy", "transformers", "pyzmq", "msgpack", "faiss-cpu", "sentence-transformers", "lz4")


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


@dataclass(frozen=True, slots=True)
class Table:
    """Heads and rows; cells are shown as they are, so round them first. As text it is Markdown."""

    heads: Sequence[str]
    rows: Sequence[Sequence[object]]

    def __str__(self) -> str:
        lines = [self.heads, ["---"] * len(self.heads), *self.rows]
        return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
