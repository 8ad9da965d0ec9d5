"""Sorted unique ids as varints of their gaps.

A varint is little-endian base 128: seven bits per byte, the high bit set on all bytes but the last (LEB128).
The first number is the first id, each later one the distance to the id before it, less one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from proto.errors import malformed

LONGEST = 4  # bytes; enough for 2**28, ids are below 2**24
FEW = 96  # up to here a Python loop is quicker than a dozen numpy calls


def encode_number(value: int) -> bytes:
    """One varint. `value` must be below 2**28."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_number(data: bytes, start: int) -> tuple[int, int]:
    """The varint at `start` and the offset behind it. Raises `ProtocolError` if truncated or over-long."""
    value = 0
    for index, byte in enumerate(data[start : start + LONGEST]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if byte == 0 and index > 0:
                raise malformed("a varint must not be over-long")
            return value, start + index + 1
    raise malformed(f"a varint must end within {LONGEST} bytes")


def encode_ids(ids: NDArray[np.uint32]) -> bytes:
    """`ids` [n], strictly increasing and below 2**28, in 1 to 4 bytes each."""
    return _encode_few(ids.tolist()) if len(ids) <= FEW else _encode_many(ids)


def decode_ids(data: bytes, count: int, vocabulary: int) -> NDArray[np.uint32]:
    """The `count` ids that make up all of `data`, each below `vocabulary`. Raises `ProtocolError`."""
    if not count <= len(data) <= count * LONGEST:
        raise malformed(f"{count} ids must take {count} to {count * LONGEST} bytes")
    ids = _decode_few(data) if count <= FEW else _decode_many(np.frombuffer(data, dtype=np.uint8))
    if len(ids) != count:
        raise malformed(f"there must be {count} ids")
    if count and ids[-1] >= vocabulary:
        raise malformed(f"ids must be below {vocabulary}")
    return ids.astype(np.uint32)


def _encode_few(ids: list[int]) -> bytes:
    out = bytearray()
    following = 0
    for value in ids:
        gap = value - following
        following = value + 1
        if gap < 0:
            raise malformed("ids must be strictly increasing")
        while gap > 0x7F:
            out.append(gap & 0x7F | 0x80)
            gap >>= 7
        out.append(gap)
    return bytes(out)


def _encode_many(ids: NDArray[np.uint32]) -> bytes:
    gaps = ids.astype(np.int64)
    gaps[1:] -= gaps[:-1] + 1
    if (gaps < 0).any():
        raise malformed("ids must be strictly increasing")
    shifted = gaps[:, np.newaxis] >> np.arange(0, 7 * LONGEST, 7)  # [n, LONGEST]
    present = shifted > 0
    present[:, 0] = True
    digits = shifted & 0x7F
    digits[:, :-1] |= present[:, 1:].astype(np.int64) << 7
    used: NDArray[np.int64] = digits[present]
    return used.astype(np.uint8).tobytes()


def _decode_few(data: bytes) -> NDArray[np.int64]:
    ids: list[int] = []
    gap = shift = 0
    following = 0
    for byte in data:
        gap |= (byte & 0x7F) << shift
        if byte > 0x7F:
            shift += 7
            continue
        if shift and (byte == 0 or shift >= 7 * LONGEST):
            raise malformed("a varint must not be over-long")
        following += gap
        ids.append(following)
        following += 1
        gap = shift = 0
    if shift:
        raise malformed("a varint must not be truncated")
    return np.array(ids, dtype=np.int64)


def _decode_many(data: NDArray[np.uint8]) -> NDArray[np.int64]:
    last = data < 0x80
    ends = np.flatnonzero(last)
    if not last[-1]:
        raise malformed("a varint must not be truncated")
    lengths = np.diff(ends, prepend=-1)
    if lengths.max() > LONGEST or ((data[ends] == 0) & (lengths > 1)).any():
        raise malformed("a varint must not be over-long")
    starts = ends - lengths + 1
    places = np.arange(len(data)) - np.repeat(starts, lengths)
    digits = (data & 0x7F).astype(np.int64) << 7 * places
    return np.cumsum(np.add.reduceat(digits, starts) + 1) - 1
