"""The short index: how many tokens have units, which ones, and how the units are shared among them.

Its width grows with the number of tokens, K, so what a model is sure of takes few bits. The K counts are told by the
K - 1 sums before the last, less 1: a subset of 0 to l - 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from math import comb

from proto.errors import malformed
from proto.index_code import subset
from proto.index_code.bits import BitReader, BitWriter


def width(tokens: int, resolution: int, vocabulary: int) -> int:
    """Bits of an index with K `tokens`: ceil(log2 l) + ceil(log2 C(V, K)) + ceil(log2 C(l - 1, K - 1))."""
    return (resolution - 1).bit_length() + sum(_parts(tokens, resolution, vocabulary))


def write(bits: BitWriter, ids: Sequence[int], counts: Sequence[int], vocabulary: int) -> None:
    """Append the index of `counts` [K], each at least 1, of the tokens `ids` [K], strictly increasing."""
    resolution = sum(counts)
    support, composition = _parts(len(ids), resolution, vocabulary)
    bits.write(len(ids) - 1, (resolution - 1).bit_length())
    bits.write(subset.rank(ids), support)
    bits.write(subset.rank([units - 1 for units in accumulate(counts[:-1])]), composition)


def read(bits: BitReader, resolution: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """The ids and counts that are next in `bits`. Raises `ProtocolError`."""
    tokens = bits.read((resolution - 1).bit_length()) + 1
    if tokens > min(resolution, vocabulary):
        raise malformed("a short index must not have more tokens than units or the vocabulary")
    ids = _read_subset(bits, tokens, vocabulary)
    ends = [-1, *_read_subset(bits, tokens - 1, resolution - 1), resolution - 1]
    return ids, [end - start for start, end in pairwise(ends)]


def _parts(tokens: int, resolution: int, vocabulary: int) -> tuple[int, int]:
    return (comb(vocabulary, tokens) - 1).bit_length(), (comb(resolution - 1, tokens - 1) - 1).bit_length()


def _read_subset(bits: BitReader, size: int, bound: int) -> list[int]:
    number = comb(bound, size)
    index = bits.read((number - 1).bit_length())
    if index >= number:
        raise malformed("a part of a short index must be below the number of its subsets")
    return subset.unrank(index, size, bound)
