"""The `raw` payload: a whole distribution, the baseline that the other codecs are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from proto.errors import malformed
from proto.payloads.compression import seal, unseal
from proto.varint import LONGEST, decode_number, encode_number

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
