"""Counter-based randomness that every machine computes alike: nothing random is ever exchanged.

`race_noise` is the noise of (seed, position, token): E_{t,i} ~ Exp(1), raised to the power of the temperature. It is
computed for the few tokens that can be among the fastest; `VocabularyNoise` tells which these are. `uniform` serves the
draws of the paper's sampler, and those of drafting and verifying.

Both are hashes in wrap-around 64-bit arithmetic (the finaliser of splitmix64: Steele, Lea, Flood 2014, with
the constants of Stafford's variant 13). A token's counter is `key + id * GOLDEN`, so that a position's noise
is a stretch of a splitmix64 sequence that starts at the position's key.

Logarithm and exponential are this project's own (`common.sampling.compiled`), made of IEEE additions, multiplications
and one division: those of libraries differ in the last bit between machines, and a race must not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.compiled import exponentials, powers
from proto.codes import extend

_WORD: Final = (1 << 64) - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9
_SECOND_FACTOR: Final = 0x94D049BB133111EB
_POSITION_FACTOR: Final = 0xD1342543DE82EF95  # odd, so distinct positions keep distinct counters
_UNIFORM_DOMAIN: Final = 0x5851F42D4C957F2D  # keeps the uniforms of a seed apart from its race noise


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
    PROPOSE = 9  # a token of a draft that is to be verified
    ACCEPT = 10  # it or not
    RESIDUAL = 11  # the token in its place
    BONUS = 12  # the token behind a whole proposal


def position_key(seed: int, position: int) -> int:
    """Key at which the noise of `position` starts, 64 bits. Neighbouring seeds and positions have unrelated keys."""
    return _mix(_mix(seed + _GOLDEN) + position * _POSITION_FACTOR)


def uniform(seed: int, position: int, purpose: Purpose, prefix: int = 0) -> float:
    """A uniform in (0, 1), independent per (seed, position, purpose, prefix), whatever else was drawn before.

    `prefix` is the digest of the tokens before `position`, where they have a say.
    """
    word = _mix(position_key(seed ^ _UNIFORM_DOMAIN ^ _mix(prefix), position) + purpose * _GOLDEN)
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
    tokens = np.asarray(ids, dtype=np.int64)
    if np.shape(key) not in ((), tokens.shape):
        key, tokens = (np.ascontiguousarray(each) for each in np.broadcast_arrays(key, tokens))
    keys = np.empty(tokens.shape, np.uint64)
    keys[...] = key
    noise = np.empty(tokens.shape, np.float32)
    exponentials(keys.reshape(-1), tokens.reshape(-1), noise.reshape(-1))
    return noise


def raised(noise: NDArray[np.float32], temperature: float | NDArray[np.float64]) -> NDArray[np.float32]:
    """noise ** temperature as exp(temperature · ln noise), float32, for temperatures from 0 to 2; unchanged at 1.

    `temperature` is one number or one for each of `noise`.
    """
    if isinstance(temperature, float) and temperature == 1:
        return noise
    result = np.empty(noise.shape, np.float32)
    each = np.empty(noise.shape, np.float64)
    each[...] = temperature
    powers(np.ascontiguousarray(noise).reshape(-1), each.reshape(-1), result.reshape(-1))
    return result


class VocabularyNoise:
    """A floor of every token's log2 E, on a torch device.

    A race is decided by few tokens, and the logarithm is most of the noise's cost. So the whole vocabulary is
    hashed, in integers, but gets a bound in the logarithm's place:

        E = -ln u >= 1 - u,    log2(1 - u) >= what the bits of 1 - u read as a fixed-point number say

    which is tight where it matters: u is near 1 for the fast ones. Their E is then `exponential`'s.
    """

    def __init__(self, vocabulary: int, torch_device: torch.device | str) -> None:
        counters = np.arange(vocabulary, dtype=np.uint64) * np.uint64(_GOLDEN)
        self._counters = torch.from_numpy(counters.view(np.int64)).to(torch_device)

    def floors(self, keys: Sequence[int]) -> torch.Tensor:
        """At most log2 E of every token, float32 `[keys, vocab]`.

        `keys` are `position_key`s. Rounding may put a number above log2 E all the same, by 2e-5 at most.
        """
        word = self._counters + torch.tensor([_signed(key) for key in keys], device=self._counters.device)[:, None]
        for bits, factor in ((30, _FIRST_FACTOR), (27, _SECOND_FACTOR)):
            # Torch shifts int64 arithmetically; the mask makes the shift logical.
            word ^= (word >> bits) & ((1 << (64 - bits)) - 1)
            word *= _signed(factor)
        # The hash's last step leaves the 31 highest bits as they are: of 1 - u, in units of 2**-31, rounded down.
        left = (2**31 - 1) - ((word >> 33) & (2**31 - 1))
        return floor_log2(left.to(torch.float32), add=-31.0)


def floor_log2(values: torch.Tensor, *, add: float = 0.0) -> torch.Tensor:
    """At most log2 of positive float32 `values`, and less than LINEAR_EXCESS below it; -127 for 0. Plus `add`.

    A float's bits, read as a fixed-point number, are its exponent and, behind the point, its mantissa.
    """
    return values.view(torch.int32).to(torch.float32).mul_(2.0**-23).add_(add - 127.0)


def _mix(word: int) -> int:
    word &= _WORD
    word = (word ^ (word >> 30)) * _FIRST_FACTOR & _WORD
    word = (word ^ (word >> 27)) * _SECOND_FACTOR & _WORD
    return word ^ (word >> 31)


def _signed(word: int) -> int:
    """The int64 with the bits of a 64-bit word."""
    return word - (1 << 64) if word >> 63 else word


# --- draws
# The random decisions of an algorithm, keyed by their purpose.


class Draws(Protocol):
    """The decision points of the algorithm; tests walk through all of them instead of drawing."""

    def happens(self, purpose: Purpose, probability: float) -> bool: ...

    def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
        """An index of `weights` [n], which are not negative and not all 0, in proportion to its weight."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a draw in an answer: behind `position` tokens, whose digest is `prefix`."""

    position: int
    prefix: int

    def behind(self, token: int) -> Place:
        """The place behind `token`, which stands at this one."""
        return Place(self.position + 1, extend(self.prefix, token))


@dataclass(frozen=True, slots=True)
class SeededDraws:
    """The draws of one position of a session, where they are the same behind every prefix; else behind `prefix`."""

    seed: int
    position: int
    prefix: int = 0

    def happens(self, purpose: Purpose, probability: float) -> bool:
        return self._uniform(purpose) < probability

    def pick(self, purpose: Purpose, weights: NDArray[np.float64]) -> int:
        """Inverts the cumulative distribution, summed from left to right, alike on every machine.

        The uniform lies strictly between 0 and 1, so that an index of weight 0 is never hit.
        """
        cumulative = weights.cumsum()
        return int(cumulative.searchsorted(self._uniform(purpose) * cumulative[-1]))

    def _uniform(self, purpose: Purpose) -> float:
        return uniform(self.seed, self.position, purpose, self.prefix)


DrawsAt = Callable[[Place], Draws]  # the draws of a place


def seeded(seed: int) -> DrawsAt:
    """The draws of each place of an answer."""
    return lambda place: SeededDraws(seed, place.position, place.prefix)
