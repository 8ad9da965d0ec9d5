"""A view of one side's race at one position."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from proto.payloads.race import RaceEntries


@dataclass(frozen=True, slots=True, eq=False)
class RaceView:
    """A side's fastest tokens, in the same bits for that side and for the one that received them.

    A token that is not listed is no faster than `threshold`. A listed token may be slower than that: its
    value was asked for by name.
    """

    position: int
    entries: RaceEntries  # ids strictly increasing
    speeds: NDArray[np.float64]  # [n], p / E of each entry
    threshold: float
    token: int = field(init=False)  # the side's draft: its fastest token, the lowest id of equals
    speed_of: dict[int, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "token", int(self.entries.ids[int(self.speeds.argmax())]))
        speed_of = dict(zip(self.entries.ids.tolist(), self.speeds.tolist(), strict=True))
        object.__setattr__(self, "speed_of", speed_of)

    def fastest(self, count: int) -> list[tuple[int, float]]:
        """The first tokens with the logarithms of their speeds, the draft first; without those that can't win."""
        order = np.lexsort((self.entries.ids, -self.speeds))[:count]
        order = order[self.speeds[order] > 0.0]
        return list(zip(self.entries.ids[order].tolist(), np.log(self.speeds[order]).tolist(), strict=True))

    @property
    def listed(self) -> NDArray[np.integer]:
        """The tokens that are named, increasing."""
        return self.entries.ids
