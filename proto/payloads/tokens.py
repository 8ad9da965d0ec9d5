"""The `tokens` payload: token ids in as few bits as the vocabulary needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from proto.errors import malformed, too_large
from proto.index_code.bits import BitReader, BitWriter
from proto.varint import decode_number, encode_number

FORMAT: Final = 0


def encode_tokens(tokens: Sequence[int], vocabulary: int) -> bytes:
    """Format byte, number of ids, and each in ceil(log2 `vocabulary`) bits. Raises `ValueError` for one beyond."""
    bits, width = BitWriter(), (vocabulary - 1).bit_length()
    for token in tokens:
        bits.write(token, width)
    return b"".join((bytes((FORMAT,)), encode_number(len(tokens)), bits.data()))


def decode_tokens(data: bytes, vocabulary: int, limit: int) -> list[int]:
    """The ids in `data`, 1 to `limit` of them. Raises `ProtocolError`."""
    if data[:1] != bytes((FORMAT,)):
        raise malformed(f"a tokens payload must start with format byte {FORMAT}")
    count, start = decode_number(data, 1)
    if count > limit:
        raise too_large(f"a tokens payload must have at most {limit} ids")
    if not count:
        raise malformed("a tokens payload must have at least one id")
    bits, width = BitReader(data[start:]), (vocabulary - 1).bit_length()
    tokens = [bits.read(width) for _ in range(count)]
    bits.finish()
    if max(tokens) >= vocabulary:
        raise malformed(f"the ids of a tokens payload must be below {vocabulary}")
    return tokens
