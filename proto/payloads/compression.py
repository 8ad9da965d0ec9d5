"""LZ4 for payload bodies, only where it shrinks, and never expanded beyond what the format can need."""

from __future__ import annotations

import struct
from typing import Final

import lz4.block

from proto.errors import malformed, too_large

COMPRESSED: Final = 0b1000_0000  # in the format byte: a size (uint32, little-endian) and an LZ4 block follow
_SIZE = struct.Struct("<I")
_EXPANSION = 255  # of an LZ4 block, at most


def seal(form: int, body: bytes) -> bytes:
    """Format byte `form` and `body`, or its compressed form if that is shorter."""
    packed: bytes = lz4.block.compress(body, store_size=False)
    if len(packed) + _SIZE.size < len(body):
        return bytes((form | COMPRESSED,)) + _SIZE.pack(len(body)) + packed
    return bytes((form,)) + body


def unseal(data: bytes, forms: int, limit: int) -> tuple[int, bytes]:
    """The format, below `forms`, and the body, at most `limit` bytes, of what `seal` made.

    Raises `ProtocolError`.
    """
    if not data:
        raise malformed("a payload must have a format byte")
    form, body = data[0] & ~COMPRESSED, data[1:]
    if form >= forms:
        raise malformed(f"the format of a payload must be below {forms}")
    if data[0] & COMPRESSED:
        return form, _expand(body, limit)
    if len(body) > limit:
        raise too_large(f"a payload body must be at most {limit} bytes")
    return form, body


def _expand(data: bytes, limit: int) -> bytes:
    if len(data) <= _SIZE.size:
        raise malformed("a compressed payload must have its size and a block")
    size: int = _SIZE.unpack_from(data)[0]
    # both before anything is allocated: what the format can need, and what the block can expand to
    if size > limit:
        raise too_large(f"a payload body must be at most {limit} bytes")
    if not 0 < size <= _EXPANSION * len(data):
        raise malformed("the size of a compressed payload must be what its block can expand to")
    try:
        body: bytes = lz4.block.decompress(data[_SIZE.size :], uncompressed_size=size)
    except lz4.block.LZ4BlockError:
        raise malformed("a compressed payload must be one LZ4 block of the size it states") from None
    if len(body) != size:
        raise malformed("a compressed payload must be one LZ4 block of the size it states")
    return body
