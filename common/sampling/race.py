"""Race-coupled sampling: drafts by exponential race on shared noise, and what is told of them.

A side rounds its mixture p to the wire's code first and races on the rounded p̂:

    speed_i = p̂_i / E_{t,i}^T        draft = argmax_i speed_i

Without T this is the exponential race (the Gumbel-max trick). With it, since argmax_i p_i / E_i^T is
argmax_i p_i^(1/T) / E_i, the token follows p^(1/T), renormalised, of whatever p the speeds are linear in: of the
mixture of both sides, when speeds of both are added. Temperature 0 is the limit E^0 = 1.

The K fastest tokens travel as (id, code of p̂); the receiver computes E again from the seed, so that both
hold the same speeds to the last bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.compiled import race_speeds
from common.sampling.drafting import Race, RaceKernel, codes_at
from common.sampling.fastest import Found
from common.sampling.noise import position_key
from common.sampling.view import RaceView
from proto.errors import malformed
from proto.logcode import TABLE
from proto.payloads.race import RaceEntries

Ids = Sequence[int] | NDArray[np.integer]
AnyRace = TypeVar("AnyRace", bound=RaceView)


@dataclass(frozen=True, slots=True, eq=False)
class RemoteRace(RaceView):
    """The other side's race, as its list tells it."""


@dataclass(frozen=True, slots=True, eq=False)
class LocalRace(RaceView):
    """This side's race: what it sends, and the whole mixture behind it."""

    probabilities: torch.Tensor  # float32 [vocab], not rounded, on the model's torch device
    race: Race

    def values(self, ids: Ids) -> RaceEntries:
        """The rounded probabilities of `ids`, in increasing order, code 0 included.

        Raises `ProtocolError` for ids outside of the vocabulary: it is the peer that names them.
        """
        unique = np.unique(np.asarray(ids, dtype=np.int64))
        if not len(unique) or unique[0] < 0 or unique[-1] >= len(self.probabilities):
            raise malformed(f"values can be asked of at least one token, and of tokens below {len(self.probabilities)}")
        codes = codes_at(self.probabilities, unique)
        return RaceEntries(unique.astype(np.uint32), codes)

    def extend(self, depth: int, kernel: RaceKernel | None = None) -> RaceEntries:
        """The `depth` fastest tokens, fewer when fewer have a positive probability."""
        if depth < 1:
            raise malformed("a deeper list must have at least one entry")
        kernel = kernel or RaceKernel(len(self.probabilities), self.probabilities.device)
        (found,) = kernel.run(self.probabilities[None], [dataclasses.replace(self.race, depth=depth)])
        return self.values(found[0])


class RaceSampler:
    """Drafts one side's tokens of one answer, and reads the other side's lists. For one thread at a time.

    `seed` (64 bits), `temperature` and `entries` (K) are the session's, the same on both sides. `vocabulary`
    counts the tokenizer's tokens. `likeliest`: so many of the most probable tokens are listed, too.
    """

    def __init__(self, seed: int, temperature: float, entries: int, vocabulary: int, likeliest: int = 0) -> None:
        if entries < 1 or vocabulary < 1:
            raise ValueError(f"a race needs an entry and a token at least, not {entries} and {vocabulary}")
        self._seed = seed
        self._temperature = temperature
        self._entries = min(entries, vocabulary)
        self._vocabulary = vocabulary
        self._likeliest = min(likeliest, vocabulary)

    def race(self, position: int) -> Race:
        """The race to be run on this side's mixture for its draft at `position`."""
        return Race(self._seed, position, self._temperature, self._entries)

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found) -> LocalRace:
        """This side's draft from its mixture, float32 [vocab], and the fastest tokens of `race(position)` on it.

        The mixture is kept and must not be changed. Raises `ValueError` for one without a positive probability.
        """
        ids, speeds = found
        if not len(ids):
            raise ValueError(f"the mixture at position {position} has no positive probability")
        if self._likeliest:
            probable = probabilities.topk(self._likeliest).indices.cpu().numpy()
            ids = np.union1d(ids, probable[codes_at(probabilities, probable) > 0])
        codes = codes_at(probabilities, ids)
        entries = RaceEntries(ids.astype(np.uint32), codes)
        if self._likeliest:
            speeds = self._speeds(position, entries)
        threshold = self._threshold(speeds, self._entries)
        return LocalRace(position, entries, speeds, threshold, probabilities, self.race(position))

    def draft(self, position: int, probabilities: torch.Tensor, kernel: RaceKernel | None = None) -> LocalRace:
        """Race on this side's mixture [vocab] alone; see `drafted`."""
        if probabilities.shape != (self._vocabulary,):
            raise ValueError(f"a mixture must be [{self._vocabulary}], not {tuple(probabilities.shape)}")
        exact = probabilities.to(torch.float32)
        kernel = kernel or RaceKernel(self._vocabulary, exact.device)
        (found,) = kernel.run(exact[None], [self.race(position)])
        return self.drafted(position, exact, found)

    def receive(self, position: int, entries: RaceEntries) -> RemoteRace:
        """The race that a list of the other side's K fastest tokens tells of.

        Raises `ProtocolError` for a list that no race can have sent.
        """
        self._check(entries, min(self._entries + self._likeliest, self._vocabulary))
        speeds = self._speeds(position, entries)
        return RemoteRace(position, entries, speeds, self._threshold(speeds, self._entries))

    def extend(self, race: AnyRace, depth: int, entries: RaceEntries) -> AnyRace:
        """`race` with more values: of named tokens (`depth` 0), or of the `depth` fastest ones.

        Answers may come twice and in any order, so a list may be shorter than what is known already. Raises
        `ProtocolError` for values that contradict that.
        """
        if depth:
            self._check(entries, min(depth, self._vocabulary))
        elif not len(entries.ids) or int(entries.ids[-1]) >= self._vocabulary:
            raise malformed("a race list must have an entry, and tokens of the vocabulary")
        speeds = self._speeds(race.position, entries)
        slowest = self._threshold(speeds, depth) if depth else race.threshold
        told = dict(zip(entries.ids.tolist(), speeds.tolist(), strict=True))
        for token, speed in told.items():
            if race.speed_of.get(token, min(speed, race.threshold)) != speed:
                raise malformed("resolved values contradict the race list that came before")
        # A token as fast as the slowest one may be missing: lists are cut by id there.
        if depth and any(speed > slowest and token not in told for token, speed in race.speed_of.items()):
            raise malformed("a list of the fastest tokens must contain every faster one that is known")
        ids, first = np.unique(np.concatenate([race.entries.ids, entries.ids]), return_index=True)
        codes = np.concatenate([race.entries.codes, entries.codes])[first]
        merged = np.concatenate([race.speeds, speeds])[first]
        threshold = min(race.threshold, slowest)
        return dataclasses.replace(race, entries=RaceEntries(ids, codes), speeds=merged, threshold=threshold)

    def _check(self, entries: RaceEntries, limit: int) -> None:
        if not 0 < len(entries.ids) <= limit or int(entries.ids[-1]) >= self._vocabulary:
            raise malformed(f"a race list must have 1 to {limit} tokens of the vocabulary")
        if not entries.codes.all():
            raise malformed("a race list must have positive probabilities only")

    def _threshold(self, speeds: NDArray[np.float64], depth: int) -> float:
        """The slowest of the `depth` fastest; 0 when no token beyond the list has a positive probability.

        Whatever else is listed, the fastest ones are.
        """
        if len(speeds) < depth or len(speeds) == self._vocabulary:
            return 0.0
        return float(speeds.min() if len(speeds) == depth else np.partition(speeds, -depth)[-depth])

    def _speeds(self, position: int, entries: RaceEntries) -> NDArray[np.float64]:
        key = np.uint64(position_key(self._seed, position))
        return race_speeds(entries.codes, entries.ids.astype(np.int64), key, self._temperature, TABLE)
