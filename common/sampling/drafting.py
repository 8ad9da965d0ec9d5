"""Races of many answers at once: every answer's fastest tokens, from mixtures `[races, vocab]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.compiled import LINEAR_EXCESS, fastest_tokens, nearest_codes, race_bounds
from common.sampling.fastest import Found, best, fastest
from common.sampling.noise import (
    VocabularyNoise,
    exponential_from_key,
    floor_log2,
    position_key,
    race_noise,
    raised,
)
from proto.logcode import TABLE, decode


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
        on_cpu = torch.device(torch_device).type == "cpu"
        self._noise = None if on_cpu else VocabularyNoise(vocabulary, torch_device)
        self._memory = np.empty(2 * vocabulary if on_cpu else 0, np.float32)
        self._rows = torch.empty(0, vocabulary)

    def rows(self, count: int) -> torch.Tensor | None:
        """Memory for so many distributions, float32 `[count, vocab]`, until the next call; None: none is kept here.

        Where large blocks are given back to the operating system, each new one costs as much as what is written to it.
        """
        if self._noise is not None:
            return None
        if self._rows.shape[0] < count:
            self._rows = torch.empty(count, self.vocabulary)
        return self._rows if self._rows.shape[0] == count else self._rows[:count]

    def run(self, mixtures: torch.Tensor, races: Sequence[Race]) -> list[Found]:
        """The `depth` fastest tokens of each race on its row of `mixtures`, float32 `[races, vocab]`, with speeds
        p̂ / E**temperature, by id; fewer when fewer have a positive p̂.
        """
        if self._noise is None:
            rows = mixtures.contiguous().numpy()
            return [
                best(*fastest_tokens(row, _key(race), race.temperature, race.depth, TABLE, self._memory), race.depth)
                for row, race in zip(rows, races, strict=True)
            ]

        def speeds(which: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
            return decode(codes_in(mixtures, which, ids)) / noise_of(races, which, ids)

        return fastest(self.bounds(mixtures, races), [race.depth for race in races], speeds)

    def bounds(self, mixtures: torch.Tensor, races: Sequence[Race]) -> torch.Tensor:
        """No token's log2 speed is above this, float32 `[races, vocab]`, but for `compiled.SLACK`."""
        if self._noise is None:
            each = [
                race_bounds(row, _key(race), race.temperature, self._memory).copy()
                for row, race in zip(mixtures.contiguous().numpy(), races, strict=True)
            ]
            return torch.from_numpy(np.stack(each))
        bounds = floor_log2(mixtures, add=LINEAR_EXCESS)
        warm = [index for index, race in enumerate(races) if race.temperature > 0]
        if warm:
            floors = self._noise.floors([position_key(races[index].seed, races[index].position) for index in warm])
            temperatures = torch.tensor([races[index].temperature for index in warm], dtype=torch.float32)
            bounds[warm] -= floors.mul_(temperatures.to(bounds.device)[:, None])
        return bounds


def _key(race: Race) -> np.uint64:
    return np.uint64(position_key(race.seed, race.position))


def codes_at(mixture: torch.Tensor, ids: NDArray[np.int64]) -> NDArray[np.uint16]:
    """The codes of tokens `ids` [n] in a mixture [vocab], float32; what is not a number is code 0."""
    if mixture.device.type == "cpu":
        return codes_of(mixture.numpy()[ids])
    return codes_of(mixture[torch.from_numpy(ids).to(mixture.device)].cpu().numpy())


def codes_in(mixtures: torch.Tensor, which: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.uint16]:
    """As `codes_at`, of (row, token) pairs [n] of `mixtures` `[rows, vocab]`."""
    return codes_at(mixtures.reshape(-1), which * mixtures.shape[1] + ids)


def codes_of(probabilities: NDArray[np.float32]) -> NDArray[np.uint16]:
    """As `proto.logcode.nearest`, of float32 [n]."""
    codes = np.empty(probabilities.shape, np.uint16)
    nearest_codes(probabilities, codes)
    return codes


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
