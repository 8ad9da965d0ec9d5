"""Payloads of drafted distributions: sparse, or lattices with drawn tokens.

Quantize-sample-verify sends a lattice per drafted token, RAPID one more without a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import ceil, comb, e, exp, floor, lgamma, log, log2, perm
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from proto.codes import (
    LONGEST,
    BitReader,
    BitWriter,
    decode_block,
    decode_count,
    decode_number,
    encode_block,
    encode_number,
)
from proto.errors import malformed, too_large
from proto.messages import MOST_RESOLUTION, MOST_UNITS

# --- subset
# Ranks of equally large subsets of {0, ..., bound - 1}: the combinatorial number system.
#
# Members c_1 < ... < c_n have the rank C(c_1, 1) + ... + C(c_n, n), a bijection onto {0, ..., C(bound, n) - 1}. Each
# step costs at most two binomial coefficients.

_CLOSE = 0.25  # a smaller Newton step is the last, as the next would be far below 1


def subset_rank(members: Sequence[int]) -> int:
    """The rank of `members`, strictly increasing from 0 on."""
    total = 0
    place, value = 0, 0  # of the previous member, and its part of the rank
    for size, member in enumerate(members, 1):
        # C(place + 1, size) is one product away, its neighbours a few.
        value = _moved(value * (place + 1) // size, place + 1, size, member) if value else comb(member, size)
        place = member
        total += value
    return total


def subset_unrank(number: int, size: int, bound: int) -> list[int]:
    """The subset of `size` members below `bound` with rank `number` < C(bound, size)."""
    members = list(range(size))  # rank 0
    place, value = bound, comb(bound, size + 1)  # a virtual member above
    for index in range(size, 0, -1):
        if not number:
            break
        # The rest is below C(place, index), so the next member is smaller.
        place, value = _largest(number, index, place - 1, value * (index + 1) // place)
        members[index - 1] = place
        number -= value
    return members


def _largest(number: int, size: int, place: int, value: int) -> tuple[int, int]:
    """The largest c <= `place` with C(c, size) <= `number`, and that coefficient.

    Given `number` >= 1 and `value` = C(place, size).
    """
    if value <= number:
        return place, value
    guess = min(_estimate(number, size), place)
    value = _moved(value, place, size, guess)
    while value > number:
        value = value * (guess - size) // guess
        guess -= 1
    while guess < place:
        following = value * (guess + 1) // (guess + 1 - size)
        if following > number:
            break
        guess, value = guess + 1, following
    return guess, value


def _moved(value: int, place: int, size: int, to: int) -> int:
    """C(`to`, `size`) from `value` = C(`place`, `size`) > 0, for `to` >= `size`."""
    gap = abs(to - place)
    if 2 * gap > min(size, to - size):  # a new coefficient is cheaper
        return comb(to, size)
    if to > place:
        return value * perm(to, gap) // perm(to - size, gap)
    return value * perm(place - size, gap) // perm(place, gap)


def _estimate(number: int, size: int) -> int:
    """The largest c with C(c, size) <= `number`, at most two off.

    c (c - 1) ... (c - size + 1) is at most the power of the mean factor, so the first guess is not too large. ln C(c,
    size) is concave in c, with derivative at most ln((c + 1/2) / (c - size + 1/2)). Newton steps with that slope
    approach from below.
    """
    if size == 1:
        return number
    wanted = log(number) + lgamma(size + 1)
    solution = max(exp(wanted / size) + (size - 1) / 2, float(size))
    for _ in range(size.bit_length() + 8):
        missing = wanted - lgamma(solution + 1) + lgamma(solution - size + 1)
        step = missing / log((solution + 0.5) / (solution - size + 0.5))
        solution = max(solution + step, float(size))
        if step < _CLOSE:
            break
    return int(solution)


# --- fixed
# The fixed index: one number of constant width for counts that sum to a resolution.
#
# The units as token ids form a sorted multiset t_1 <= ... <= t_l. t_i + i - 1 is strictly increasing: a subset of {0,
# ..., l + V - 2}, whose rank is the index (quantize-sample-verify, Eq. 6).


def width(resolution: int, vocabulary: int) -> int:
    """Bits of an index: ceil(log2 C(l + V - 1, l))."""
    return (comb(resolution + vocabulary - 1, resolution) - 1).bit_length()


def rank(ids: Sequence[int], counts: Sequence[int]) -> int:
    """The index of `counts` [K] >= 1 for strictly increasing `ids` [K]."""
    members: list[int] = []
    for token, count in zip(ids, counts, strict=True):
        first = token + len(members)
        members += range(first, first + count)
    return subset_rank(members)


def unrank(index: int, resolution: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """Ids [K] and counts [K] of an index. Raises `ProtocolError` if out of range."""
    if not 0 <= index < comb(resolution + vocabulary - 1, resolution):
        raise malformed("a fixed index must be below the number of distributions of its resolution")
    ids: list[int] = []
    counts: list[int] = []
    for place, member in enumerate(subset_unrank(index, resolution, resolution + vocabulary - 1)):
        if ids and ids[-1] == member - place:
            counts[-1] += 1
        else:
            ids.append(member - place)
            counts.append(1)
    return ids, counts


def fixed_write(bits: BitWriter, ids: Sequence[int], counts: Sequence[int], vocabulary: int) -> None:
    bits.write(rank(ids, counts), width(sum(counts), vocabulary))


def fixed_read(bits: BitReader, resolution: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """Read the next ids and counts. Raises `ProtocolError`."""
    return unrank(bits.read(width(resolution, vocabulary)), resolution, vocabulary)


# --- short
# The short index: the number K of tokens with units, their ids, and their counts.
#
# Its width grows with K, so confident distributions take few bits. The counts are the first K - 1 partial sums, less 1:
# a subset of {0, ..., l - 2}.


def short_width(tokens: int, resolution: int, vocabulary: int) -> int:
    """Bits of an index with K `tokens`: ceil(log2 l) + ceil(log2 C(V, K)) + ceil(log2 C(l - 1, K - 1))."""
    return (resolution - 1).bit_length() + sum(_parts(tokens, resolution, vocabulary))


def short_write(bits: BitWriter, ids: Sequence[int], counts: Sequence[int], vocabulary: int) -> None:
    """Append the index of `counts` [K] >= 1 for strictly increasing `ids` [K]."""
    resolution = sum(counts)
    support, composition = _parts(len(ids), resolution, vocabulary)
    bits.write(len(ids) - 1, (resolution - 1).bit_length())
    bits.write(subset_rank(ids), support)
    bits.write(subset_rank([units - 1 for units in accumulate(counts[:-1])]), composition)


def short_read(bits: BitReader, resolution: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """Read the next ids and counts. Raises `ProtocolError`."""
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
    return subset_unrank(index, size, bound)


# --- lattice

IndexCode = Literal["fixed", "short"]

FORMATS: Final[tuple[IndexCode, ...]] = get_args(IndexCode)  # by format byte


@dataclass(frozen=True, slots=True, eq=False)
class LatticeEntries:
    """Strictly increasing ids [K] of tokens with units, and counts [K] >= 1."""

    ids: NDArray[np.uint32]
    counts: NDArray[np.uint32]


def encode_lattice(positions: Sequence[tuple[LatticeEntries, int | None]], code: IndexCode, vocabulary: int) -> bytes:
    """Encode format byte, resolution, number of positions; per position index and token's place.

    The last positions may lack a token. All share one resolution. Raises `ProtocolError` for invalid entries.
    """
    if not positions:
        raise malformed("a lattice payload must have at least one position")
    resolution = int(positions[0][0].counts.sum())
    _check_resolution(resolution)
    if len(positions) * resolution > MOST_UNITS:
        raise too_large(f"the positions of a lattice payload must have at most {MOST_UNITS} units in all")
    write = fixed_write if code == "fixed" else short_write
    bits = BitWriter()
    named = True
    for entries, token in positions:
        ids, counts = _checked(entries, resolution, vocabulary)
        write(bits, ids, counts, vocabulary)
        if token is None:
            named = False
            continue
        if not named:
            raise malformed("only the last positions of a lattice payload may be without a token")
        if token not in ids:
            raise malformed("a drafted token must have a unit of its distribution")
        bits.write(ids.index(token), (len(ids) - 1).bit_length())
    head = bytes((FORMATS.index(code),)), encode_number(resolution), encode_number(len(positions))
    return b"".join((*head, bits.data()))


def decode_lattice(
    data: bytes, code: IndexCode, vocabulary: int, limit: int, without: int
) -> list[tuple[LatticeEntries, int | None]]:
    """Decode up to `limit` distributions with tokens, except the last `without`.

    Raises `ProtocolError`.
    """
    resolution, count, start = lattice_claims(data, code, vocabulary, limit)
    read = fixed_read if code == "fixed" else short_read
    bits = BitReader(data[start:])
    positions: list[tuple[LatticeEntries, int | None]] = []
    for left in range(count, 0, -1):
        ids, counts = read(bits, resolution, vocabulary)
        token = None if left <= without else _read_token(bits, ids)
        positions.append((LatticeEntries(np.array(ids, np.uint32), np.array(counts, np.uint32)), token))
    bits.finish()
    return positions


def lattice_claims(data: bytes, code: IndexCode, vocabulary: int, limit: int) -> tuple[int, int, int]:
    """Resolution, number of positions, and start of the bits, by the header.

    Raises `ProtocolError` for values out of bounds, or an impossible number of bits. Cheap, unlike reading positions.
    """
    form = FORMATS.index(code)
    if data[:1] != bytes((form,)):
        raise malformed(f"a lattice payload with the {code} index must start with format byte {form}")
    resolution, start = decode_number(data, 1)
    _check_resolution(resolution)
    count, start = decode_number(data, start)
    if count > limit:
        raise too_large(f"a lattice payload must have at most {limit} positions")
    if count * resolution > MOST_UNITS:
        raise too_large(f"the positions of a lattice payload must have at most {MOST_UNITS} units in all")
    if not count:
        raise malformed("a lattice payload must have at least one position")
    least, most = _bits(code, resolution, vocabulary)
    if not count * least <= 8 * (len(data) - start) <= count * most + 7:
        raise malformed(f"a lattice payload must have the bits of its positions, {least} to {most} each")
    return resolution, count, start


def _bits(code: IndexCode, resolution: int, vocabulary: int) -> tuple[int, int]:
    """Approximate bounds of a position's bits.

    (n / k)^k <= C(n, k) <= (e n / k)^k; short indices enumerate a subset.
    """
    number = (resolution - 1).bit_length()  # of a place, or K
    even = resolution * log2((resolution + vocabulary - 1) / resolution)
    most = even + resolution * log2(e) + 2 * number + 2  # two parts are rounded up
    if code == "fixed":
        return floor(even), ceil(most)
    return number + ((vocabulary - 1).bit_length() if resolution < vocabulary else 0), ceil(most)


def _check_resolution(resolution: int) -> None:
    if not 1 <= resolution <= MOST_RESOLUTION:
        raise malformed(f"the resolution of a lattice must be 1 to {MOST_RESOLUTION}")


def _checked(entries: LatticeEntries, resolution: int, vocabulary: int) -> tuple[list[int], list[int]]:
    ids: list[int] = entries.ids.tolist()
    counts: list[int] = entries.counts.tolist()
    if not ids or len(counts) != len(ids) or min(counts) < 1 or sum(counts) != resolution:
        raise malformed(f"lattice entries must be as many counts as ids, at least 1 each and {resolution} in all")
    if not all(one < other for one, other in pairwise(ids)) or ids[-1] >= vocabulary:
        raise malformed(f"ids of lattice entries must be strictly increasing and below {vocabulary}")
    return ids, counts


def _read_token(bits: BitReader, ids: list[int]) -> int:
    place = bits.read((len(ids) - 1).bit_length())
    if place >= len(ids):
        raise malformed("a drafted token must be one of those that have units")
    return ids[place]


# --- sparse
# The `sparse` payload: token ids with the logarithmic codes (`proto/codes.py`) of their probabilities.
#
# One distribution per drafted position, or a single one after a rejection.

SPARSE_FORMAT: Final = 0
HEAD: Final = 1 + LONGEST  # most bytes of format and number of positions


@dataclass(frozen=True, slots=True, eq=False)
class SparseEntries:
    """Strictly increasing ids [K >= 1] with `logcode`s [K] > 0 of their probabilities."""

    ids: NDArray[np.uint32]
    codes: NDArray[np.uint16]


def largest_sparse(count: int, vocabulary: int) -> int:
    """Most bytes of a position with `count` entries."""
    longer = sum(vocabulary >> 7 * more for more in range(1, LONGEST))  # gaps beyond their first bytes
    ids = min(count + longer, (vocabulary + 7) // 8)
    return len(encode_number(2 * count + 1)) + 2 * count + len(encode_number(ids)) + ids


def encode_sparse(positions: Sequence[SparseEntries]) -> bytes:
    """Encode format byte, number of positions; per position count, codes (little-endian), length, ids.

    The count's lowest bit marks a bitmap of ids. Raises `ProtocolError` for invalid entries.
    """
    if not positions:
        raise malformed("a sparse payload must have at least one position")
    parts = [bytes((SPARSE_FORMAT,)), encode_number(len(positions))]
    for entries in positions:
        count = len(entries.ids)
        if not count or len(entries.codes) != count:
            raise malformed("sparse entries must be as many codes as ids, at least one")
        _check_codes(entries.codes)
        bitmap, ids = encode_block(entries.ids)
        parts += [encode_number(2 * count + bitmap), entries.codes.astype("<u2").tobytes()]
        parts += [encode_number(len(ids)), ids]
    return b"".join(parts)


def decode_sparse(data: bytes, vocabulary: int, limit: int) -> list[SparseEntries]:
    """Decode up to `limit` distributions with ids below `vocabulary`. Raises `ProtocolError`."""
    number, at = decode_count(data, "sparse", SPARSE_FORMAT, limit, "position", "positions")
    positions = []
    for _ in range(number):
        entries, at = _read(data, at, vocabulary)
        positions.append(entries)
    if at != len(data):
        raise malformed("a sparse payload must end with its last position")
    return positions


def _read(data: bytes, at: int, vocabulary: int) -> tuple[SparseEntries, int]:
    marked, start = decode_number(data, at)
    count, bitmap = marked >> 1, bool(marked & 1)
    if not 1 <= count <= vocabulary:
        raise malformed(f"a position of a sparse payload must have 1 to {vocabulary} entries")
    middle = start + 2 * count
    length, first = decode_number(data, middle)  # fails without codes
    end = first + length  # beyond the data, the next read or the end fails
    codes = np.frombuffer(data, dtype="<u2", count=count, offset=start).astype(np.uint16)
    _check_codes(codes)
    return SparseEntries(decode_block(data[first:end], bitmap, count, vocabulary), codes), end


def _check_codes(codes: NDArray[np.uint16]) -> None:
    if not codes.all():
        raise malformed("the codes of a sparse payload must be above 0")
