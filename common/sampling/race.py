"""Race-coupled sampling: drafts by exponential race on shared noise, and what is told of them.

A side rounds its mixture p to the wire's code first and races on the rounded p̂:

    speed_i = p̂_i / E_{t,i}        draft = argmax_i speed_i        (exponential race, the Gumbel-max trick)

The K fastest tokens travel as (id, code of p̂); the receiver computes E again from the seed, so that both
hold the same speeds to the last bit. Temperature 0 is the same race with E = 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.fastest import race
from common.sampling.logcode import dequantise, quantise
from common.sampling.noise import VocabularyNoise, exponential
from common.sampling.view import RaceView
from proto.errors import malformed
from proto.logcode import decode
from proto.payloads.race import RaceEntries

Ids = Sequence[int] | NDArray[np.integer]
AnyRace = TypeVar("AnyRace", bound=RaceView)


@dataclass(frozen=True, slots=True, eq=False)
class RemoteRace(RaceView):
    """The other side's race, as its list tells it."""


@dataclass(frozen=True, slots=True, eq=False)
class LocalRace(RaceView):
    """This side's race: what it sends, and the whole rounded mixture behind it."""

    codes: torch.Tensor  # uint16 [vocab], on the model's torch device
    seed: int
    temperature: float

    def values(self, ids: Ids) -> RaceEntries:
        """The rounded probabilities of `ids`, in increasing order, code 0 included.

        Raises `ProtocolError` for ids outside of the vocabulary: it is the peer that names them.
        """
        unique = np.unique(np.asarray(ids, dtype=np.int64))
        if not len(unique) or unique[0] < 0 or unique[-1] >= len(self.codes):
            raise malformed(f"values can be asked of at least one token, and of tokens below {len(self.codes)}")
        codes = self.codes[torch.from_numpy(unique).to(self.codes.device)]
        return RaceEntries(unique.astype(np.uint32), codes.cpu().numpy())

    def deeper(self, depth: int) -> RaceEntries:
        """The `depth` fastest tokens, fewer when fewer have a positive probability. Any thread may ask."""
        if depth < 1:
            raise malformed("a deeper list must have at least one entry")
        # Memory of its own: another thread may be drafting.
        noise = VocabularyNoise(len(self.codes), self.codes.device) if self.temperature > 0 else None
        rounded = dequantise(self.codes).to(torch.float32)
        return self.values(race(rounded, self.codes, depth, self.seed, self.position, noise)[0])


class RaceSampler:
    """Drafts one side's tokens of one answer, and reads the other side's lists. For one thread at a time.

    `seed` (64 bits), `temperature` and `entries` (K) are the session's, the same on both sides. `vocabulary`
    counts the tokenizer's tokens. Sessions that draft in one thread may share `noise`, which is the working
    memory.
    """

    def __init__(
        self,
        seed: int,
        temperature: float,
        entries: int,
        vocabulary: int,
        torch_device: torch.device | str = "cpu",
        noise: VocabularyNoise | None = None,
    ) -> None:
        if entries < 1 or vocabulary < 1:
            raise ValueError(f"a race needs an entry and a token at least, not {entries} and {vocabulary}")
        self._seed = seed
        self._temperature = temperature
        self._entries = min(entries, vocabulary)
        self._vocabulary = vocabulary
        # Fresh memory of this size would come from the kernel, page by page, for every draft.
        self._working = torch.empty(vocabulary, dtype=torch.float32, device=torch_device)
        self._noise: VocabularyNoise | None = None
        if temperature > 0:
            self._noise = noise or VocabularyNoise(vocabulary, torch_device)

    def draft(self, position: int, probabilities: torch.Tensor) -> LocalRace:
        """Race on this side's mixture, float [vocab] at the session's temperature.

        Raises `ValueError` for another shape and for a mixture without a positive probability.
        """
        if probabilities.shape != (self._vocabulary,):
            raise ValueError(f"a mixture must be [{self._vocabulary}], not {tuple(probabilities.shape)}")
        exact = probabilities.to(torch.float32)
        codes = quantise(exact, self._working)
        ids, speeds = race(exact, codes, self._entries, self._seed, position, self._noise)
        if not len(ids):
            raise ValueError(f"the mixture at position {position} has no positive probability")
        listed = codes[torch.from_numpy(ids).to(codes.device)].cpu().numpy()
        entries = RaceEntries(ids.astype(np.uint32), listed)
        threshold = self._threshold(speeds, self._entries)
        return LocalRace(position, entries, speeds, threshold, codes, self._seed, self._temperature)

    def receive(self, position: int, entries: RaceEntries) -> RemoteRace:
        """The race that a list of the other side's K fastest tokens tells of.

        Raises `ProtocolError` for a list that no race can have sent.
        """
        self._check(entries, self._entries)
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
        """The slowest of a full list; 0 when no token beyond the list has a positive probability."""
        if len(speeds) < depth or len(speeds) == self._vocabulary:
            return 0.0
        return float(speeds.min())

    def _speeds(self, position: int, entries: RaceEntries) -> NDArray[np.float64]:
        rounded = decode(entries.codes)
        if self._noise is None:
            return rounded
        return rounded / exponential(self._seed, position, entries.ids)
