"""Bytes of a proposed token with what travels beside it, as far as rounds have shown them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

from common.estimates.estimators import MovingAverage

SIZE_WEIGHT: Final = 0.1  # of a round's bytes per token


class TokenSizes:
    """Bytes of a proposed token by resolution (`{None: ...}` without lattice); of use in many answers.

    What was seen takes the place of what was believed at once: distributions that are flatter than expected take
    several times the bytes. A resolution that was not seen is believed to be off as much as the nearest one that was.
    """

    def __init__(self, believed: Mapping[int | None, float]) -> None:
        if not believed or not all(size > 0.0 for size in believed.values()):
            raise ValueError(f"there must be a resolution to choose, and bytes for each, got {dict(believed)}")
        self._believed = dict(believed)
        self._seen: dict[int | None, MovingAverage] = {}

    def __iter__(self) -> Iterator[int | None]:
        """The resolutions that there are."""
        return iter(self._believed)

    def observe(self, resolution: int | None, size: float) -> None:
        """Take in bytes per token of a proposal; of a resolution that can't be chosen they are ignored."""
        if resolution in self._believed:
            self._seen.setdefault(resolution, MovingAverage(SIZE_WEIGHT)).update(size)

    def of(self, resolution: int | None) -> float:
        """Bytes of a token at `resolution`, one of those that there are."""
        seen = self._seen.get(resolution)
        if seen is not None and seen.value is not None:
            return seen.value
        tried = [at for at in self._seen if at is not None]
        if resolution is None or not tried:
            return self._believed[resolution]
        nearest = min(tried, key=lambda at: abs(math.log(at / resolution)))
        return self._believed[resolution] * self.of(nearest) / self._believed[nearest]
