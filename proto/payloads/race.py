"""The `race` payload: the K fastest tokens of a race with their coded probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from proto.errors import malformed, too_large
from proto.varint import decode_ids, decode_number, encode_ids, encode_number

FORMAT: Final = 0


@dataclass(frozen=True, slots=True, eq=False)
class RaceEntries:
    """At least one token id [n], strictly increasing, and the `logcode` of each one's probability [n]."""

    ids: NDArray[np.uint32]
    codes: NDArray[np.uint16]


def encode_race(entries: RaceEntries) -> bytes:
    """Format byte, count, codes (little-endian), ids. Raises `ProtocolError` for what can't be sent."""
    count = len(entries.ids)
    if not count or len(entries.codes) != count:
        raise malformed("race entries must be as many codes as ids, at least one")
    codes = entries.codes.astype("<u2").tobytes()
    return b"".join((bytes((FORMAT,)), encode_number(count), codes, encode_ids(entries.ids)))


def decode_race(data: bytes, vocabulary: int, limit: int) -> RaceEntries:
    """The entries in `data`: ids below `vocabulary`, at most `limit` of them. Raises `ProtocolError`."""
    if data[:1] != bytes((FORMAT,)):
        raise malformed(f"a race payload must start with format byte {FORMAT}")
    count, start = decode_number(data, 1)
    if count > limit:
        raise too_large(f"a race payload must have at most {limit} entries")
    if not count:
        raise malformed("a race payload must have at least one entry")
    ids = decode_ids(data[start + 2 * count :], count, vocabulary)  # none of them if codes are missing
    codes = np.frombuffer(data, dtype="<u2", count=count, offset=start).astype(np.uint16)
    return RaceEntries(ids, codes)
