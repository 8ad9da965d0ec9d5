"""Samples, and what the figures were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from scipy.stats import binom, binomtest

from common.process.machine import ROOT
from common.process.version import commit

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

PACKAGES = ("torch", "numpy", "transformers", "pyzmq", "msgpack", "faiss-cpu", "sentence-transformers", "lz4")


NOTHING = "–"  # a table's cell for which nothing was measured
CONFIDENCE = 0.95
RESAMPLES = 2000
FEWEST = 6  # samples of whose median there is such an interval: the least and the most of five hold it in 94 %


@dataclass(frozen=True, slots=True)
class Spread:
    """Median of some samples with its 95 % confidence interval, and their 10th and 90th percentile.

    Of fewer than `FEWEST`, `interval` is the least and the most.
    """

    median: float
    low: float
    high: float
    interval: tuple[float, float]
    count: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """Raises `ValueError` without samples."""
        if not samples:
            raise ValueError("nothing was measured")
        low, middle, high = np.percentile(np.asarray(samples, dtype=np.float64), (10, 50, 90))
        return cls(float(middle), float(low), float(high), median_interval(samples), len(samples))

    @property
    def few(self) -> bool:
        """Whether there are too few samples for a confidence interval."""
        return self.count < FEWEST

    def short(self, digits: int = 0, of_interval: int | None = None) -> str:
        """Median [confidence interval], or (least-most) of few samples; `of_interval` digits in there, where these are
        not those of the median.
        """
        edges = digits if of_interval is None else of_interval
        within = f"{self.interval[0]:.{edges}f}-{self.interval[1]:.{edges}f}"
        return f"{self.median:.{digits}f} ({within})" if self.few else f"{self.median:.{digits}f} [{within}]"

    def text(self, digits: int = 0) -> str:
        """Median, [confidence interval], (10th to 90th percentile); of few samples as `short`."""
        return (
            self.short(digits) if self.few else f"{self.short(digits)} ({self.low:.{digits}f}-{self.high:.{digits}f})"
        )


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """The closest two samples, as many from either end, that hold the median of any law in at least 95 % of cases; the
    least and the most of too few.
    """
    ordered = sorted(samples)
    # Between the k-th of n from either end the median lies unless fewer than k are below it, or above: 2 P(Bin < k).
    place = max(int(binom.ppf((1 - CONFIDENCE) / 2, len(ordered), 0.5)), 1)
    return float(ordered[place - 1]), float(ordered[-place])


def mean_of(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean with its 95 % interval by percentile bootstrap, the same for the same values."""
    samples = np.asarray(values, dtype=np.float64)
    drawn = np.random.default_rng(1).choice(samples, (RESAMPLES, len(samples))).mean(axis=1)
    outside = 50 * (1 - CONFIDENCE)  # per cent, on either end
    low, high = np.percentile(drawn, (outside, 100 - outside))
    return float(samples.mean()), float(low), float(high)


def mean_interval(values: Sequence[float]) -> str:
    """Mean of differences [95 % interval], see `mean_of`; no interval of no width."""
    mean, least, most = (f"{each:+.2f}" for each in mean_of(values))
    return mean if mean == least == most else f"{mean} [{least} to {most}]"


def share_interval(count: int, of: int) -> str:
    """Share [95 % interval] (Wilson); a dash for none at all."""
    if not of:
        return NOTHING
    interval = binomtest(count, of).proportion_ci(CONFIDENCE, "wilson")
    return f"{count / of:.2f} [{interval.low:.2f}-{interval.high:.2f}]"


INTERVALS = "95 % intervals, of fewer than six the least and the most"
MEDIANS = "medians [95 % interval] (of fewer than six: least to most)"
SPREADS = "median [95 % interval of the median] (10-90 % of the samples; of fewer than six: least to most)"


def machine() -> dict[str, Any]:
    """Commit, processor, cores, versions and the load of others: a figure means little without them."""
    return {
        "commit": code(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
        "load": load(),
    }


def code() -> str | None:
    """The commit that is measured, `-dirty` with changes of more than documents, which a run that publishes makes."""
    known = commit()
    if known is None or not known.endswith("-dirty"):
        return known
    changed = ["git", "diff", "--quiet", "HEAD", "--", ".", ":!docs", ":!README.md"]
    return known if subprocess.run(changed, cwd=ROOT, check=False).returncode else known.removesuffix("-dirty")


def load() -> list[float]:
    """Load averages of the last 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


@dataclass(frozen=True, slots=True)
class Table:
    """Heads and rows; cells are shown as they are, so round them first. As text it is Markdown."""

    heads: Sequence[str]
    rows: Sequence[Sequence[object]]

    def columns(self, heads: Sequence[str]) -> Table:
        """The columns under these heads alone."""
        places = [list(self.heads).index(head) for head in heads]
        return Table(heads, [[row[place] for place in places] for row in self.rows])

    def __str__(self) -> str:
        lines = [self.heads, ["---"] * len(self.heads), *self.rows]
        return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items by key, in the order of each key's first."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
