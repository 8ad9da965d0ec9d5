"""Bits of a lattice distribution: how many an index needs, without making one.

A distribution over V tokens of resolution ℓ has ℓ units to share out; K tokens have at least one.
"""

from __future__ import annotations

import math
from functools import lru_cache


def bits_to_tell(kinds: int) -> int:
    """ceil(log2(`kinds`)), exactly: the bits that tell one of so many things from another."""
    if kinds < 1:
        raise ValueError(f"something is one of at least 1 kinds, not of {kinds}")
    return (kinds - 1).bit_length()


@lru_cache(maxsize=1024)
def fixed_index_bits(resolution: int, vocabulary: int) -> int:
    """ceil(log2 C(ℓ + V - 1, ℓ)), QSV Eq. 6: any distribution of this resolution."""
    _check(resolution, vocabulary)
    return bits_to_tell(math.comb(resolution + vocabulary - 1, resolution))


@lru_cache(maxsize=16384)
def short_index_bits(resolution: int, vocabulary: int, support: int) -> int:
    """ceil(log2 ℓ) + ceil(log2 C(V, K)) + ceil(log2 C(ℓ-1, K-1)): K, which tokens, how the units are shared out."""
    _check(resolution, vocabulary)
    if not 1 <= support <= min(resolution, vocabulary):
        raise ValueError(f"{resolution} units lie on 1 to {min(resolution, vocabulary)} tokens, not on {support}")
    tokens = bits_to_tell(math.comb(vocabulary, support))
    return bits_to_tell(resolution) + tokens + bits_to_tell(math.comb(resolution - 1, support - 1))


def _check(resolution: int, vocabulary: int) -> None:
    if resolution < 1 or vocabulary < 1:
        raise ValueError(f"resolution and vocabulary must be at least 1, got {resolution} and {vocabulary}")
