"""Races of many answers at once: every answer's fastest tokens, from mixtures `[races, vocab]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.fastest import Found, fastest
from common.sampling.noise import (
    LINEAR_EXCESS,
    VocabularyNoise,
    exponential_from_key,
    floor_log2,
    position_key,
    race_noise,
    raised,
)
from proto.logcode import decode, nearest

# Races that run together. Working memory of more tokens than this falls out of the processor's cache, which costs more
# than a call per race.
_TOKENS_TOGETHER: Final = 2**18


@dataclass(frozen=True, slots=True)
class Race:
    """One answer's race at one position."""

    seed: int
    position: int
    temperature: float
    depth: int  # K


class RaceKernel:
    """Finds the fastest tokens of races over a vocabulary. For one thread at a time: it holds the working memory."""

    def __init__(self, vocabulary: int, torch_device: torch.device | str = "cpu") -> None:
        self.vocabulary = vocabulary
        self._noise = VocabularyNoise(vocabulary, torch_device)

    def run(self, mixtures: torch.Tensor, races: Sequence[Race]) -> list[Found]:
        """The `depth` fastest tokens of each race on its row of `mixtures`, float32 `[races, vocab]`, with speeds
        p̂ / E**temperature, by id; fewer when fewer have a positive p̂.
        """
        found: list[Found] = []
        size = max(1, _TOKENS_TOGETHER // self.vocabulary)
        for start in range(0, len(races), size):
            found += self._together(mixtures[start : start + size], races[start : start + size])
        return found

    def _together(self, mixtures: torch.Tensor, races: Sequence[Race]) -> list[Found]:
        def speeds(which: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
            return decode(codes_at(mixtures, which, ids)) / noise_of(races, which, ids)

        return fastest(self.bounds(mixtures, races), [race.depth for race in races], speeds)

    def bounds(self, mixtures: torch.Tensor, races: Sequence[Race]) -> torch.Tensor:
        """No token's log2 speed is above this, float32 `[races, vocab]`, but for `fastest.SLACK`."""
        bounds = floor_log2(mixtures, add=LINEAR_EXCESS)
        warm = [index for index, race in enumerate(races) if race.temperature > 0]
        if not warm:
            return bounds
        floors = self._noise.floors([position_key(races[index].seed, races[index].position) for index in warm])
        temperatures = [races[index].temperature for index in warm]
        if len(set(temperatures)) == 1 and len(warm) == len(races):
            return bounds.sub_(floors, alpha=temperatures[0])
        bounds[warm] -= floors.mul_(torch.tensor(temperatures, dtype=torch.float32).to(bounds.device)[:, None])
        return bounds


def codes_at(mixtures: torch.Tensor, which: NDArray[np.int64] | int, ids: NDArray[np.int64]) -> NDArray[np.uint16]:
    """The codes of (row, token) pairs of `mixtures`; what is not a number is code 0."""
    if mixtures.device.type == "cpu":
        return nearest(mixtures.numpy()[which, ids])
    place = mixtures.device
    rows = which if isinstance(which, int) else torch.from_numpy(which).to(place)
    return nearest(mixtures[rows, torch.from_numpy(ids).to(place)].cpu().numpy())


def noise_of(races: Sequence[Race], which: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """E ** temperature of (race, token) pairs; 1 at temperature 0."""
    if len(races) == 1:
        return race_noise(races[0].seed, races[0].position, ids, races[0].temperature)
    temperatures = np.asarray([race.temperature for race in races], dtype=np.float64)[which]
    keys = np.asarray([position_key(race.seed, race.position) for race in races], dtype=np.uint64)[which]
    noise = exponential_from_key(keys, ids)
    if (temperatures != 1).any():
        noise = raised(noise, temperatures)
    return noise
