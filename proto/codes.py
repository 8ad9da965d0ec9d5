"""Codes of ids, digests and probabilities, their compression, and the payloads of drafts.

Sorted unique ids travel as varints of their gaps. A varint is little-endian base 128 (LEB128): seven bits per byte,
high bit set except in the last byte. The first number is the first id. Each later one is the distance to the id
before it, minus one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from math import isqrt, ldexp
from typing import Any, Final

import lz4.block
import numpy as np
from numpy.typing import NDArray

from proto.errors import malformed, too_large

LONGEST = 4  # bytes; enough for 2**28, ids are below 2**24
FEW = 96  # up to this many, a Python loop is faster than a dozen numpy calls


def encode_number(value: int) -> bytes:
    """Returns one varint of `value`, which must be below 2**28."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_number(data: bytes, start: int) -> tuple[int, int]:
    """Returns the varint at `start` and the offset after it.

    Raises `ProtocolError` if truncated or over-long.
    """
    value = 0
    for index, byte in enumerate(data[start : start + LONGEST]):
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            if byte == 0 and index > 0:
                raise malformed("a varint must not be over-long")
            return value, start + index + 1
    raise malformed(f"a varint must end within {LONGEST} bytes")


def encode_ids(ids: NDArray[np.uint32]) -> bytes:
    """Returns `ids` [n], strictly increasing and below 2**28, in 1 to 4 bytes each."""
    return _encode_few(ids.tolist()) if len(ids) <= FEW else _encode_many(ids)


def decode_ids(data: bytes, count: int, vocabulary: int) -> NDArray[np.uint32]:
    """Returns the `count` ids in all of `data`, each below `vocabulary`. Raises `ProtocolError`."""
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


# --- digest
# Rolling 61-bit digest of a token prefix, on which a draft is conditioned.
#
# The polynomial sum of (token + 1) * BASE**(distance to the end) modulo the Mersenne prime 2**61 - 1. It detects drafts
# for another prefix. It is not cryptographic: an attacker can find collisions.

PRIME: Final = 2**61 - 1
BASE: Final = 0x167BDE172C16608E  # random, below PRIME; part of the protocol
EMPTY: Final = 0x0039A2DB49A459BE  # digest of the empty prefix; random, part of the protocol


def extend(digest: int, token: int) -> int:
    """Returns the digest of the prefix with `digest`, extended by `token`."""
    # + 1, so that token 0 changes the digest too
    return (digest * BASE + token + 1) % PRIME


def digest(tokens: Iterable[int]) -> int:
    """Returns the digest of a whole prefix, below `PRIME`."""
    value = EMPTY
    for token in tokens:
        value = extend(value, token)
    return value


# --- logcode
# The 16-bit logarithmic code of a probability: 2,048 steps per octave over 32 octaves.
#
# Code 0 is probability 0; code c > 0 is 2**((c - 65535) / 2048), so 65535 is 1 and 1 is just above 2**-32. Rounding in
# the logarithm changes a probability by at most a factor 2**(1/4096), 1.693e-4.

STEPS_PER_OCTAVE: Final = 2048
OCTAVES: Final = 32
LARGEST: Final = STEPS_PER_OCTAVE * OCTAVES - 1  # the code of 1.0
RELATIVE_ERROR: Final = 1.7e-4  # bound of |decode(encode(p)) - p| / p for p in [2**-31.999, 1]

_FRACTION_BITS = 128


def _build_table() -> NDArray[np.float64]:
    """Value of every code, float64 [65536].

    Both sides race on these numbers, so all bits must agree everywhere. Integers give correctly rounded values,
    while exp2 differs between mathematical libraries.
    """
    step = 2 << _FRACTION_BITS  # 2 in fixed point; its repeated root is 2**(1 / STEPS_PER_OCTAVE)
    for _ in range(STEPS_PER_OCTAVE.bit_length() - 1):
        step = isqrt(step << _FRACTION_BITS)
    power = 1 << _FRACTION_BITS
    octave = np.empty(STEPS_PER_OCTAVE)  # 2**(k / STEPS_PER_OCTAVE)
    for k in range(STEPS_PER_OCTAVE):
        octave[k] = ldexp(float(power), -_FRACTION_BITS)
        power = (power * step) >> _FRACTION_BITS
    exponents, remainders = np.divmod(np.arange(-LARGEST, 1), STEPS_PER_OCTAVE)
    table = np.ldexp(octave[remainders], exponents)
    table[0] = 0.0
    table.flags.writeable = False
    return table


TABLE: Final = _build_table()


def encode_probabilities(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Returns the nearest code of each probability, same shape.

    Zero, negative values and values below the range become 0. Values above 1 (rounded sums) become the code of 1.
    Raises `ValueError` for NaN.
    """
    if np.isnan(probabilities).any():
        raise ValueError("a probability is NaN")
    return nearest(probabilities)


def nearest(numbers: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Like `encode_probabilities`, but NaN becomes 0."""
    # Half of the smallest rounds to code 0; fmax and fmin prefer numbers to NaN.
    positive = np.fmin(np.fmax(numbers, TABLE[1] / 2, dtype=np.float64), 1.0)
    codes = np.rint(np.log2(positive) * STEPS_PER_OCTAVE) + LARGEST
    rounded: NDArray[np.float64] = np.maximum(codes, 0)
    return rounded.astype(np.uint16)


def decode_probabilities(codes: NDArray[np.uint16]) -> NDArray[np.float64]:
    """Returns the probability of each code, same shape."""
    probabilities: NDArray[np.float64] = TABLE[codes]
    return probabilities


# --- id_block
# Strictly increasing ids, as varints of their gaps or a bit per token, whichever is shorter.


def encode_block(ids: NDArray[np.uint32]) -> tuple[bool, bytes]:
    """Encodes `ids` [n], at least one, as a bitmap (True) or varints (False).

    Chooses the shorter form. Raises `ProtocolError` if out of order.
    """
    length = int(ids[-1]) // 8 + 1
    if length >= len(ids):  # otherwise varints, a byte each at least, are not shorter
        varints = encode_ids(ids)
        if length >= len(varints):
            return False, varints
    return True, _encode_bitmap(ids)


def decode_block(data: bytes, bitmap: bool, count: int, vocabulary: int) -> NDArray[np.uint32]:
    """Returns the `count` ids, at least one, in all of `data`, each below `vocabulary`.

    Raises `ProtocolError`.
    """
    return _decode_bitmap(data, count, vocabulary) if bitmap else decode_ids(data, count, vocabulary)


def _encode_bitmap(ids: NDArray[np.uint32]) -> bytes:
    """Sets bit i % 8 of byte i // 8 for every id i; the last id determines the length."""
    if not (ids[1:] > ids[:-1]).all():
        raise malformed("ids must be strictly increasing")
    bits = np.zeros(int(ids[-1]) + 1, dtype=np.uint8)
    bits[ids] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def _decode_bitmap(data: bytes, count: int, vocabulary: int) -> NDArray[np.uint32]:
    if data[-1:] in (b"", b"\0"):
        raise malformed("a bitmap must end with the byte of its last id")
    if len(data) > (vocabulary + 7) // 8:  # before each bit becomes a byte
        raise malformed(f"a bitmap must have {count} ids below {vocabulary}")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    ids = np.flatnonzero(bits).astype(np.uint32)
    if len(ids) != count or ids[-1] >= vocabulary:
        raise malformed(f"a bitmap must have {count} ids below {vocabulary}")
    return ids


# --- compression
# LZ4 for payload bodies, only if it shrinks them, and never expanded above the format's maximum.

COMPRESSED: Final = 0b1000_0000  # in the format byte: a size (uint32, little-endian) and an LZ4 block follow
_SIZE = struct.Struct("<I")
_EXPANSION = 255  # maximum of an LZ4 block


def seal(form: int, body: bytes) -> bytes:
    """Returns format byte `form` and `body`, compressed if that is shorter."""
    packed: bytes = lz4.block.compress(body, store_size=False)
    if len(packed) + _SIZE.size < len(body):
        return bytes((form | COMPRESSED,)) + _SIZE.pack(len(body)) + packed
    return bytes((form,)) + body


def unseal(data: bytes, forms: int, limit: int) -> tuple[int, bytes]:
    """Returns the format, below `forms`, and the body, at most `limit` bytes, from `seal`.

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
    # before any allocation: the format's limit, and the block's largest expansion
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


# --- bits
# A stream of numbers of given widths, most significant bit first, zero-padded to whole bytes.


class BitWriter:
    """Collects numbers; `data` is the stream so far."""

    __slots__ = ("_bits", "_rest", "_whole")

    def __init__(self) -> None:
        self._whole = bytearray()
        self._rest, self._bits = 0, 0  # bits of an incomplete byte

    def write(self, value: int, width: int) -> None:
        """Appends `value` in `width` bits. Raises `ValueError` if it does not fit."""
        if value < 0 or value.bit_length() > width:
            raise ValueError(f"a number does not fit into {width} bits")
        stream = self._rest << width | value
        full, self._bits = divmod(self._bits + width, 8)
        self._whole += (stream >> self._bits).to_bytes(full)
        self._rest = stream & (1 << self._bits) - 1

    def data(self) -> bytes:
        """Returns the bytes, the last one padded with zeros."""
        return bytes(self._whole) + (bytes((self._rest << 8 - self._bits,)) if self._bits else b"")


class BitReader:
    """Reads numbers in the order of writing."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def read(self, width: int) -> int:
        """Returns the next `width` bits. Raises `ProtocolError` if there are fewer."""
        start, end = self._at, self._at + width
        if end > 8 * len(self._data):
            raise malformed("a bit stream must not be truncated")
        self._at = end
        # Only this number's bytes, as a stream may be far longer.
        whole = int.from_bytes(self._data[start // 8 : (end + 7) // 8])
        return whole >> -end % 8 & (1 << width) - 1

    def finish(self) -> None:
        """Raises `ProtocolError` unless only zero padding is left."""
        rest = 8 * len(self._data) - self._at
        if rest > 7 or self.read(rest):
            raise malformed("a bit stream must end with its last number, padded with zeros to a whole byte")


# --- race
# Payloads of drafts: a race's K fastest tokens with coded probabilities, and the paper's distributions.

FORMAT: Final = 0


@dataclass(frozen=True, slots=True, eq=False)
class RaceEntries:
    """At least one token id [n], strictly increasing, and their probabilities' `logcode` [n]."""

    ids: NDArray[np.uint32]
    codes: NDArray[np.uint16]


def encode_race(entries: RaceEntries) -> bytes:
    """Returns format byte, count, codes (little-endian), ids. Raises `ProtocolError` if invalid."""
    count = len(entries.ids)
    if not count or len(entries.codes) != count:
        raise malformed("race entries must be as many codes as ids, at least one")
    codes = entries.codes.astype("<u2").tobytes()
    return b"".join((bytes((FORMAT,)), encode_number(count), codes, encode_ids(entries.ids)))


def decode_count(data: bytes, payload: str, form: int, limit: int, one: str, many: str) -> tuple[int, int]:
    """Returns the count, 1 to `limit`, after format byte `form`, and its end. Raises `ProtocolError`."""
    if data[:1] != bytes((form,)):
        raise malformed(f"a {payload} payload must start with format byte {form}")
    count, end = decode_number(data, 1)
    if count > limit:
        raise too_large(f"a {payload} payload must have at most {limit} {many}")
    if not count:
        raise malformed(f"a {payload} payload must have at least one {one}")
    return count, end


def decode_race(data: bytes, vocabulary: int, limit: int) -> RaceEntries:
    """Returns at most `limit` entries with ids below `vocabulary`. Raises `ProtocolError`."""
    count, start = decode_count(data, "race", FORMAT, limit, "entry", "entries")
    ids = decode_ids(data[start + 2 * count :], count, vocabulary)  # empty if codes are missing
    codes = np.frombuffer(data, dtype="<u2", count=count, offset=start).astype(np.uint16)
    return RaceEntries(ids, codes)


# --- raw
# The `raw` payload: a whole distribution, the baseline of the other codecs.

SUM_TOLERANCE: Final = 1e-3
_FORMS: Final = 1


@dataclass(frozen=True, slots=True, eq=False)
class RawEntries:
    """Probabilities [vocabulary], their sum 1 within `SUM_TOLERANCE`, and the drawn token."""

    probabilities: NDArray[np.float32]
    token: int


def encode_raw(entries: RawEntries) -> bytes:
    """Returns format byte, token, probabilities (little-endian). Raises `ProtocolError` if no distribution."""
    _check(entries)
    return seal(0, encode_number(entries.token) + entries.probabilities.astype("<f4").tobytes())


def decode_raw(data: bytes, vocabulary: int) -> RawEntries:
    """Returns the distribution in `data`, [vocabulary]. Raises `ProtocolError`."""
    _, body = unseal(data, _FORMS, LONGEST + 4 * vocabulary)
    token, start = decode_number(body, 0)
    if len(body) != start + 4 * vocabulary:
        raise malformed(f"a raw payload must have {vocabulary} probabilities")
    entries = RawEntries(np.frombuffer(body, dtype="<f4", offset=start).astype(np.float32), token)
    _check(entries)
    return entries


def _check(entries: RawEntries) -> None:
    probabilities = entries.probabilities
    # NaN fails the comparison; an infinite item makes the sum infinite
    if not (probabilities >= 0).all() or abs(_sum(probabilities) - 1) > SUM_TOLERANCE:
        raise malformed(f"probabilities must be finite, not negative, and sum to 1 within {SUM_TOLERANCE:g}")
    if not 0 <= entries.token < len(probabilities) or probabilities[entries.token] == 0:
        raise malformed("the drafted token must be one of the vocabulary with a probability above 0")


def _sum(probabilities: NDArray[np.float32]) -> float:
    return float(probabilities.sum(dtype=np.float64))


# --- top_p
# The `top-p` payload: a truncated distribution and its drawn token (DRAGON §4.2).

VARINTS: Final = 0  # format: ids as varints of their gaps
BITMAP: Final = 1  # format: ids as a bit per token, shorter if dense
_TOP_P_FORMS: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class TopPEntries:
    """At least one token id [n], strictly increasing, with finite positive weights [n].

    `choice` is the drafted token's index in `ids`. Weights need not sum to 1: both sides divide them by their sum.
    """

    ids: NDArray[np.uint32]
    weights: NDArray[np.float16]
    choice: int


def encode_top_p(entries: TopPEntries) -> bytes:
    """Returns format byte, count, choice, weights and ids. Raises `ProtocolError` if invalid."""
    count = len(entries.ids)
    if not count or len(entries.weights) != count or not 0 <= entries.choice < count:
        raise malformed("top-p entries must be as many weights as ids, at least one, and a choice of them")
    _check_weights(entries.weights)
    bitmap, ids = encode_block(entries.ids)
    form = BITMAP if bitmap else VARINTS
    weights = entries.weights.astype("<f2").tobytes()
    return seal(form, b"".join((encode_number(count), encode_number(entries.choice), weights, ids)))


def decode_top_p(data: bytes, vocabulary: int) -> TopPEntries:
    """Returns the entries in `data`, with ids below `vocabulary`. Raises `ProtocolError`."""
    # two numbers, two bytes per weight, at most a byte per id: gaps sum to less than the vocabulary
    form, body = unseal(data, _TOP_P_FORMS, 2 * LONGEST + 3 * vocabulary)
    count, start = decode_number(body, 0)
    choice, start = decode_number(body, start)
    middle = start + 2 * count
    if not choice < count or len(body) < middle:
        raise malformed("a top-p payload must have at least one entry, weights for all and a choice")
    weights = np.frombuffer(body, dtype="<f2", count=count, offset=start).astype(np.float16)
    _check_weights(weights)
    return TopPEntries(decode_block(body[middle:], form == BITMAP, count, vocabulary), weights, choice)


def _check_weights(weights: NDArray[np.float16]) -> None:
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise malformed("weights must be finite and above 0")
