"""The 16-bit logarithmic code of a probability: 2,048 steps per octave over 32 octaves.

Code 0 is probability 0; code c > 0 is 2**((c - 65535) / 2048), so 65535 is 1 and 1 is just above 2**-32.
Rounding to the nearest code in the logarithm is off by at most 2**(1/4096) - 1 = 1.693e-4 of the probability.
"""

from __future__ import annotations

from math import isqrt, ldexp
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

STEPS_PER_OCTAVE: Final = 2048
OCTAVES: Final = 32
LARGEST: Final = STEPS_PER_OCTAVE * OCTAVES - 1  # the code of 1.0
RELATIVE_ERROR: Final = 1.7e-4  # bound of |decode(encode(p)) - p| / p for p in [2**-31.999, 1]

_FRACTION_BITS = 128


def _build_table() -> NDArray[np.float64]:
    """Value of every code, float64 [65536].

    Both sides race on these numbers, so they must be the same bits everywhere: every one is correctly rounded
    from integers, because exp2 differs between mathematical libraries.
    """
    step = 2 << _FRACTION_BITS  # 2, in fixed point; its root is taken until it is 2**(1 / STEPS_PER_OCTAVE)
    for _ in range(STEPS_PER_OCTAVE.bit_length() - 1):
        step = isqrt(step << _FRACTION_BITS)
    power = 1 << _FRACTION_BITS
    octave = np.empty(STEPS_PER_OCTAVE)  # 2**(k / STEPS_PER_OCTAVE)
    for k in range(STEPS_PER_OCTAVE):
        octave[k] = ldexp(float(power), -_FRACTION_BITS)
        power = (power * step) >> _FRACTION_BITS
    exponents, remainders = np.divmod(np.arange(-LARGEST, 1), STEPS_PER_OCTAVE)
    table = np.ldexp(octave[remainders], exponents)
    table[0] = 0.0
    table.flags.writeable = False
    return table


TABLE: Final = _build_table()


def encode(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """The nearest code of each probability, same shape.

    Zero, negative values and what is below the range become 0; what is above 1 (by rounding of a sum) becomes
    the code of 1. Raises `ValueError` for NaN.
    """
    if np.isnan(probabilities).any():
        raise ValueError("a probability is NaN")
    return nearest(probabilities)


def nearest(numbers: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """As `encode`; what is not a number becomes 0."""
    # Half of the smallest is rounded to code 0; fmax and fmin prefer numbers to NaN.
    positive = np.fmin(np.fmax(numbers, TABLE[1] / 2, dtype=np.float64), 1.0)
    codes = np.rint(np.log2(positive) * STEPS_PER_OCTAVE) + LARGEST
    rounded: NDArray[np.float64] = np.maximum(codes, 0)
    return rounded.astype(np.uint16)


def decode(codes: NDArray[np.uint16]) -> NDArray[np.float64]:
    """The probability of each code, same shape."""
    probabilities: NDArray[np.float64] = TABLE[codes]
    return probabilities
