"""Ranks of targets in the race of the side that drafted another token: what branching could decode ahead.

A side knows the speed of every token in its own race. Where its draft is rejected, the target is a slower one of its
own; how close the race was, it knows beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.sampling.noise import race_noise
from proto.logcode import decode, nearest
from scripts.bench.measuring import Table
from scripts.bench.positions import Position

WITHIN: Final = (2, 4, 8)
CLOSEST: Final = 0.2  # of the positions: those with the closest races


@dataclass(frozen=True, slots=True)
class Ranked:
    """One position, of (device, cloud): the target's rank in the own race (1: the draft), and how much faster the draft
    was than the next token, as the logarithm of both speeds' ratio.
    """

    rank: tuple[int, int]
    margin: tuple[float, float]


def ranked(position: Position) -> Ranked:
    """The ranks of the target of `position`."""
    target = position.target()
    noise = race_noise(position.seed, position.index, np.arange(len(position.device)), position.temperature).astype(
        np.float64
    )
    ranks, margins = list[int](), list[float]()
    for probabilities in position.both:
        speeds = decode(nearest(probabilities.numpy())) / noise
        ranks.append(1 + int((speeds > speeds[target]).sum()))
        second, first = np.partition(speeds, -2)[-2:]
        margins.append(float(np.log(first / second)) if second > 0 else np.inf)
    return Ranked((ranks[0], ranks[1]), (margins[0], margins[1]))


def table(found: Mapping[tuple[str, str], Sequence[Ranked]]) -> Table:
    """A row for each case, by its name and temperature: of the rejections of the device and of the cloud."""
    columns: dict[str, Callable[[Sequence[Ranked], int], str]] = {
        "rejections": lambda of, side: str(len(_rejected(of, side))),
        **{f"rank <= {most}": lambda of, side, most=most: _share(of, side, most) for most in WITHIN},  # type: ignore[misc]
        "in the closest fifth": _close,
    }
    return Table.crossed(
        ["distributions", "temperature"],
        dict(found),
        columns,
        lambda of, tell: " / ".join(tell(of, side) for side in (0, 1)),
    )


def _rejected(of: Sequence[Ranked], side: int) -> list[Ranked]:
    return [each for each in of if each.rank[side] > 1]


def _share(of: Sequence[Ranked], side: int, most: int) -> str:
    """Of the rejections, those whose target was among the side's `most` fastest."""
    rejected = _rejected(of, side)
    return f"{np.mean([each.rank[side] <= most for each in rejected]):.2f}" if rejected else "-"


def _close(of: Sequence[Ranked], side: int) -> str:
    """Of the rejections, those in the positions whose races were closest."""
    rejected = _rejected(of, side)
    if not rejected:
        return "-"
    limit = np.quantile([each.margin[side] for each in of], CLOSEST)
    return f"{np.mean([each.margin[side] <= limit for each in rejected]):.2f}"
