"""Payloads of drafts: the K fastest tokens of a race with their coded probabilities, and the paper's distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from proto.codes import (
    LONGEST,
    decode_block,
    decode_ids,
    decode_number,
    encode_block,
    encode_ids,
    encode_number,
    seal,
    unseal,
)
from proto.errors import malformed, too_large

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


# --- raw
# The `raw` payload: a whole distribution, the baseline that the other codecs are measured against.

SUM_TOLERANCE: Final = 1e-3
_FORMS: Final = 1


@dataclass(frozen=True, slots=True, eq=False)
class RawEntries:
    """Probabilities [vocabulary], their sum 1 within `SUM_TOLERANCE`, and the token drawn from them."""

    probabilities: NDArray[np.float32]
    token: int


def encode_raw(entries: RawEntries) -> bytes:
    """Format byte, token, probabilities (little-endian). Raises `ProtocolError` if no distribution."""
    _check(entries)
    return seal(0, encode_number(entries.token) + entries.probabilities.astype("<f4").tobytes())


def decode_raw(data: bytes, vocabulary: int) -> RawEntries:
    """The distribution in `data`, [vocabulary]. Raises `ProtocolError`."""
    _, body = unseal(data, _FORMS, LONGEST + 4 * vocabulary)
    token, start = decode_number(body, 0)
    if len(body) != start + 4 * vocabulary:
        raise malformed(f"a raw payload must have {vocabulary} probabilities")
    entries = RawEntries(np.frombuffer(body, dtype="<f4", offset=start).astype(np.float32), token)
    _check(entries)
    return entries


def _check(entries: RawEntries) -> None:
    probabilities = entries.probabilities
    # NaN fails the comparison, and an infinite item makes the sum infinite
    if not (probabilities >= 0).all() or abs(_sum(probabilities) - 1) > SUM_TOLERANCE:
        raise malformed(f"probabilities must be finite, not negative, and sum to 1 within {SUM_TOLERANCE:g}")
    if not 0 <= entries.token < len(probabilities) or probabilities[entries.token] == 0:
        raise malformed("the drafted token must be one of the vocabulary with a probability above 0")


def _sum(probabilities: NDArray[np.float32]) -> float:
    return float(probabilities.sum(dtype=np.float64))


# --- top_p
# The `top-p` payload: a truncated distribution and the token drawn from it (DRAGON §4.2).

VARINTS: Final = 0  # format: ids as varints of their gaps
BITMAP: Final = 1  # format: ids as one bit per token, shorter when they are dense
_TOP_P_FORMS: Final = 2


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
