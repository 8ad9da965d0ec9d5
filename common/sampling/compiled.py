"""Compiled loops over tokens: race noise, fastest tokens, and other draws.

Integers wrap around. Each machine compiles them in seconds. Constructs that numba compiles slowly (sorting,
concatenation, assigned slices) are written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import factorial
from typing import Any, Final, Protocol

import numba
import numpy as np
import torch
from numpy.typing import NDArray

from proto.codes import LARGEST, STEPS_PER_OCTAVE, extend


def compiled(function: Callable[..., Any], *, without_gil: bool = False) -> Any:
    """Compiles `function` at its first call, and caches it for later processes if possible.

    The bits are equal everywhere: IEEE operations in source order, none fused or reordered. With `without_gil` other
    threads run meanwhile.
    """
    try:
        return numba.njit(cache=True, nogil=without_gil)(function)
    except RuntimeError:  # no writable cache, neither beside the file nor the user's
        return numba.njit(nogil=without_gil)(function)


# --- loops

GOLDEN: Final = 0x9E3779B97F4A7C15
_GOLDEN: Final = np.uint64(GOLDEN)
FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9
_FIRST_FACTOR: Final = np.uint64(FIRST_FACTOR)
SECOND_FACTOR: Final = 0x94D049BB133111EB
_SECOND_FACTOR: Final = np.uint64(SECOND_FACTOR)
_MANTISSA_BITS: Final = np.int64(52)
_ONE_BITS: Final = np.uint64(0x3FF << 52)
_SQRT_HALF_BITS: Final = np.int64(0x3FE6A09E667F3BCD)
# 1 + m 2**-52 minus this is (2m + 1) 2**-53: never 0, never 1, and exact
_UNIT_OFFSET: Final = 1.0 - 2.0**-53
_LN2: Final = 0.6931471805599453
# log z = 2 artanh s = s (2 + 2/3 s^2 + 2/5 s^4 + ...), s = (z - 1) / (z + 1), z in [sqrt(1/2), sqrt(2)). Six terms
# leave a relative error below 6e-11, a thousandth of the later float32 rounding.
_ARTANH: Final = tuple(2.0 / (2 * k + 1) for k in range(6))
_INVERSE_LN2: Final = 1.4426950408889634
# exp r = 1 + r + r^2/2 + ... for |r| <= ln(2)/2: ten terms leave a relative error below 1e-11
_EXPONENTIAL: Final = tuple(1.0 / factorial(k) for k in range(10))

LINEAR_EXCESS: Final = 0.0861  # octaves; log2(1 + m) - m is at most this for m in [0, 1]
# The code of p is off by up to a share of 1.75e-4 (half a step plus float32), E and the bound by 3e-5. So no speed is
# above 2**SLACK times its bound.
SLACK: Final = 2.0**-9  # octaves
# Every bound is at least log2 p, and a p below this has code 0.
IMPOSSIBLE: Final = -33.0
_LEAST: Final = 2.0**IMPOSSIBLE

_GROUPS: Final = 8  # token groups per wanted token, each with a maximum; few have two of the fastest
_LARGEST_GROUP: Final = 128  # tokens
_BLOCK: Final = 4096  # tokens summed over all documents while they are in the cache
_SUMS: Final = 256  # partial sums of a row: a single one would make each addition wait


def _exponentials(keys: NDArray[np.uint64], ids: NDArray[np.int64], noise: NDArray[np.float32]) -> None:
    words = np.empty(len(ids), np.uint64)
    for place in range(len(ids)):
        word = np.uint64(ids[place]) * _GOLDEN + keys[place]
        word = (word ^ (word >> np.uint64(30))) * _FIRST_FACTOR
        word = (word ^ (word >> np.uint64(27))) * _SECOND_FACTOR
        word = word ^ (word >> np.uint64(31))
        words[place] = (word >> np.uint64(12)) | _ONE_BITS
    units = words.view(np.float64)
    for place in range(len(ids)):
        units[place] -= _UNIT_OFFSET
    logarithms(units)
    for place in range(len(ids)):
        noise[place] = np.float32(-units[place])


def _logarithms(values: NDArray[np.float64]) -> None:
    bits = values.view(np.int64)
    for place in range(len(values)):
        octave = (bits[place] - _SQRT_HALF_BITS) >> _MANTISSA_BITS
        bits[place] -= octave << _MANTISSA_BITS
        z = values[place]
        s = (z - 1.0) / (z + 1.0)
        square = s * s
        series = square * _ARTANH[5]
        series = (series + _ARTANH[4]) * square
        series = (series + _ARTANH[3]) * square
        series = (series + _ARTANH[2]) * square
        series = (series + _ARTANH[1]) * square
        series = (series + _ARTANH[0]) * s
        values[place] = octave * _LN2 + series


def _powers(noise: NDArray[np.float32], temperatures: NDArray[np.float64], result: NDArray[np.float32]) -> None:
    values = noise.astype(np.float64)
    logarithms(values)
    octaves = np.empty(1, np.int64)
    whole = octaves.view(np.float64)
    for place in range(len(noise)):
        if temperatures[place] == 1.0:
            result[place] = noise[place]
            continue
        power = temperatures[place] * values[place]
        octave = np.rint(power * _INVERSE_LN2)
        rest = power - octave * _LN2
        series = rest * _EXPONENTIAL[9]
        for term in range(8, 0, -1):
            series = (series + _EXPONENTIAL[term]) * rest
        octaves[0] = (np.int64(octave) + np.int64(0x3FF)) << _MANTISSA_BITS  # the exponent's bits: 2 ** octave
        result[place] = np.float32((series + 1.0) * whole[0])


def _bounds(
    mixture: NDArray[np.float32], key: np.uint64, temperature: float, floors: NDArray[np.float32]
) -> NDArray[np.float32]:
    """At least log2 of every token's p / E**T. `floors` is scratch memory, twice the mixture's length."""
    size = len(mixture)
    bounds = floors[size:]
    scale, excess = np.float32(2.0**-23), np.float32(LINEAR_EXCESS - 127.0)
    numbers = mixture.view(np.int32)
    for token in range(size):
        bounds[token] = np.float32(numbers[token]) * scale + excess
    if temperature > 0.0:
        noise = floors[:size]
        for token in range(size):
            word = np.uint64(token) * _GOLDEN + key
            word = (word ^ (word >> np.uint64(30))) * _FIRST_FACTOR
            word = (word ^ (word >> np.uint64(27))) * _SECOND_FACTOR
            # The hash's last step leaves the 31 highest bits: 1 - u in units of 2**-31, rounded down.
            noise[token] = np.float32(np.int32(2147483647) - np.int32(word >> np.uint64(33)))
        factor, offset = np.float32(temperature), np.float32(158.0)
        units = noise.view(np.int32)
        for token in range(size):
            bounds[token] -= factor * (np.float32(units[token]) * scale - offset)
    return bounds


def _codes(probabilities: NDArray[np.float32], codes: NDArray[np.uint16]) -> None:
    for place in range(len(probabilities)):
        p = np.float64(probabilities[place])
        code = 0.0
        if p >= _LEAST:  # half of the smallest rounds to code 0, and NaN, too
            code = max(0.0, np.rint(math.log2(min(p, 1.0)) * STEPS_PER_OCTAVE) + LARGEST)
        codes[place] = np.uint16(code)


def _members(
    bounds: NDArray[np.float32], highest: NDArray[np.float32], least: np.float32, below: np.float32
) -> NDArray[np.int64]:
    """Tokens with bounds in [`least`, `below`). `highest` are the bounds' maxima by group."""
    size, groups = len(bounds), len(highest)
    ids = np.empty(256, np.int64)
    found = 0
    for group in range(groups):
        if highest[group] >= least:
            for token in range(group, size, groups):
                if least <= bounds[token] < below:
                    if found == len(ids):
                        ids = joined(ids, ids)
                    ids[found] = token
                    found += 1
    return ids[:found]


def _joined(these: NDArray[Any], those: NDArray[Any]) -> NDArray[Any]:
    both = np.empty(len(these) + len(those), these.dtype)
    for place in range(len(these)):
        both[place] = these[place]
    for place in range(len(those)):
        both[len(these) + place] = those[place]
    return both


def _speeds(
    codes: NDArray[np.uint16], ids: NDArray[np.int64], key: np.uint64, temperature: float, table: NDArray[np.float64]
) -> NDArray[np.float64]:
    speeds = table[codes]
    if temperature > 0.0:
        noise = np.empty(len(ids), np.float32)
        exponentials(np.full(len(ids), key), ids, noise)
        if temperature != 1.0:
            powers(noise, np.full(len(ids), temperature), noise)
        for place in range(len(ids)):
            speeds[place] /= np.float64(noise[place])
    return speeds


def _speeds_of(
    mixture: NDArray[np.float32], ids: NDArray[np.int64], key: np.uint64, temperature: float, table: NDArray[np.float64]
) -> NDArray[np.float64]:
    codes = np.empty(len(ids), np.uint16)
    nearest_codes(mixture[ids], codes)
    return race_speeds(codes, ids, key, temperature, table)


def _kth(numbers: NDArray[np.float64], depth: int) -> float:
    """The `depth`-th largest number, or minus infinity; reorders them (Hoare's selection)."""
    place, first, last = len(numbers) - depth, 0, len(numbers) - 1
    if place < 0:
        return -math.inf
    while first < last:
        pivot, low, high = numbers[place], first, last
        while low <= high:
            while numbers[low] < pivot:
                low += 1
            while pivot < numbers[high]:
                high -= 1
            if low <= high:
                numbers[low], numbers[high] = numbers[high], numbers[low]
                low += 1
                high -= 1
        if high < place:
            first = low
        if place < low:
            last = high
    return float(numbers[place])


def _fastest(
    mixture: NDArray[np.float32],
    key: np.uint64,
    temperature: float,
    depth: int,
    table: NDArray[np.float64],
    memory: NDArray[np.float32],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    size = len(mixture)
    bounds = race_bounds(mixture, key, temperature, memory)
    groups = min(size, max(_GROUPS * depth, size // _LARGEST_GROUP))
    highest = memory[:groups]  # reuses the noise's memory
    for place in range(groups):
        highest[place] = bounds[place]
    for start in range(groups, size, groups):
        part = bounds[start : start + groups]
        for place in range(len(part)):
            highest[place] = part[place] if part[place] > highest[place] else highest[place]
    # The probably fastest tokens. As many of them as wanted bound all others.
    first = np.float32(kth(highest.astype(np.float64), depth))
    ids = members(bounds, highest, first, np.float32(math.inf))
    speeds = speeds_of(mixture, ids, key, temperature, table)
    slowest = kth(speeds.copy(), depth)
    least = np.float32(math.log2(slowest) - SLACK) if slowest > 0.0 else np.float32(IMPOSSIBLE)
    if least < first:
        others = members(bounds, highest, least, first)
        ids = joined(ids, others)
        speeds = joined(speeds, speeds_of(mixture, others, key, temperature, table))
        slowest = kth(speeds.copy(), depth)
    kept = 0
    for place in range(len(ids)):
        if speeds[place] > 0.0 and speeds[place] >= slowest:
            ids[kept], speeds[kept] = ids[place], speeds[place]
            kept += 1
    return ids[:kept], speeds[:kept]


def _add_shares(rows: NDArray[np.float32], shares: NDArray[np.float32], mixture: NDArray[np.float32]) -> None:
    for start in range(0, len(mixture), _BLOCK):
        part = mixture[start : start + _BLOCK]
        for place in range(len(part)):
            part[place] = 0.0
        for document in range(len(shares)):
            own, share = rows[document, start : start + _BLOCK], shares[document]
            for place in range(len(part)):
                part[place] += own[place] * share


def _divergence(
    row: NDArray[np.float32], logits: NDArray[np.float32], others: NDArray[np.float32], offset: float
) -> float:
    sums = np.empty(_SUMS)
    for place in range(_SUMS):
        sums[place] = 0.0
    for start in range(0, len(row), _SUMS):
        part, own, other = row[start : start + _SUMS], logits[start : start + _SUMS], others[start : start + _SUMS]
        for place in range(len(part)):
            moved = np.float64(own[place]) - np.float64(other[place]) - offset
            # A token with probability 0 in the row has share 0, whatever its logits.
            sums[place] += 0.0 if part[place] == 0.0 else np.float64(part[place]) * moved
    total = 0.0
    for place in range(_SUMS):
        total += sums[place]
    return total


def _softmax_of(scores: NDArray[np.float64], shares: NDArray[np.float64]) -> float:
    highest = -math.inf
    for score in scores:
        if not math.isfinite(score):
            return math.nan
        highest = max(highest, score)
    total = 0.0
    for place in range(len(scores)):
        shares[place] = math.exp(scores[place] - highest)
        total += shares[place]
    for place in range(len(scores)):
        shares[place] /= total
    return highest + math.log(total)


logarithms: Callable[[NDArray[np.float64]], None] = compiled(_logarithms)
"""ln of positive, normal float64 numbers, in place."""

exponentials: Callable[[NDArray[np.uint64], NDArray[np.int64], NDArray[np.float32]], None] = compiled(_exponentials)
"""Exp(1) noise of tokens `ids` [n] with keys [n], written to the third array [n]."""

powers: Callable[[NDArray[np.float32], NDArray[np.float64], NDArray[np.float32]], None] = compiled(_powers)
"""noise ** temperature, element by element, as exp(temperature · ln noise); unchanged at 1."""

race_bounds: Callable[..., NDArray[np.float32]] = compiled(_bounds)

nearest_codes: Callable[[NDArray[np.float32], NDArray[np.uint16]], None] = compiled(_codes)
"""`proto.codes.nearest` of probabilities [n], written to the second array [n]."""

race_speeds: Callable[..., NDArray[np.float64]] = compiled(_speeds)
"""p̂ / E**temperature of tokens `ids` [n] with codes [n]. `table` decodes codes."""

joined = compiled(_joined)
members = compiled(_members)
speeds_of = compiled(_speeds_of)
kth = compiled(_kth)

fastest_tokens: Callable[..., tuple[NDArray[np.int64], NDArray[np.float64]]] = compiled(_fastest)
"""The `depth` fastest tokens of a race on a mixture [vocab] and all ties.

Unordered, with exact positive speeds. `table` decodes codes; `memory` is float32, twice the vocabulary.
"""

add_shares: Callable[[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]], None] = compiled(_add_shares)
"""Σ share · row of `rows` [docs, vocab] and shares [docs], in order.

The result [vocab] fills the third array.
"""

divergence: Callable[..., float] = compiled(_divergence)
"""KL of a distribution [vocab] with its logits from another's logits.

All are float32 [vocab]. The offset is the difference of their ln Σ exp logit.
"""

softmax_of: Callable[[NDArray[np.float64], NDArray[np.float64]], float] = compiled(_softmax_of)
"""logsumexp of scores [docs], NaN if one isn't finite.

The softmax fills the second array.
"""


# --- noise
# Counter-based randomness, equal on every machine: no random number is ever exchanged.
#
# `race_noise` is the noise of (seed, position, token): E_{t,i} ~ Exp(1), to the power of the temperature.
# `VocabularyNoise` finds the few tokens that need it. `uniform` serves the paper's sampler, drafting and verifying.
#
# Both are hashes in wrap-around 64-bit arithmetic (the finaliser of splitmix64: Steele, Lea, Flood 2014, with the
# constants of Stafford's variant 13). A token's counter is `key + id * GOLDEN`: a position's noise is a stretch of a
# splitmix64 sequence.
#
# Logarithm and exponential are made of IEEE operations here: libraries differ in the last bit between machines.

_WORD: Final = (1 << 64) - 1
_POSITION_FACTOR: Final = 0xD1342543DE82EF95  # odd, so distinct positions keep distinct counters
_UNIFORM_DOMAIN: Final = 0x5851F42D4C957F2D  # keeps the uniforms of a seed apart from its race noise


class Purpose(IntEnum):
    """Purpose of a uniform draw, keyed by side, not by the computing machine."""

    DRAFT_DEVICE = 1
    DRAFT_CLOUD = 2
    ACCEPT_DEVICE = 3
    ACCEPT_CLOUD = 4
    RESIDUAL_DEVICE = 5
    RESIDUAL_CLOUD = 6
    CHOICE = 7
    PLACEMENT = 8
    PROPOSE = 9  # a draft token to be verified
    ACCEPT = 10  # whether to accept it
    RESIDUAL = 11  # the token in its place
    BONUS = 12  # the token after a whole proposal


def position_key(seed: int, position: int) -> int:
    """64-bit key of the noise at `position`, unrelated for neighbouring seeds and positions."""
    return _mix(_mix(seed + GOLDEN) + position * _POSITION_FACTOR)


def uniform(seed: int, position: int, purpose: Purpose, prefix: int = 0) -> float:
    """A uniform in (0, 1), independent per (seed, position, purpose, prefix).

    `prefix` is the digest of the tokens before `position`, if they matter.
    """
    word = _mix(position_key(seed ^ _UNIFORM_DOMAIN ^ _mix(prefix), position) + purpose * GOLDEN)
    return float((word >> 11) | 1) * 2.0**-53


def race_noise(
    seed: int, position: int, ids: Sequence[int] | NDArray[np.integer], temperature: float
) -> NDArray[np.float32]:
    """E_{t,i} ** temperature of tokens `ids` [n], positive float32 [n]."""
    if temperature == 0:
        return np.ones(len(ids), dtype=np.float32)
    return raised(exponential(seed, position, ids), temperature)


def exponential(seed: int, position: int, ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
    """E_{t,i} ~ Exp(1) of tokens `ids` [n], positive float32 [n]."""
    return exponential_from_key(np.uint64(position_key(seed, position)), ids)


def exponential_from_key(
    key: np.uint64 | NDArray[np.uint64], ids: Sequence[int] | NDArray[np.integer]
) -> NDArray[np.float32]:
    """As `exponential`, for one key or keys broadcast against `ids`."""
    tokens = np.asarray(ids, dtype=np.int64)
    if np.shape(key) not in ((), tokens.shape):
        key, tokens = (np.ascontiguousarray(each) for each in np.broadcast_arrays(key, tokens))
    keys = np.empty(tokens.shape, np.uint64)
    keys[...] = key
    noise = np.empty(tokens.shape, np.float32)
    exponentials(keys.reshape(-1), tokens.reshape(-1), noise.reshape(-1))
    return noise


def raised(noise: NDArray[np.float32], temperature: float | NDArray[np.float64]) -> NDArray[np.float32]:
    """noise ** temperature, float32, for temperatures from 0 to 2.

    `temperature` is one number or one per number. Computed as exp(temperature · ln noise); unchanged at 1.
    """
    if isinstance(temperature, float) and temperature == 1:
        return noise
    result = np.empty(noise.shape, np.float32)
    each = np.empty(noise.shape, np.float64)
    each[...] = temperature
    powers(np.ascontiguousarray(noise).reshape(-1), each.reshape(-1), result.reshape(-1))
    return result


class VocabularyNoise:
    """A lower bound of every token's log2 E, on a torch device.

    Few tokens decide a race, and the logarithm dominates the cost. So the vocabulary is hashed in integers, with a
    bound instead:

        E = -ln u >= 1 - u,    log2(1 - u) >= the bits of 1 - u as a fixed-point number

    It is tight for fast tokens, with u near 1. Their E is then `exponential`'s.
    """

    def __init__(self, vocabulary: int, torch_device: torch.device | str) -> None:
        counters = np.arange(vocabulary, dtype=np.uint64) * np.uint64(GOLDEN)
        self._counters = torch.from_numpy(counters.view(np.int64)).to(torch_device)

    def floors(self, keys: Sequence[int]) -> torch.Tensor:
        """At most log2 E of every token, float32 `[keys, vocab]`, for `position_key`s.

        Rounding may exceed log2 E by 2e-5 at most.
        """
        word = self._counters + torch.tensor([_signed(key) for key in keys], device=self._counters.device)[:, None]
        for bits, factor in ((30, FIRST_FACTOR), (27, SECOND_FACTOR)):
            # Torch shifts int64 arithmetically; the mask makes it a logical shift.
            word ^= (word >> bits) & ((1 << (64 - bits)) - 1)
            word *= _signed(factor)
        # The hash's last step leaves the 31 highest bits: 1 - u in units of 2**-31, rounded down.
        left = (2**31 - 1) - ((word >> 33) & (2**31 - 1))
        return floor_log2(left.to(torch.float32), add=-31.0)


def floor_log2(values: torch.Tensor, *, add: float = 0.0) -> torch.Tensor:
    """At most log2 of positive float32 `values`, plus `add`; -127 plus `add` for 0.

    Less than LINEAR_EXCESS below it: a float's bits as a fixed-point number are its exponent and, after the point, its
    mantissa.
    """
    return values.view(torch.int32).to(torch.float32).mul_(2.0**-23).add_(add - 127.0)


def _mix(word: int) -> int:
    word &= _WORD
    word = (word ^ (word >> 30)) * FIRST_FACTOR & _WORD
    word = (word ^ (word >> 27)) * SECOND_FACTOR & _WORD
    return word ^ (word >> 31)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


# --- draws
# Random decisions of an algorithm, keyed by purpose.


class Draws(Protocol):
    """Decision points of the algorithm. Tests enumerate them."""

    def happens(self, purpose: Purpose, probability: float) -> bool: ...

    def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
        """Returns an index of non-negative `weights` [n], in proportion; not all are 0."""
        ...


@dataclass(frozen=True, slots=True)
class DrawPoint:
    """A draw's location: after `position` tokens with digest `prefix`."""

    position: int
    prefix: int

    def behind(self, token: int) -> DrawPoint:
        return DrawPoint(self.position + 1, extend(self.prefix, token))


@dataclass(frozen=True, slots=True)
class SeededDraws:
    """The draws at one position; they depend on `prefix` unless it is 0."""

    seed: int
    position: int
    prefix: int = 0

    def happens(self, purpose: Purpose, probability: float) -> bool:
        return self._uniform(purpose) < probability

    def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
        """Inverts the cumulative distribution, summed from left to right, equal on every machine.

        The uniform is strictly between 0 and 1: weight 0 is never picked.
        """
        cumulative = weights.cumsum()
        return int(cumulative.searchsorted(self._uniform(purpose) * cumulative[-1]))

    def _uniform(self, purpose: Purpose) -> float:
        return uniform(self.seed, self.position, purpose, self.prefix)


DrawsAt = Callable[[DrawPoint], Draws]  # the draws at a location


def seeded(seed: int) -> DrawsAt:
    return lambda place: SeededDraws(seed, place.position, place.prefix)
