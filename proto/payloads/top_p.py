"""The `top-p` payload: a truncated distribution and the token drawn from it (DRAGON §4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from proto.errors import malformed
from proto.payloads.compression import seal, unseal
from proto.payloads.id_block import decode_block, encode_block
from proto.varint import LONGEST, decode_number, encode_number

VARINTS: Final = 0  # format: ids as varints of their gaps
BITMAP: Final = 1  # format: ids as one bit per token, shorter when they are dense
_FORMS: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class TopPEntries:
    """At least one token id [n], strictly increasing, their weights [n], finite and positive, and a choice.

    `choice` is the index in `ids` of the drafted token. Weights need not sum to exactly 1: both sides use
    them divided by their sum.
    """

    ids: NDArray[np.uint32]
    weights: NDArray[np.float16]
    choice: int


def encode_top_p(entries: TopPEntries) -> bytes:
    """Format byte, then count, choice, weights and ids. Raises `ProtocolError` for what can't be sent."""
    count = len(entries.ids)
    if not count or len(entries.weights) != count or not 0 <= entries.choice < count:
        raise malformed("top-p entries must be as many weights as ids, at least one, and a choice of them")
    _check_weights(entries.weights)
    bitmap, ids = encode_block(entries.ids)
    form = BITMAP if bitmap else VARINTS
    weights = entries.weights.astype("<f2").tobytes()
    return seal(form, b"".join((encode_number(count), encode_number(entries.choice), weights, ids)))


def decode_top_p(data: bytes, vocabulary: int) -> TopPEntries:
    """The entries in `data`, with ids below `vocabulary`. Raises `ProtocolError`."""
    # two numbers, two bytes per weight, and a byte per id at most: gaps sum to less than the vocabulary
    form, body = unseal(data, _FORMS, 2 * LONGEST + 3 * vocabulary)
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
