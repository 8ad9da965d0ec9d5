"""The fixed index: one number for counts that sum to a resolution, always of the same width.

The units, each written as the id of its token, are a sorted multiset t_1 <= ... <= t_l of ids from 0 on. t_i + i - 1 is
strictly increasing: a subset of 0 to l + V - 2, and its rank is the index (quantize-sample-verify, Eq. 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from proto.errors import malformed
from proto.index_code import subset
from proto.index_code.bits import BitReader, BitWriter


def width(resolution: int, vocabulary: int) -> int:
    """Bits of an index: ceil(log2 C(l + V - 1, l))."""
    return (comb(resolution + vocabulary - 1, resolution) - 1).bit_length()


def rank(ids: Sequence[int], counts: Sequence[int]) -> int:
    """The index of `counts` [K], each at least 1, of the tokens `ids` [K], strictly increasing."""
    members: list[int] = []
    for token, count in zip(ids, counts, strict=True):
        first = token + len(members)
        members += range(first, first + count)
    return subset.rank(members)


def unrank(index: int, resolution: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """Ids [K] and counts [K] of an index. Raises `ProtocolError` for one that no counts have."""
    if not 0 <= index < comb(resolution + vocabulary - 1, resolution):
        raise malformed("a fixed index must be below the number of distributions of its resolution")
    ids: list[int] = []
    counts: list[int] = []
    for place, member in enumerate(subset.unrank(index, resolution, resolution + vocabulary - 1)):
        if ids and ids[-1] == member - place:
            counts[-1] += 1
        else:
            ids.append(member - place)
            counts.append(1)
    return ids, counts


def write(bits: BitWriter, ids: Sequence[int], counts: Sequence[int], vocabulary: int) -> None:
    """Append the index of `counts` of the tokens `ids`."""
    bits.write(rank(ids, counts), width(sum(counts), vocabulary))


def read(bits: BitReader, resolution: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """The ids and counts that are next in `bits`. Raises `ProtocolError`."""
    return unrank(bits.read(width(resolution, vocabulary)), resolution, vocabulary)
