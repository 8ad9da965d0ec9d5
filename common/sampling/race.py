"""Race-coupled sampling: drafts by an exponential race on shared noise.

A side rounds its mixture p to the wire's code first and races on the rounded p̂:

    speed_i = p̂_i / E_{t,i}^T        draft = argmax_i speed_i

At T = 1 this is the exponential race (the Gumbel-max trick). argmax_i p_i / E_i^T is argmax_i p_i^(1/T) / E_i, so the
token follows p^(1/T), renormalised. p is any distribution linear in the speeds, such as the mixture of both sides for
summed speeds. Temperature 0 is the limit E^0 = 1.

The K fastest tokens travel as (id, code of p̂). The receiver computes E from the seed, for exactly the same speeds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.certificate import (
    WHOLE,
    Decision,
    JointToken,
    MissingHere,
    MissingThere,
    Outcome,
    RaceView,
    certify,
    eta_fixed,
    logprobs,
    lower_bound_winner,
)
from common.sampling.compiled import (
    IMPOSSIBLE,
    LINEAR_EXCESS,
    SLACK,
    VocabularyNoise,
    exponential_from_key,
    fastest_tokens,
    floor_log2,
    nearest_codes,
    position_key,
    race_bounds,
    race_noise,
    race_speeds,
    raised,
)
from proto.codes import TABLE, RaceEntries, decode_probabilities, decode_race, encode_race
from proto.errors import malformed
from proto.messages import MOST_NAMED, Side

# --- fastest
# The fastest tokens of races over a whole vocabulary, without computing every speed.

Found = tuple[NDArray[np.int64], NDArray[np.float64]]
Speeds = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]  # for (race, token) pairs

_GROUPS: Final = 4096  # token groups with a maximum each; sorting costs as much as finding the maxima
_FIRST_LOOK: Final = 4  # groups examined first, per wanted token; about 1.6 suffice on average
_WIDER: Final = 4


def fastest(bounds: torch.Tensor, depths: Sequence[int], speeds: Speeds) -> list[Found]:
    """The `depths[r]` fastest tokens of positive speed of every race r, by id.

    Ties go to the lowest ids. `speeds(races, ids)` are exact. `bounds` float32 `[races, vocab]` select the tokens to
    compute: log2 of a speed is at most SLACK above its bound. A bound below IMPOSSIBLE means speed 0. Useless bounds
    (NaN, many ties) lead to more tokens, in the end to all.
    """
    races, size = bounds.shape
    width = max(1, size // _GROUPS)
    groups = size // width
    body = bounds[:, : width * groups].view(races, width, groups)  # group g: the ids g, g + groups, ...
    tail = np.arange(width * groups, size)
    highest = body[:, 0] if width == 1 else body.amax(dim=1)
    found: dict[int, Found] = {}
    count = _FIRST_LOOK * max(depths)
    left = list(range(races))
    while left and count < groups:
        whole = len(left) == races
        rest = _look(
            body if whole else body[left], highest if whole else highest[left], count, tail, left, depths, speeds, found
        )
        left = [race for race, certain in zip(left, rest, strict=True) if not certain]
        count *= _WIDER
    for race in left:
        ids = np.arange(size)
        found[race] = best(ids, speeds(np.full(size, race), ids), depths[race])
    return [found[race] for race in range(races)]


def _look(
    body: torch.Tensor,
    highest: torch.Tensor,
    count: int,
    tail: NDArray[np.int64],
    races: Sequence[int],
    depths: Sequence[int],
    speeds: Speeds,
    found: dict[int, Found],
) -> list[bool]:
    """Returns per race whether the result from its `count` best groups is certain."""
    groups, width = highest.shape[1], body.shape[1]
    top, chosen = torch.topk(highest, count, sorted=False)
    rest = top.amin(dim=1).cpu().numpy().astype(np.float64)  # no skipped token has a higher bound
    places = chosen.cpu().numpy()
    if width == 1:
        row, ids = np.repeat(np.arange(len(races)), count), places.reshape(-1)
    else:
        looked_at = body.gather(2, chosen[:, None, :].expand(-1, width, -1)).cpu().numpy()
        row, members, columns = np.nonzero(looked_at >= rest[:, None, None])
        ids = members * groups + places[row, columns]
    ends = np.searchsorted(row, np.arange(len(races) + 1))
    parts = [np.concatenate([ids[ends[index] : ends[index + 1]], tail]) for index in range(len(races))]
    lengths = [len(part) for part in parts]
    exact = speeds(np.repeat(np.asarray(races), lengths), np.concatenate(parts))
    certain, start = [], 0
    for index, race in enumerate(races):
        stop = start + lengths[index]
        found[race] = best(parts[index], exact[start:stop], depths[race])
        slowest = float(found[race][1].min()) if len(found[race][1]) == depths[race] else 0.0
        limit = 2.0 ** min(rest[index] + SLACK, 1000.0) if rest[index] > -1000.0 else 0.0
        certain.append(bool(rest[index] < IMPOSSIBLE or slowest > limit))
        start = stop
    return certain


def best(ids: NDArray[np.int64], exact: NDArray[np.float64], depth: int) -> Found:
    """The `depth` fastest of `ids` [n], in any order, with speeds `exact` [n].

    Ties go to the lowest ids.
    """
    if len(ids) <= depth and exact.min(initial=1.0) > 0:
        order = ids.argsort()
        return ids[order], exact[order]
    slowest = float(np.partition(exact, -depth)[-depth]) if len(ids) > depth else 0.0
    kept = np.flatnonzero((exact >= slowest) & (exact > 0))
    kept = kept[np.argsort(ids[kept])]
    if len(kept) > depth:  # ties with the slowest one
        equal = exact[kept] == slowest
        kept = kept[~equal | (np.cumsum(equal) <= depth - np.count_nonzero(~equal))]
    return ids[kept], exact[kept]


# --- drafting
# Races of many answers at once, from mixtures `[races, vocab]`.


@dataclass(frozen=True, slots=True)
class Race:
    seed: int
    position: int
    temperature: float
    depth: int  # K


class RaceKernel:
    """Finds the fastest tokens of races over a vocabulary. One thread at a time."""

    def __init__(self, vocabulary: int, torch_device: torch.device | str = "cpu") -> None:
        self.vocabulary = vocabulary
        on_cpu = torch.device(torch_device).type == "cpu"
        self._noise = None if on_cpu else VocabularyNoise(vocabulary, torch_device)
        self._memory = np.empty(2 * vocabulary if on_cpu else 0, np.float32)
        self._rows = torch.empty(0, vocabulary)

    def rows(self, count: int) -> torch.Tensor | None:
        """Scratch memory for distributions, float32 `[count, vocab]`, until the next call, or None.

        Where the system takes freed blocks back, a new one costs as much as writing to it.
        """
        if self._noise is not None:
            return None
        if self._rows.shape[0] < count:
            self._rows = torch.empty(count, self.vocabulary)
        return self._rows if self._rows.shape[0] == count else self._rows[:count]

    def run(self, mixtures: torch.Tensor, races: Sequence[Race]) -> list[Found]:
        """The `depth` fastest tokens of each race with speeds p̂ / E**temperature, by id.

        `mixtures` are float32 `[races, vocab]`. Fewer result if fewer have a positive p̂.
        """
        if self._noise is None:
            rows = mixtures.contiguous().numpy()
            return [
                best(*fastest_tokens(row, _key(race), race.temperature, race.depth, TABLE, self._memory), race.depth)
                for row, race in zip(rows, races, strict=True)
            ]

        def speeds(which: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
            return decode_probabilities(codes_in(mixtures, which, ids)) / noise_of(races, which, ids)

        return fastest(self.bounds(mixtures, races), [race.depth for race in races], speeds)

    def bounds(self, mixtures: torch.Tensor, races: Sequence[Race]) -> torch.Tensor:
        """Upper bounds of log2 speeds, up to `compiled.SLACK`, float32 `[races, vocab]`."""
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
    """Codes of tokens `ids` [n] in a float32 mixture [vocab]; 0 for NaN."""
    if mixture.device.type == "cpu":
        return codes_of(mixture.numpy()[ids])
    return codes_of(mixture[torch.from_numpy(ids).to(mixture.device)].cpu().numpy())


def codes_in(mixtures: torch.Tensor, which: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.uint16]:
    """As `codes_at`, for (row, token) pairs [n] of `mixtures` `[rows, vocab]`."""
    return codes_at(mixtures.reshape(-1), which * mixtures.shape[1] + ids)


def codes_of(probabilities: NDArray[np.float32]) -> NDArray[np.uint16]:
    """`proto.codes.nearest` of float32 [n]."""
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


# --- race

RIVALS: Final = 8  # tokens of a race that may become the target; hardly ever another one does
ENTRY_BYTES: Final = 200  # bytes of a view per listed token, mostly for look-ups by id
FEW: Final = 16  # entries below which a local list grows before any request, without a round trip

Ids = Sequence[int] | NDArray[np.integer]
AnyRace = TypeVar("AnyRace", bound=RaceView)


@dataclass(frozen=True, slots=True, eq=False)
class LocalRace(RaceView):
    """This side's race: its list and its whole mixture."""

    probabilities: torch.Tensor  # float32 [vocab], not rounded, on the model's torch device
    race: Race

    def values(self, ids: Ids) -> RaceEntries:
        """The rounded probabilities of `ids`, in increasing order, code 0 included.

        Raises `ProtocolError` for unknown ids, which the peer names.
        """
        unique = np.unique(np.asarray(ids, dtype=np.int64))
        if not len(unique) or unique[0] < 0 or unique[-1] >= len(self.probabilities):
            raise malformed(f"values can be asked of at least one token, and of tokens below {len(self.probabilities)}")
        codes = codes_at(self.probabilities, unique)
        return RaceEntries(unique.astype(np.uint32), codes)

    def extend(self, depth: int, kernel: RaceKernel | None = None) -> RaceEntries:
        """The `depth` fastest tokens with a positive probability."""
        if depth < 1:
            raise malformed("a deeper list must have at least one entry")
        kernel = kernel or RaceKernel(len(self.probabilities), self.probabilities.device)
        (found,) = kernel.run(self.probabilities[None], [dataclasses.replace(self.race, depth=depth)])
        return self.values(found[0])


class RaceSampler:
    """The race on one side: drafts, reads the other side's lists, aggregates.

    `seed` (64 bits), `temperature` and `entries` (K) are equal on both sides. `vocabulary` counts the tokenizer's
    tokens. One thread at a time.
    """

    def __init__(
        self,
        seed: int,
        temperature: float,
        entries: int,
        vocabulary: int,
        likeliest: int = 0,
        *,
        exact: bool = True,
        hide_ids: bool = False,
        logprobs: int = 0,
    ) -> None:
        """`likeliest`: number of most probable tokens to list as well.

        `exact`: a failed certificate requests missing values; otherwise the highest lower bound wins. `hide_ids`: the
        request is a list of twice the length, because names reveal which tokens this side's documents favour. Doubled
        lists end in a certificate, too. `logprobs`: number of tokens with log-probabilities per decision. A target's
        missing value is then requested by its name, which becomes known anyway.
        """
        if entries < 1 or vocabulary < 1:
            raise ValueError(f"a race needs an entry and a token at least, not {entries} and {vocabulary}")
        self._seed = seed
        self._temperature = temperature
        self._entries = min(entries, vocabulary)
        self._vocabulary = vocabulary
        self._likeliest = min(likeliest, vocabulary)
        self._exact = exact
        self._hide_ids = hide_ids
        self._logprobs = logprobs

    # --- this side's drafts

    def race(self, position: int) -> Race:
        return Race(self._seed, position, self._temperature, self._entries)

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> LocalRace:
        """This side's draft from its float32 mixture [vocab] and the result of `race(position)`.

        Runs the race for None. Keeps the mixture, which must not change. Raises `ValueError` without a positive
        probability.
        """
        if found is None:
            return self.draft(position, probabilities)
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
        """Races on this side's mixture [vocab] alone; see `drafted`."""
        if probabilities.shape != (self._vocabulary,):
            raise ValueError(f"a mixture must be [{self._vocabulary}], not {tuple(probabilities.shape)}")
        exact = probabilities.to(torch.float32)
        kernel = kernel or RaceKernel(self._vocabulary, exact.device)
        (found,) = kernel.run(exact[None], [self.race(position)])
        return self.drafted(position, exact, found)

    def rivals(self, view: RaceView | JointToken) -> list[tuple[int, float]]:
        """The fastest tokens of a view with log speeds, the draft first."""
        return [] if isinstance(view, JointToken) else view.fastest(RIVALS)

    def pack(self, view: RaceView) -> bytes:
        return encode_race(view.entries)

    def footprint(self, view: RaceView) -> int:
        return ENTRY_BYTES * len(view.entries.ids)

    def alone(self, position: int, view: RaceView | JointToken) -> Outcome:
        if isinstance(view, JointToken):
            return Decision(view.token, logprobs=view.logprobs)
        told = logprobs(view, None, WHOLE, view.token, self._logprobs) if self._logprobs else None
        return Decision(view.token, logprobs=told)

    # --- both sides' drafts

    def aggregate(
        self, role: Side, position: int, device: RaceView, cloud: RaceView, evidence: tuple[float, float]
    ) -> Outcome:
        """Certifies a token from both lists, or names missing values, the local ones first.

        Of two short lists, the one with the looser bound grows. Growing only the other might never exclude all rivals.
        """
        eta = eta_fixed(*evidence)
        outcome = certify(device, cloud, eta)
        if isinstance(outcome, int):
            lacking = _unknown(outcome, device, cloud) if self._logprobs and self._exact else None
            return lacking or self._decided(outcome, device, cloud, eta)
        if not self._exact:
            return self._decided(lower_bound_winner(device, cloud, eta), device, cloud, eta)
        local, remote = (device, cloud) if role == "device" else (cloud, device)
        of_local, of_remote = outcome.device_ids, outcome.cloud_ids
        local_cap, remote_cap = eta * device.threshold, (WHOLE - eta) * cloud.threshold
        if role == "cloud":
            of_local, of_remote, local_cap, remote_cap = of_remote, of_local, remote_cap, local_cap
        if of_local:
            return MissingHere(of_local, 0)
        few = len(local.entries.ids) < FEW
        if outcome.deeper and local_cap > 0 and (few or local_cap >= remote_cap):
            return MissingHere((), 2 * len(local.entries.ids))
        if outcome.deeper or self._hide_ids:
            return MissingThere((), 2 * len(remote.entries.ids))
        return MissingThere(of_remote[:MOST_NAMED], 0)

    def _decided(self, token: int, device: RaceView, cloud: RaceView, eta_device: int) -> Decision:
        of_device = eta_device * device.speed_of.get(token, 0.0)
        of_cloud = (WHOLE - eta_device) * cloud.speed_of.get(token, 0.0)
        told = logprobs(device, cloud, eta_device, token, self._logprobs) if self._logprobs else None
        return Decision(token, cloud_share=of_cloud / (of_device + of_cloud), logprobs=told)

    # --- values beyond the lists

    def check_resolve(self, ids: Sequence[int], depth: int) -> None:
        if (not ids and not depth) or max(ids, default=0) >= self._vocabulary:
            raise malformed(f"values can be asked of at least one token, and of tokens below {self._vocabulary}")

    def supply(self, view: LocalRace, ids: Sequence[int], depth: int) -> bytes:
        """Values of the `depth` fastest tokens, or of `ids` if `depth` is 0."""
        return encode_race(view.extend(depth) if depth else view.values(ids))

    def complete(self, view: AnyRace, position: int, ids: Sequence[int], depth: int, payload: bytes) -> AnyRace:
        named = () if depth else sorted({*ids})
        entries = decode_race(payload, self._vocabulary, min(depth, self._vocabulary) or len(named))
        if named and entries.ids.tolist() != named:
            raise malformed("values must be of the tokens that were asked for")
        return self.extend(view, depth, entries)

    # --- the other side's lists

    def read(self, side: Side, position: int, payload: bytes) -> RaceView:
        return self.receive(position, decode_race(payload, self._vocabulary, self._vocabulary))

    def receive(self, position: int, entries: RaceEntries) -> RaceView:
        """The race from a list of the other side's K fastest tokens.

        Raises `ProtocolError` for an impossible list.
        """
        self._check(entries, min(self._entries + self._likeliest, self._vocabulary))
        speeds = self._speeds(position, entries)
        return RaceView(position, entries, speeds, self._threshold(speeds, self._entries))

    def extend(self, race: AnyRace, depth: int, entries: RaceEntries) -> AnyRace:
        """`race` with more values: of named tokens (`depth` 0), or of the `depth` fastest.

        Answers may arrive twice, in any order, so a list may be shorter than the known one. Raises `ProtocolError` for
        contradictions.
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
        # A token as fast as the slowest may be missing: lists cut ties by id.
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
        """The slowest of the `depth` fastest; 0 if no unlisted token is possible.

        Any list includes the fastest ones.
        """
        if len(speeds) < depth or len(speeds) == self._vocabulary:
            return 0.0
        return float(speeds.min() if len(speeds) == depth else np.partition(speeds, -depth)[-depth])

    def _speeds(self, position: int, entries: RaceEntries) -> NDArray[np.float64]:
        key = np.uint64(position_key(self._seed, position))
        return race_speeds(entries.codes, entries.ids.astype(np.int64), key, self._temperature, TABLE)


def _unknown(token: int, own: RaceView, other: RaceView) -> MissingHere | MissingThere | None:
    if own.threshold > 0 and token not in own.speed_of:
        return MissingHere((token,), 0)
    return MissingThere((token,), 0) if other.threshold > 0 and token not in other.speed_of else None


# --- racing
# Races that keep only the winner.


@dataclass(frozen=True, slots=True)
class RaceWinner:
    token: int
    confidence: float = 0.0

    @property
    def listed(self) -> NDArray[np.integer]:
        return np.asarray([self.token])


@dataclass(frozen=True, slots=True)
class Racing:
    """Implements `Drafter` and keeps only a race's winner."""

    seed: int
    temperature: float

    def race(self, position: int) -> Race:
        return Race(self.seed, position, self.temperature, 1)

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> RaceWinner:
        """Raises `ValueError` for a mixture without a positive probability."""
        if found is None or not len(found[0]):
            raise ValueError(f"the mixture at position {position} has no positive probability")
        return RaceWinner(int(found[0][0]), float(probabilities.max()))
