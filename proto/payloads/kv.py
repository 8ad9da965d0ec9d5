"""The `kv` payload: a document's token ids, keys and values in 8 bits, for a reading device.

Keys differ between channels more than between tokens, values the other way round (KIVI: Liu et al. 2024). So a scale
covers one channel of the keys over all tokens, and one token's values in one head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proto.codes import LONGEST, decode_number, encode_number, seal, unseal
from proto.errors import malformed, too_large

LEVELS: Final = 127  # codes are -127 to 127, symmetric about 0
_FORMS: Final = 1
_LARGEST_SCALE: Final = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class KvShape:
    """Shape of one layer's entries per token: keys `[heads, key_dim]` and values `[heads, value_dim]`."""

    heads: int
    key_dim: int
    value_dim: int

    def size(self, tokens: int) -> int:
        """Returns the bytes of a layer: codes and scales."""
        codes = self.heads * tokens * (self.key_dim + self.value_dim)
        return codes + 2 * self.heads * (self.key_dim + tokens)


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """int8 codes [heads, tokens, dim], times broadcastable float16 scales."""

    codes: NDArray[np.int8]
    scales: NDArray[np.float16]

    def numbers(self) -> NDArray[np.float32]:
        """Returns the numbers, float32 [heads, tokens, dim]."""
        restored: NDArray[np.float32] = self.codes.astype(np.float32) * self.scales.astype(np.float32)
        return restored


@dataclass(frozen=True, slots=True, eq=False)
class KvEntries:
    """Token ids [tokens], and each layer's keys and values."""

    tokens: tuple[int, ...]
    layers: tuple[tuple[Codes, Codes], ...]


def quantise_kv(numbers: NDArray[np.floating[Any]], axis: int) -> Codes:
    """Returns the nearest codes of `numbers` [heads, tokens, dim], with one scale along `axis`.

    A number changes by at most half a scale. A scale is the largest magnitude / 127, rounded up to float16. Raises
    `ValueError` for non-finite numbers or scales beyond float16.
    """
    exact = np.abs(numbers.astype(np.float64)).max(axis=axis, keepdims=True) / LEVELS
    if not (exact <= _LARGEST_SCALE).all():
        raise ValueError("keys and values must be finite and below 8 million to be sent in 8 bits")
    scales = exact.astype(np.float16)
    # Rounded up, so that the largest number fits the largest code.
    scales = np.where(scales < exact, np.nextafter(scales, np.float16(np.inf)), scales)
    safe = np.where(scales > 0, scales, np.float16(1)).astype(np.float64)
    return Codes(np.rint(numbers / safe).astype(np.int8), scales)


def encode_kv(entries: KvEntries) -> bytes:
    """Returns format byte, ids, and per layer the keys' and values' scales and codes."""
    body = [encode_number(len(entries.tokens)), *map(encode_number, entries.tokens)]
    for layer in entries.layers:
        for part in layer:
            body += [part.scales.astype("<f2").tobytes(), part.codes.tobytes()]
    return seal(0, b"".join(body))


def largest_kv(shapes: Sequence[KvShape], tokens: int) -> int:
    """Returns the largest payload in bytes of a document with `tokens` tokens."""
    return 1 + LONGEST * (1 + tokens) + sum(shape.size(tokens) for shape in shapes)


def decode_kv(data: bytes, shapes: Sequence[KvShape], vocabulary: int, most_tokens: int) -> KvEntries:
    """Returns the entries for a model with layers of `shapes`. Raises `ProtocolError`."""
    _, body = unseal(data, _FORMS, largest_kv(shapes, most_tokens))
    count, at = decode_number(body, 0)
    if count > most_tokens:
        raise too_large(f"a document must have at most {most_tokens} tokens")
    if not count:
        raise malformed("a document must have at least one token")
    tokens = []
    for _ in range(count):
        token, at = decode_number(body, at)
        if token >= vocabulary:
            raise malformed(f"token ids of a document must be below {vocabulary}")
        tokens.append(token)
    if len(body) - at != sum(shape.size(count) for shape in shapes):
        raise malformed(f"a kv payload of {count} tokens must have the keys and values of {len(shapes)} layers")
    layers = []
    for shape in shapes:
        keys, at = _read(body, at, (shape.heads, 1, shape.key_dim), (shape.heads, count, shape.key_dim))
        values, at = _read(body, at, (shape.heads, count, 1), (shape.heads, count, shape.value_dim))
        layers.append((keys, values))
    return KvEntries(tuple(tokens), tuple(layers))


def _read(body: bytes, at: int, scaled: tuple[int, int, int], coded: tuple[int, int, int]) -> tuple[Codes, int]:
    some, many = int(np.prod(scaled)), int(np.prod(coded))
    scales = np.frombuffer(body, "<f2", some, at).astype(np.float16).reshape(scaled)
    # NaN fails the first comparison, infinity the second
    if not ((scales >= 0) & (scales <= _LARGEST_SCALE)).all():
        raise malformed("scales must be finite and not negative")
    start = at + 2 * some
    return Codes(np.frombuffer(body, np.int8, many, start).reshape(coded), scales), start + many
