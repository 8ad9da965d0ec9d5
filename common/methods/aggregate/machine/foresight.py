"""Chances of the tokens that may turn out to be the target, as one side foresees them from its own race.

All randomness is shared, so a side that knows its own race knows nearly how each token fares in the race of both: the
target is among its fastest few, in proportion to a power of the speed. The power is learned from the positions that
were decided: the better the sides agree, the higher it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Final

Rivals = Sequence[tuple[int, float]]  # a side's fastest tokens with the logarithms of their speeds, its draft first

_FIRST: Final = 3.0  # the power before any position was decided
_SURE: Final = 1.0  # information (1 / variance) that it counts for
_MEMORY: Final = 60.0  # positions that are remembered: what the older ones told is forgotten
_LEAST: Final = 0.2
_MOST: Final = 40.0


@dataclass(slots=True)
class Foresight:
    """The power, learned online: a Newton step per decided position (the likelihood is concave in it)."""

    power: float = _FIRST
    _information: float = _SURE

    def chances(self, rivals: Rivals) -> list[float]:
        """Chance of each of `rivals` to be the target, the first of which is the fastest. They sum to 1."""
        if not rivals:
            return []
        first = rivals[0][1]
        weights = [exp(self.power * (speed - first)) for _, speed in rivals]
        total = sum(weights)
        return [weight / total for weight in weights]

    def observe(self, rivals: Rivals, target: int) -> None:
        """Learn that the token `target` won. Nothing is learned from a target that is none of `rivals`."""
        won = next((speed for token, speed in rivals if token == target), None)
        if won is None:
            return
        chances = self.chances(rivals)
        mean = sum(chance * speed for chance, (_, speed) in zip(chances, rivals, strict=True))
        variance = sum(chance * (speed - mean) ** 2 for chance, (_, speed) in zip(chances, rivals, strict=True))
        # Counted in positions: a low power tells much of each, and would outweigh all that a higher one tells later.
        self._information = max(_SURE, self._information * (1.0 - 1.0 / _MEMORY) + variance)
        self.power = min(max(self.power + (won - mean) / self._information, _LEAST), _MOST)
