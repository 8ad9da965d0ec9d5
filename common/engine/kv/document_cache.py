"""Keys and values of documents, kept between requests."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from common.engine.kv.document_store import DocumentStore, StoreCounters
from common.engine.kv.layout import DocumentStates, states_bytes


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Statistics of a document cache so far. A miss in memory may have been a hit on disk: see `disk`."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    disk: StoreCounters


class DocumentCache:
    """Least-recently-used document KV in memory, bounded in bytes, addressed by (model identity, token ids).

    Behind it may be a store on disk, which gets what is computed and is asked for what is not in memory. A document's
    KV depends on the model and its own tokens alone (it starts the row), so a hit gives the very numbers that
    computing it again would give.
    """

    def __init__(self, limit_bytes: int, store: DocumentStore | None = None) -> None:
        """Keep at most `limit_bytes` bytes of keys and values in memory; 0 keeps nothing there."""
        if limit_bytes < 0:
            raise ValueError(f"the document cache's limit must not be negative, got {limit_bytes} bytes")
        self.limit_bytes = limit_bytes
        self.store = store
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
        """The kept states, or None: then they are to be computed."""
        entry = self._entries.get(key)
        if entry is not None:
            self._hits += 1
            self._entries.move_to_end(key)
            if self.store is not None:
                self.store.touch(key)
            return entry[0]
        self._misses += 1
        states = None if self.store is None else self.store.get(key)
        if states is not None:
            self._keep(key, states)
        return states

    def put(self, key: bytes, states: DocumentStates) -> None:
        """Keep `states`, just computed and not to be changed afterwards; drop what was used longest ago.

        They get to the disk after `release`.
        """
        self._keep(key, states)
        if self.store is not None:
            self.store.put(key, states)

    def release(self) -> None:
        """Write to disk, in the background, what was put: nobody waits for the computer now."""
        if self.store is not None:
            self.store.release()

    def flush(self) -> None:
        """Wait until all that was put is on disk, or given up."""
        if self.store is not None:
            self.store.flush()

    def close(self) -> None:
        """Write what waits, and end the store's thread."""
        if self.store is not None:
            self.store.close()

    def _keep(self, key: bytes, states: DocumentStates) -> None:
        size = states_bytes(states)
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
        disk = StoreCounters() if self.store is None else self.store.counters
        return CacheCounters(self._hits, self._misses, self._evictions, len(self._entries), self._bytes, disk)
