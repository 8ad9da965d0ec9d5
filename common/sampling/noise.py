"""Counter-based randomness that every machine computes alike: nothing random is ever exchanged.

`race_noise` is the noise of (seed, position, token): E_{t,i} ~ Exp(1), raised to the power of the temperature. It is
computed for the few tokens that can be among the fastest; `VocabularyNoise` tells which these are. `uniform` serves the
draws of the paper's sampler.

Both are hashes in wrap-around 64-bit arithmetic (the finaliser of splitmix64: Steele, Lea, Flood 2014, with
the constants of Stafford's variant 13). A token's counter is `key + id * GOLDEN`, so that a position's noise
is a stretch of a splitmix64 sequence that starts at the position's key.

Logarithm and exponential are computed here, from IEEE additions, multiplications and one division: those of libraries
differ in the last bit between machines, and a race must not.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import factorial
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

_WORD: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9
_SECOND_FACTOR: Final = 0x94D049BB133111EB
_POSITION_FACTOR: Final = 0xD1342543DE82EF95  # odd, so distinct positions keep distinct counters
_UNIFORM_DOMAIN: Final = 0x5851F42D4C957F2D  # keeps the uniforms of a seed apart from its race noise

_MANTISSA_BITS: Final = 52
_ONE_BITS: Final = 0x3FF << _MANTISSA_BITS  # the bits of 1.0
_SQRT_HALF_BITS: Final = 0x3FE6A09E667F3BCD  # the bits of sqrt(1/2)
# 1 + m 2**-52 minus this is (2m + 1) 2**-53: never 0, never 1, and exact
_UNIT_OFFSET: Final = 1.0 - 2.0**-53
_LN2: Final = 0.6931471805599453
# log z = 2 artanh s = s (2 + 2/3 s^2 + 2/5 s^4 + ...) with s = (z - 1) / (z + 1), z in [sqrt(1/2), sqrt(2)):
# six terms leave a relative error below 6e-11, a thousandth of the rounding to float32 that follows
_ARTANH: Final = tuple(2.0 / (2 * k + 1) for k in range(6))
_INVERSE_LN2: Final = 1.4426950408889634
# exp r = 1 + r + r^2/2 + ... for |r| <= ln(2)/2: ten terms leave a relative error below 1e-11
_EXPONENTIAL: Final = tuple(1.0 / factorial(k) for k in range(10))


class Purpose(IntEnum):
    """Purpose of a uniform draw. Keyed by side names: a result can't depend on where it is computed."""

    DRAFT_DEVICE = 1
    DRAFT_CLOUD = 2
    ACCEPT_DEVICE = 3
    ACCEPT_CLOUD = 4
    RESIDUAL_DEVICE = 5
    RESIDUAL_CLOUD = 6
    CHOICE = 7
    PLACEMENT = 8


def position_key(seed: int, position: int) -> int:
    """Key at which the noise of `position` starts, 64 bits. Neighbouring seeds and positions have unrelated keys."""
    return _mix(_mix(seed + _GOLDEN) + position * _POSITION_FACTOR)


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A uniform in (0, 1), independent per (seed, position, purpose), whatever else was drawn before."""
    word = _mix(position_key(seed ^ _UNIFORM_DOMAIN, position) + purpose * _GOLDEN)
    return float((word >> 11) | 1) * 2.0**-53


def race_noise(
    seed: int, position: int, ids: Sequence[int] | NDArray[np.integer], temperature: float
) -> NDArray[np.float32]:
    """E_{t,i} ** temperature of the tokens `ids` [n], float32 [n], positive. 1 at temperature 0, E itself at 1."""
    if temperature == 0:
        return np.ones(len(ids), dtype=np.float32)
    return raised(exponential(seed, position, ids), temperature)


def exponential(seed: int, position: int, ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
    """E_{t,i} ~ Exp(1) of the tokens `ids` [n], float32 [n], positive."""
    return exponential_from_key(np.uint64(position_key(seed, position)), ids)


def exponential_from_key(
    key: np.uint64 | NDArray[np.uint64], ids: Sequence[int] | NDArray[np.integer]
) -> NDArray[np.float32]:
    """As `exponential`, for one key or for keys that broadcast against `ids`."""
    word = np.asarray(ids).astype(np.uint64) * np.uint64(_GOLDEN) + key
    _hash(word, np.empty_like(word))
    word ^= word >> np.uint64(31)
    word >>= np.uint64(64 - _MANTISSA_BITS)
    word |= np.uint64(_ONE_BITS)
    return (-_logarithm(word.view(np.float64) - _UNIT_OFFSET)).astype(np.float32)


def _hash(word: NDArray[np.uint64], shifted: NDArray[np.uint64]) -> None:
    """The finaliser but for its last step, in place; `shifted` is memory of the same shape."""
    for bits, factor in ((30, _FIRST_FACTOR), (27, _SECOND_FACTOR)):
        np.right_shift(word, np.uint64(bits), out=shifted)
        np.bitwise_xor(word, shifted, out=word)
        np.multiply(word, np.uint64(factor), out=word)


def raised(noise: NDArray[np.float32], temperature: float | NDArray[np.float64]) -> NDArray[np.float32]:
    """noise ** temperature as exp(temperature · ln noise), float32, for temperatures from 0 to 2; unchanged at 1.

    `temperature` is one number or one for each of `noise`.
    """
    if isinstance(temperature, float) and temperature == 1:
        return noise
    power = temperature * _logarithm(noise.astype(np.float64))
    octave = np.rint(power * _INVERSE_LN2)
    rest = power - octave * _LN2
    series = rest * _EXPONENTIAL[-1]
    for coefficient in _EXPONENTIAL[-2:0:-1]:
        series = (series + coefficient) * rest
    # The exponent's bits: 2 ** octave, exactly.
    whole = ((octave.astype(np.int64) + 0x3FF) << _MANTISSA_BITS).view(np.float64)
    result: NDArray[np.float32] = ((series + 1.0) * whole).astype(np.float32)
    return result if isinstance(temperature, float) else np.where(temperature == 1, noise, result)


def _logarithm(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """ln of positive, normal float64 numbers."""
    bits = values.view(np.int64)
    octave = (bits - _SQRT_HALF_BITS) >> _MANTISSA_BITS
    z = (bits - (octave << _MANTISSA_BITS)).view(np.float64)
    s = (z - 1.0) / (z + 1.0)
    square = s * s
    series = square * _ARTANH[-1]
    for coefficient in _ARTANH[-2:0:-1]:
        series = (series + coefficient) * square
    series = (series + _ARTANH[0]) * s
    logarithm: NDArray[np.float64] = octave.astype(np.float64) * _LN2 + series
    return logarithm


class VocabularyNoise:
    """A floor of every token's log2 E, on `torch_device`. For one thread at a time: it holds the working memory.

    A race is decided by few tokens, and the logarithm is most of the noise's cost. So the whole vocabulary is
    hashed, in integers, but gets a bound in the logarithm's place:

        E = -ln u >= 1 - u,    log2(1 - u) >= what the bits of 1 - u read as a fixed-point number say

    which is tight where it matters: u is near 1 for the fast ones. Their E is then `exponential`'s.
    """

    def __init__(self, vocabulary: int, torch_device: torch.device | str = "cpu") -> None:
        self._place = torch.device(torch_device)
        self._counters = np.arange(vocabulary, dtype=np.uint64) * np.uint64(_GOLDEN)
        # Fresh memory of this size would come from the kernel, page by page, for every draft.
        self._words = np.empty((2, 0, vocabulary), dtype=np.uint64)
        self._floors = np.empty((0, vocabulary), dtype=np.float32)

    def floors(self, keys: Sequence[int]) -> torch.Tensor:
        """At most log2 E of every token, float32 `[keys, vocab]`; the next call replaces it.

        `keys` are `position_key`s. Rounding may put a number above log2 E all the same, by 2e-5 at most.
        """
        if self._place.type != "cpu":
            return self._floors_there(keys)
        if len(keys) > len(self._floors):
            self._words = np.empty((2, len(keys), len(self._counters)), dtype=np.uint64)
            self._floors = np.empty(self._words.shape[1:], dtype=np.float32)
        word, shifted = self._words[:, : len(keys)]
        np.add(self._counters, np.asarray(keys, dtype=np.uint64)[:, None], out=word)
        _hash(word, shifted)
        # The hash's last step leaves the 31 highest bits as they are: of 1 - u, in units of 2**-31, rounded down.
        np.right_shift(word, np.uint64(33), out=shifted)
        np.subtract(np.uint64(2**31 - 1), shifted, out=shifted)
        floors = self._floors[: len(keys)]
        np.copyto(floors, shifted.view(np.int64), casting="unsafe")
        values = torch.from_numpy(floors)
        return floor_log2(values, add=-31.0, out=values)

    def _floors_there(self, keys: Sequence[int]) -> torch.Tensor:
        """The same numbers, computed in torch: the model is on another device, and so are its mixtures."""
        counters = torch.from_numpy(self._counters.view(np.int64)).to(self._place)
        word = counters + torch.tensor([_signed(key) for key in keys], device=self._place)[:, None]
        for bits, factor in ((30, _FIRST_FACTOR), (27, _SECOND_FACTOR)):
            # Torch shifts int64 arithmetically; the mask makes the shift logical.
            word ^= (word >> bits) & ((1 << (64 - bits)) - 1)
            word *= _signed(factor)
        left = (2**31 - 1) - ((word >> 33) & (2**31 - 1))
        return floor_log2(left.to(torch.float32), add=-31.0)


LINEAR_EXCESS: Final = 0.0861  # octaves; log2(1 + m) - m is at most this for m in [0, 1]


def floor_log2(values: torch.Tensor, *, add: float = 0.0, out: torch.Tensor | None = None) -> torch.Tensor:
    """At most log2 of positive float32 `values`, and less than LINEAR_EXCESS below it; -127 for 0. Plus `add`.

    A float's bits, read as a fixed-point number, are its exponent and, behind the point, its mantissa.
    """
    numbers = torch.empty_like(values) if out is None else out
    return numbers.copy_(values.view(torch.int32)).mul_(2.0**-23).add_(add - 127.0)


def _mix(word: int) -> int:
    word &= _WORD
    word = (word ^ (word >> 30)) * _FIRST_FACTOR & _WORD
    word = (word ^ (word >> 27)) * _SECOND_FACTOR & _WORD
    return word ^ (word >> 31)


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    return word - (1 << 64) if word >> 63 else word
