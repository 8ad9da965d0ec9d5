"""Payloads of drafted distributions: sparse, or rounded to a lattice, with the tokens drawn from them.

Quantize-sample-verify sends a lattice per drafted token; RAPID one more, from which nothing was drawn.
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
# Ranks of the subsets of 0 to bound - 1 of one size: the combinatorial number system.
#
# The members c_1 < ... < c_n of a subset have the rank C(c_1, 1) + ... + C(c_n, n), a bijection onto 0 to
# C(bound, n) - 1. No step of ranking or unranking costs more than a binomial coefficient or two, whatever the rank.

_CLOSE = 0.25  # a step of Newton's method after which the next one would be far below 1


def subset_rank(members: Sequence[int]) -> int:
    """The rank of `members`, strictly increasing from 0 on."""
    total = 0
    place, value = 0, 0  # of the member below; value is its part of the rank
    for size, member in enumerate(members, 1):
        # C(place + 1, size) is one product away, and its neighbours a few.
        value = _moved(value * (place + 1) // size, place + 1, size, member) if value else comb(member, size)
        place = member
        total += value
    return total


def subset_unrank(number: int, size: int, bound: int) -> list[int]:
    """The subset of `size` members below `bound` that has the rank `number`, which must be below C(bound, size)."""
    members = list(range(size))  # those of rank 0
    place, value = bound, comb(bound, size + 1)  # the member above, if there were one, and its part of the rank
    for index in range(size, 0, -1):
        if not number:
            break
        # What is left is below C(place, index): at most one below the member above.
        place, value = _largest(number, index, place - 1, value * (index + 1) // place)
        members[index - 1] = place
        number -= value
    return members


def _largest(number: int, size: int, place: int, value: int) -> tuple[int, int]:
    """The largest c with C(c, size) <= `number`, and that coefficient.

    `number` is at least 1, c at most `place`, and `value` is C(place, size).
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
    """C(`to`, `size`), given that C(`place`, `size`) is `value`, not 0, and `to` at least `size`."""
    gap = abs(to - place)
    if 2 * gap > min(size, to - size):  # as many factors as that cost more than a coefficient of its own
        return comb(to, size)
    if to > place:
        return value * perm(to, gap) // perm(to - size, gap)
    return value * perm(place - size, gap) // perm(place, gap)


def _estimate(number: int, size: int) -> int:
    """The largest c with C(c, size) <= `number`, one or two off at most, for a `number` of at least 1.

    The product of c - 0, ..., c - (size - 1) is at most the power of their mean, so the first guess is not too large.
    The logarithm of C(c, size) is concave in c, and its derivative is at most ln((c + 1/2) / (c - size + 1/2)): from
    below, steps of Newton's method with that slope never pass the solution.
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
# The fixed index: one number for counts that sum to a resolution, always of the same width.
#
# The units, each written as the id of its token, are a sorted multiset t_1 <= ... <= t_l of ids from 0 on. t_i + i - 1
# is strictly increasing: a subset of 0 to l + V - 2, and its rank is the index (quantize-sample-verify, Eq. 6).


def width(resolution: int, vocabulary: int) -> int:
    """Bits of an index: ceil(log2 C(l + V - 1, l))."""
    return (comb(resolution + vocabulary - 1, resolution) - 1).bit_length()


def rank(ids: Sequence[int], counts: Sequence[int]) -> int:
    """The index of `counts` [K], each at least 1, of the tokens `ids` [K], strictly increasing."""
    members: list[int] = []
    for token, count in zip(ids, counts, strict=True):
        first = token + len(members)
        members += range(first, first + count)
    return subset_rank(members)


def unrank(index: int, resolution: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """Ids [K] and counts [K] of an index. Raises `ProtocolError` for one that no counts have."""
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
    """Append the index of `counts` of the tokens `ids`."""
    bits.write(rank(ids, counts), width(sum(counts), vocabulary))


def fixed_read(bits: BitReader, resolution: int, vocabulary: int) -> tuple[list[int], list[int]]:
    """The ids and counts that are next in `bits`. Raises `ProtocolError`."""
    return unrank(bits.read(width(resolution, vocabulary)), resolution, vocabulary)


# --- short
# The short index: how many tokens have units, which ones, and how the units are shared among them.
#
# Its width grows with the number of tokens, K, so what a model is sure of takes few bits. The K counts are told by the
# K - 1 sums before the last, less 1: a subset of 0 to l - 2.


def short_width(tokens: int, resolution: int, vocabulary: int) -> int:
    """Bits of an index with K `tokens`: ceil(log2 l) + ceil(log2 C(V, K)) + ceil(log2 C(l - 1, K - 1))."""
    return (resolution - 1).bit_length() + sum(_parts(tokens, resolution, vocabulary))


def short_write(bits: BitWriter, ids: Sequence[int], counts: Sequence[int], vocabulary: int) -> None:
    """Append the index of `counts` [K], each at least 1, of the tokens `ids` [K], strictly increasing."""
    resolution = sum(counts)
    support, composition = _parts(len(ids), resolution, vocabulary)
    bits.write(len(ids) - 1, (resolution - 1).bit_length())
    bits.write(subset_rank(ids), support)
    bits.write(subset_rank([units - 1 for units in accumulate(counts[:-1])]), composition)


def short_read(bits: BitReader, resolution: int, vocabulary: int) -> tuple[list[int], list[int]]:
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
    return subset_unrank(index, size, bound)


# --- lattice

IndexCode = Literal["fixed", "short"]

FORMATS: Final[tuple[IndexCode, ...]] = get_args(IndexCode)  # the format byte is the place in it


@dataclass(frozen=True, slots=True, eq=False)
class LatticeEntries:
    """Tokens that have units: ids [K], strictly increasing, and how many each has [K], at least 1 of the resolution."""

    ids: NDArray[np.uint32]
    counts: NDArray[np.uint32]


def encode_lattice(positions: Sequence[tuple[LatticeEntries, int | None]], code: IndexCode, vocabulary: int) -> bytes:
    """Format byte, resolution, number of positions, and the bits of each: index, then the place of its token.

    The last positions may be without a token. All have the resolution of the first. Raises `ProtocolError` for what
    can't be sent.
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
    """The distributions in `data`, at most `limit`, with the token drawn from each; the last `without` have none.

    All are without one where `without` is at least their number. Raises `ProtocolError`.
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
    """Resolution and number of positions that `data` claims, and where their bits start.

    Raises `ProtocolError` for claims out of bounds, and where there are fewer or more bits than so many positions can
    take. Reading the positions takes long, this does not.
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
    """The fewest and the most bits of a position, about: (n / k)^k <= C(n, k) <= (e n / k)^k, and a short index numbers
    a part of what a fixed one does.
    """
    number = (resolution - 1).bit_length()  # of a place, or of K
    even = resolution * log2((resolution + vocabulary - 1) / resolution)
    most = even + resolution * log2(e) + 2 * number + 2  # each of two parts is rounded up
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
# The `sparse` payload: distributions by the tokens that they have, with the logarithmic code of each probability.
#
# It carries one for every drafted position, or a single one that answers a rejection. `proto/codes.py` has the code.

SPARSE_FORMAT: Final = 0
HEAD: Final = 1 + LONGEST  # bytes of format and number of positions, at most


@dataclass(frozen=True, slots=True, eq=False)
class SparseEntries:
    """At least one token id [K], strictly increasing, and the `logcode` of each one's probability [K], above 0."""

    ids: NDArray[np.uint32]
    codes: NDArray[np.uint16]


def largest_sparse(count: int, vocabulary: int) -> int:
    """Bytes that a position with `count` entries takes at most, beside the payload's head of `HEAD` bytes."""
    longer = sum(vocabulary >> 7 * more for more in range(1, LONGEST))  # bytes of gaps beyond their first ones
    ids = min(count + longer, (vocabulary + 7) // 8)
    return len(encode_number(2 * count + 1)) + 2 * count + len(encode_number(ids)) + ids


def encode_sparse(positions: Sequence[SparseEntries]) -> bytes:
    """Format byte, number of positions, and of each: count, codes (little-endian), length of the ids, ids.

    The lowest bit of the count tells whether the ids are a bitmap. Raises `ProtocolError` for what can't be sent.
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
    """The distributions in `data`, at most `limit`, with ids below `vocabulary`. Raises `ProtocolError`."""
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
    length, first = decode_number(data, middle)  # none if codes are missing
    end = first + length  # if beyond the data, what is read next or the end of the payload refuses it
    codes = np.frombuffer(data, dtype="<u2", count=count, offset=start).astype(np.uint16)
    _check_codes(codes)
    return SparseEntries(decode_block(data[first:end], bitmap, count, vocabulary), codes), end


def _check_codes(codes: NDArray[np.uint16]) -> None:
    if not codes.all():
        raise malformed("the codes of a sparse payload must be above 0")
