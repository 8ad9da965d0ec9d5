"""Payload beside drafted tokens: a byte for each, the number of its runners-up, and the ids of all these."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from proto.errors import malformed

ID: Final = np.dtype("<u4")


def encode_lists(lists: Sequence[Sequence[int]]) -> bytes:
    """Lists of at most 255 ids, one for each drafted token."""
    return bytes(map(len, lists)) + np.asarray([each for ids in lists for each in ids], ID).tobytes()


def decode_lists(data: bytes, count: int, most: int, vocabulary: int) -> list[tuple[int, ...]]:
    """The `count` lists in `data`, of at most `most` ids below `vocabulary` each. Raises `ProtocolError`."""
    lengths = list(data[:count])
    if len(lengths) < count or max(lengths, default=0) > most:
        raise malformed(f"each drafted token must have at most {most} runners-up, and say how many")
    if len(data) != count + ID.itemsize * sum(lengths):
        raise malformed("there must be as many runners-up as are announced")
    ids = np.frombuffer(data, ID, offset=count).tolist()
    if any(each >= vocabulary for each in ids):
        raise malformed(f"runners-up must be below {vocabulary}")
    ends = list(accumulate(lengths))
    return [tuple(ids[end - length : end]) for length, end in zip(lengths, ends, strict=True)]
