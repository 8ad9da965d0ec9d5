"""Compiled loops over tokens: a race's noise and its candidates. Integers wrap around in them."""

from __future__ import annotations

import math
from collections.abc import Callable
from math import factorial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.process.compilation import compiled

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR: Final = np.uint64(0x94D049BB133111EB)
_MANTISSA_BITS: Final = np.int64(52)
_ONE_BITS: Final = np.uint64(0x3FF << 52)  # the bits of 1.0
_SQRT_HALF_BITS: Final = np.int64(0x3FE6A09E667F3BCD)  # the bits of sqrt(1/2)
# 1 + m 2**-52 minus this is (2m + 1) 2**-53: never 0, never 1, and exact
_UNIT_OFFSET: Final = 1.0 - 2.0**-53
_LN2: Final = 0.6931471805599453
# log z = 2 artanh s = s (2 + 2/3 s^2 + 2/5 s^4 + ...) with s = (z - 1) / (z + 1), z in [sqrt(1/2), sqrt(2)):
# six terms leave a relative error below 6e-11, a thousandth of the rounding to float32 that follows
_ARTANH: Final = tuple(2.0 / (2 * k + 1) for k in range(6))
_INVERSE_LN2: Final = 1.4426950408889634
# exp r = 1 + r + r^2/2 + ... for |r| <= ln(2)/2: ten terms leave a relative error below 1e-11
_EXPONENTIAL: Final = tuple(1.0 / factorial(k) for k in range(10))

LINEAR_EXCESS: Final = 0.0861  # octaves; log2(1 + m) - m is at most this for m in [0, 1]
# The code of p is off by up to 1.75e-4 of it, E by 3e-5: twice their sum, and room for what float32 rounds.
_TOLERANCE: Final = 1e-3
_MARGIN: Final = 2.0**-8  # octaves; more than the tolerance, and what a bound in float32 may be too low
_LEAST: Final = 2.0**-33  # below it a probability has code 0
_CERTAIN: Final = 2.0**-31.99  # from it on it has another one

_BLOCK: Final = 64  # tokens that are looked at together


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
    """At least log2 of every token's p / E**T. `floors` is memory of the mixture's length, twice."""
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
            # The hash's last step leaves the 31 highest bits as they are: of 1 - u, in units of 2**-31, rounded down.
            noise[token] = np.float32(np.int32(2147483647) - np.int32(word >> np.uint64(33)))
        factor, offset = np.float32(temperature), np.float32(158.0)
        units = noise.view(np.int32)
        for token in range(size):
            bounds[token] -= factor * (np.float32(units[token]) * scale - offset)
    return bounds


def _candidates(
    mixture: NDArray[np.float32], key: np.uint64, temperature: float, depth: int, floors: NDArray[np.float32]
) -> NDArray[np.int64]:
    bounds = race_bounds(mixture, key, temperature, floors)
    heap = np.empty(depth, np.float64)  # the fastest so far, the slowest of them first
    held = 0
    ids = np.empty(1024, np.int64)
    speeds = np.empty(1024, np.float64)
    found = 0
    limit = np.float32(-1e30)
    least = 0.0
    one_key, one_id = np.empty(1, np.uint64), np.empty(1, np.int64)
    one_noise = np.empty(1, np.float32)
    one_key[0] = key
    size = len(mixture)
    for start in range(0, size, _BLOCK):
        stop = min(start + _BLOCK, size)
        some = np.int32(0)  # most blocks hold no candidate, and to see that takes no branch for each token
        for token in range(start, stop):
            some |= np.int32(bounds[token] >= limit)
        if some == 0:
            continue
        for token in range(start, stop):
            if not bounds[token] >= limit:
                continue
            p = min(np.float64(mixture[token]), 1.0)
            if not p >= _LEAST:
                continue
            speed = p
            if temperature > 0.0:
                one_id[0] = token
                exponentials(one_key, one_id, one_noise)
                noise = np.float64(one_noise[0])
                speed = p / noise if temperature == 1.0 else p * math.exp(-temperature * math.log(noise))
            if speed < least:
                continue
            if found == len(ids):
                ids = np.concatenate((ids, np.empty(found, np.int64)))
                speeds = np.concatenate((speeds, np.empty(found, np.float64)))
            ids[found], speeds[found] = token, speed
            found += 1
            if p < _CERTAIN:
                continue
            if held < depth:
                place = held
                held += 1
                while place > 0 and heap[(place - 1) // 2] > speed:
                    heap[place] = heap[(place - 1) // 2]
                    place = (place - 1) // 2
                heap[place] = speed
            elif speed > heap[0]:
                place = 0
                while True:
                    child = 2 * place + 1
                    if child >= depth:
                        break
                    if child + 1 < depth and heap[child + 1] < heap[child]:
                        child += 1
                    if heap[child] >= speed:
                        break
                    heap[place] = heap[child]
                    place = child
                heap[place] = speed
            if held == depth:
                least = heap[0] * (1.0 - _TOLERANCE)
                limit = np.float32(math.log2(heap[0]) - _MARGIN)
    kept = np.empty(found, np.int64)
    count = 0
    for place in range(found):
        if speeds[place] >= least:
            kept[count] = ids[place]
            count += 1
    return kept[:count]


logarithms: Callable[[NDArray[np.float64]], None] = compiled(_logarithms)
"""ln of positive, normal float64 numbers, in place."""

exponentials: Callable[[NDArray[np.uint64], NDArray[np.int64], NDArray[np.float32]], None] = compiled(_exponentials)
"""Exp(1) noise of tokens `ids` [n] with the position keys [n], written to the third array [n]."""

powers: Callable[[NDArray[np.float32], NDArray[np.float64], NDArray[np.float32]], None] = compiled(_powers)
"""noise ** temperature, element by element, as exp(temperature · ln noise); unchanged at 1."""

race_bounds: Callable[..., NDArray[np.float32]] = compiled(_bounds)

candidates: Callable[[NDArray[np.float32], np.uint64, float, int, NDArray[np.float32]], NDArray[np.int64]] = compiled(
    _candidates
)
"""Ids, increasing, among which are the `depth` fastest tokens of a race on a mixture [vocab]: few, unless many are
alike. The last argument is float32 memory of twice the vocabulary.
"""
