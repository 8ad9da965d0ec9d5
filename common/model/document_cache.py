"""Keys and values of documents, kept between requests."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

DocumentStates = tuple[tuple[Tensor, Tensor], ...]  # per layer: keys, values, [kv_heads, tokens, dim]


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """How a document cache did so far."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int


class DocumentCache:
    """Least-recently-used store of document KV, bounded in bytes, addressed by (model identity, token ids).

    A document's KV depends on the model and its own tokens alone (it starts the row), so a hit gives the very
    numbers that computing it again would give.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Keep at most `limit_bytes` bytes of keys and values; 0 keeps nothing."""
        if limit_bytes < 0:
            raise ValueError(f"the document cache's limit must not be negative, got {limit_bytes} bytes")
        self.limit_bytes = limit_bytes
        self._entries: OrderedDict[bytes, tuple[DocumentStates, int]] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0

    @staticmethod
    def key(model_identity: str, tokens: Sequence[int]) -> bytes:
        """The content address of a document."""
        digest = hashlib.sha256(model_identity.encode())
        digest.update(b"\0")
        digest.update(np.asarray(tokens, dtype="<u4").tobytes())
        return digest.digest()

    def get(self, key: bytes) -> DocumentStates | None:
        """The stored states, or None."""
        entry = self._entries.get(key)
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: bytes, states: DocumentStates) -> None:
        """Keep `states` (not to be written to afterwards) and drop what was used longest ago."""
        size = sum(part.numel() * part.itemsize for layer in states for part in layer)
        if size > self.limit_bytes or key in self._entries:
            return
        while self._bytes + size > self.limit_bytes:
            _, (_, dropped) = self._entries.popitem(last=False)
            self._bytes -= dropped
            self._evictions += 1
        self._entries[key] = (states, size)
        self._bytes += size

    @property
    def counters(self) -> CacheCounters:
        """Hits, misses and evictions since the start; entries and bytes now."""
        return CacheCounters(self._hits, self._misses, self._evictions, len(self._entries), self._bytes)
