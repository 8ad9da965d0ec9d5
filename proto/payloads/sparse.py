"""The `sparse` payload: distributions by the tokens that they have, with the logarithmic code of each probability.

It carries one for every drafted position, or a single one that answers a rejection. `proto/logcode.py` has the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from proto.errors import malformed, too_large
from proto.payloads.id_block import decode_block, encode_block
from proto.varint import LONGEST, decode_number, encode_number

FORMAT: Final = 0
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
    parts = [bytes((FORMAT,)), encode_number(len(positions))]
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
    if data[:1] != bytes((FORMAT,)):
        raise malformed(f"a sparse payload must start with format byte {FORMAT}")
    number, at = decode_number(data, 1)
    if number > limit:
        raise too_large(f"a sparse payload must have at most {limit} positions")
    if not number:
        raise malformed("a sparse payload must have at least one position")
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
