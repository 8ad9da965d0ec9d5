"""The `lattice` payload: quantised distributions as indices of their counts, and the tokens drawn from them.

Quantize-sample-verify sends one per drafted token; RAPID one more, from which nothing was drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, e, floor, log2
from typing import Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from proto.errors import malformed, too_large
from proto.index_code import fixed, short
from proto.index_code.bits import BitReader, BitWriter
from proto.limits import MOST_RESOLUTION, MOST_UNITS
from proto.varint import decode_number, encode_number

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
    write = fixed.write if code == "fixed" else short.write
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
    read = fixed.read if code == "fixed" else short.read
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
