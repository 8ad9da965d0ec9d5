"""The values of a position: a view of one side's race, and the outcome of an aggregation."""

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


# --- outcome
# What an aggregation of both sides' views comes to.


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural logarithms of probabilities at one position, before the temperature."""

    token: float
    top: tuple[tuple[int, float], ...]  # the most probable tokens and their logarithms, from the most probable on


@dataclass(frozen=True, slots=True)
class JointToken:
    """A token decided from both mixtures, which the session takes as the device's draft."""

    token: int
    logprobs: Logprobs | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The target token of a position."""

    token: int
    cloud_share: float | None = None  # the cloud's share in the token's probability
    expected: tuple[float, float] | None = None  # Eq. 5: alpha of (device, cloud), where the sampler has them
    logprobs: Logprobs | None = None  # where they were asked for


@dataclass(frozen=True, slots=True)
class MissingThere:
    """A failed certificate, with the values that the remote view lacks."""

    ids: tuple[int, ...]
    depth: int  # wanted length of the remote list, 0 when naming `ids` is enough


@dataclass(frozen=True, slots=True)
class MissingHere:
    """A failed certificate, with the values that the local view lacks. This side can look them up."""

    ids: tuple[int, ...]
    depth: int  # wanted length of the local list, 0 for the values of `ids`


Outcome = Decision | MissingThere | MissingHere
