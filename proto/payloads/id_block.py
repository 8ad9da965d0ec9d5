"""Strictly increasing ids, as varints of their gaps or as one bit per token, whichever is shorter."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from proto.errors import malformed
from proto.varint import decode_ids, encode_ids


def encode_block(ids: NDArray[np.uint32]) -> tuple[bool, bytes]:
    """Encodes `ids` [n], at least one, as whichever is shorter: a bitmap (True) or varints (False).

    Raises `ProtocolError` if they are out of order.
    """
    length = int(ids[-1]) // 8 + 1
    if length >= len(ids):  # else no varints, of a byte each at least, could be as short
        varints = encode_ids(ids)
        if length >= len(varints):
            return False, varints
    return True, _encode_bitmap(ids)


def decode_block(data: bytes, bitmap: bool, count: int, vocabulary: int) -> NDArray[np.uint32]:
    """The `count` ids, at least one, that make up all of `data`, each below `vocabulary`. Raises `ProtocolError`."""
    return _decode_bitmap(data, count, vocabulary) if bitmap else decode_ids(data, count, vocabulary)


def _encode_bitmap(ids: NDArray[np.uint32]) -> bytes:
    """Bit i % 8 of byte i // 8 is set for every id i; the last byte is that of the last id."""
    if not (ids[1:] > ids[:-1]).all():
        raise malformed("ids must be strictly increasing")
    bits = np.zeros(int(ids[-1]) + 1, dtype=np.uint8)
    bits[ids] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _decode_bitmap(data: bytes, count: int, vocabulary: int) -> NDArray[np.uint32]:
    if data[-1:] in (b"", b"\0"):
        raise malformed("a bitmap must end with the byte of its last id")
    if len(data) > (vocabulary + 7) // 8:  # before each of its bits takes a byte
        raise malformed(f"a bitmap must have {count} ids below {vocabulary}")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    ids = np.flatnonzero(bits).astype(np.uint32)
    if len(ids) != count or ids[-1] >= vocabulary:
        raise malformed(f"a bitmap must have {count} ids below {vocabulary}")
    return ids
