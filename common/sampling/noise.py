"""Counter-based randomness that every machine computes alike: nothing random is ever exchanged.

`exponential` is the race noise E_{t,i} ~ Exp(1) of (seed, position, token), computed for the few tokens that can
be among the fastest; `VocabularyNoise` tells which these are. `uniform` serves the draws of the paper's sampler.

Both are hashes in wrap-around 64-bit arithmetic (the finaliser of splitmix64: Steele, Lea, Flood 2014, with
the constants of Stafford's variant 13). A token's counter is `key + id * GOLDEN`, so that a position's noise
is a stretch of a splitmix64 sequence that starts at the position's key.

The logarithm is computed here, from IEEE additions, multiplications and one division: library logarithms
differ in the last bit between machines, and a race must not.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
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


class Purpose(IntEnum):
    """What a uniform is drawn for. Keyed by side names: a result can't depend on where it is computed."""

    DRAFT_DEVICE = 1
    DRAFT_CLOUD = 2
    ACCEPT_DEVICE = 3
    ACCEPT_CLOUD = 4
    RESIDUAL_DEVICE = 5
    RESIDUAL_CLOUD = 6
    CHOICE = 7
    PLACEMENT = 8


def position_key(seed: int, position: int) -> int:
    """Where the noise of `position` starts, 64 bits. Neighbouring seeds and positions have unrelated keys."""
    return _mix(_mix(seed + _GOLDEN) + position * _POSITION_FACTOR)


def uniform(seed: int, position: int, purpose: Purpose) -> float:
    """A uniform in (0, 1), independent per (seed, position, purpose), whatever else was drawn before."""
    word = _mix(position_key(seed ^ _UNIFORM_DOMAIN, position) + purpose * _GOLDEN)
    return float((word >> 11) | 1) * 2.0**-53


def exponential(seed: int, position: int, ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float32]:
    """E_{t,i} ~ Exp(1) of the tokens `ids` [n], float32 [n], positive."""
    return exponential_from_key(np.uint64(position_key(seed, position)), ids)


def exponential_from_key(
    key: np.uint64 | NDArray[np.uint64], ids: Sequence[int] | NDArray[np.integer]
) -> NDArray[np.float32]:
    """As `exponential`, for one key or for keys that broadcast against `ids`."""
    word = np.asarray(ids).astype(np.uint64) * np.uint64(_GOLDEN) + key
    word ^= word >> np.uint64(30)
    word *= np.uint64(_FIRST_FACTOR)
    word ^= word >> np.uint64(27)
    word *= np.uint64(_SECOND_FACTOR)
    word ^= word >> np.uint64(31)
    word >>= np.uint64(64 - _MANTISSA_BITS)
    word |= np.uint64(_ONE_BITS)
    unit = word.view(np.float64) - _UNIT_OFFSET
    bits = unit.view(np.int64)
    octave = (bits - _SQRT_HALF_BITS) >> _MANTISSA_BITS
    z = (bits - (octave << _MANTISSA_BITS)).view(np.float64)
    s = (z - 1.0) / (z + 1.0)
    square = s * s
    series = square * _ARTANH[-1]
    for coefficient in _ARTANH[-2:0:-1]:
        series = (series + coefficient) * square
    series = (series + _ARTANH[0]) * s
    return (octave.astype(np.float64) * -_LN2 - series).astype(np.float32)


class VocabularyNoise:
    """How fast each token of a vocabulary can be at most, on `torch_device`. For one thread at a time.

    A race is decided by few tokens, and the logarithm is most of the noise's cost. So the whole vocabulary is
    hashed, in integers, but gets a bound in the logarithm's place:

        E = -ln u >= 1 - u,    hence    p / E <= p / (1 - u)

    which is tight where it matters: u is near 1 for the fast ones. Their E is then `exponential`'s.
    """

    def __init__(self, vocabulary: int, torch_device: torch.device | str = "cpu") -> None:
        ids = torch.arange(vocabulary, dtype=torch.int64, device=torch_device)
        self._counters = ids * _signed(_GOLDEN)
        self._word = torch.empty_like(self._counters)
        self._shifted = torch.empty_like(self._counters)
        self._bounds = torch.empty_like(self._counters, dtype=torch.float32)
        self._ceiling = torch.empty_like(self._bounds)

    def speed_bounds(self, probabilities: torch.Tensor, seed: int, position: int) -> torch.Tensor:
        """p / (1 - u) of float32 `probabilities` [vocab], float32 [vocab]; the next call replaces it.

        1 - u is rounded down to the next lower multiple of 2**-31. Rounding to float32 may put a bound below
        p / E all the same, by 3e-7 of it at most.
        """
        word = self._word
        torch.add(self._counters, _signed(position_key(seed, position)), out=word)
        self._xor_shifted(30)
        word.mul_(_signed(_FIRST_FACTOR))
        self._xor_shifted(27)
        word.mul_(_signed(_SECOND_FACTOR))
        # The hash's last step leaves the 31 highest bits as they are. Ones for all others: nothing below 1 - u is
        # lost, and it can't be 0.
        word.bitwise_or_((1 << 33) - 1)
        signed = self._bounds.copy_(word).mul_(2.0**-64)  # u, or u - 1 where u is 1/2 or more
        return torch.div(probabilities, torch.ceil(signed, out=self._ceiling).sub_(signed), out=signed)

    def _xor_shifted(self, bits: int) -> None:
        """word ^= word >> bits. Torch shifts int64 arithmetically; the mask makes the shift logical."""
        torch.bitwise_right_shift(self._word, bits, out=self._shifted)
        self._shifted.bitwise_and_((1 << (64 - bits)) - 1)
        self._word.bitwise_xor_(self._shifted)


def _mix(word: int) -> int:
    word &= _WORD
    word = (word ^ (word >> 30)) * _FIRST_FACTOR & _WORD
    word = (word ^ (word >> 27)) * _SECOND_FACTOR & _WORD
    return word ^ (word >> 31)


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    return word - (1 << 64) if word >> 63 else word
