"""Keys and values of documents and conversations, kept between requests."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import queue
import secrets
import stat
import threading
import zlib
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from common.engine.kv.memory import DocumentStates, Layout, states_bytes
from common.engine.kv.store_folder import (
    GENERATION,
    LAST_WRITER,
    SUFFIX,
    list_stored_files,
    locked,
    read_note,
    write_note,
)
from common.process.files import private_folder
from proto.payloads.kv import Codes, KvEntries, KvShape, decode_kv, encode_kv, largest_kv, quantise_kv

# --- document_file
# A document's states as a safetensors file with identity and checksums.

_FORMAT = "1"
_HEADER_BYTES = 2**24  # a few hundred per layer
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}  # as the format spells them


class DamagedFile(Exception):
    """The file is damaged or belongs to another document or model. It must not be used."""


@dataclass(frozen=True, slots=True)
class Label:
    """Identity of a file's content."""

    key: str  # content address, hexadecimal
    source: str  # the model that computed it, see `common/engine/model/decoder.py`


def save_states(path: Path, states: DocumentStates, label: Label) -> None:
    """Writes `states`. Raises `OSError` or `SafetensorError`, and may leave a partial file."""
    parts = {name: part.contiguous().cpu() for name, part in _named(states).items()}
    sums = " ".join(f"{_checksum(part):08x}" for part in parts.values())
    tokens = str(states[0][0].shape[1])
    metadata = {"format": _FORMAT, "key": label.key, "source": label.source, "tokens": tokens, "crc32": sums}
    save_file(parts, path, metadata)
    path.chmod(0o600)


def load_states(path: Path, layout: Layout, label: Label, most_bytes: int) -> DocumentStates:
    """Reads the states of `label` from `path` onto `layout`'s torch device.

    Never maps the file: truncating a mapped file kills the process. The checksum covers the bytes read. Raises
    `DamagedFile`, also for a file of more than `most_bytes`, and `OSError` for an unreadable one.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # never blocks at a pipe
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
            raise DamagedFile("it is no file of this store")
        metadata, offsets, start = _header(descriptor, status.st_size, layout, label)
        parts = {}
        for name, shape in offsets.shapes.items():
            parts[name] = torch.empty(shape, dtype=layout.dtype)
            _fill(descriptor, _bytes_of(parts[name]), start + offsets.first[name])
    finally:
        os.close(descriptor)
    if metadata.get("crc32") != " ".join(f"{_checksum(part):08x}" for part in parts.values()):
        raise DamagedFile("a checksum is wrong")
    placed = [part.to(layout.torch_device) for part in parts.values()]
    return tuple(zip(placed[::2], placed[1::2], strict=True))


@dataclass(frozen=True, slots=True)
class _Offsets:
    shapes: dict[str, tuple[int, int, int]]
    first: dict[str, int]


def _header(descriptor: int, size: int, layout: Layout, label: Label) -> tuple[dict[str, Any], _Offsets, int]:
    """Returns metadata, tensor offsets, and the data's offset. Raises `DamagedFile`."""
    length = int.from_bytes(_read(descriptor, 8, 0), "little")
    if length > min(size, _HEADER_BYTES):
        raise DamagedFile("its header is too long")
    try:
        content: dict[str, Any] = json.loads(_read(descriptor, length, 8))
        metadata: dict[str, Any] = content.pop("__metadata__")
        told = {name: metadata.get(name) for name in ("format", "key", "source")}
        if told != {"format": _FORMAT, "key": label.key, "source": label.source}:
            raise DamagedFile("it is of another document or model")
        tokens = int(metadata["tokens"])
        start = 8 + length
        if tokens < 1 or start + tokens * layout.token_bytes != size:
            raise DamagedFile("it is longer or shorter than what was written")
        shapes = _shapes(layout, tokens)
        if content.keys() != shapes.keys():
            raise DamagedFile("its layers are not the model's")
        first = {name: _first(content[name], shape, layout, size - start) for name, shape in shapes.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise DamagedFile("its header can't be read") from error
    return metadata, _Offsets(shapes, first), start


def _first(tensor: dict[str, Any], shape: tuple[int, ...], layout: Layout, size: int) -> int:
    """Offset of a tensor after the header. Raises `DamagedFile`, or a type's own error."""
    first, end = tensor["data_offsets"]
    if tuple(tensor["shape"]) != shape or _DTYPES.get(tensor["dtype"]) != layout.dtype:
        raise DamagedFile("its shapes are not the model's")
    if end - first != math.prod(shape) * layout.dtype.itemsize or first < 0 or end > size:
        raise DamagedFile("its tensors are not where they should be")
    return int(first)


def _read(descriptor: int, length: int, start: int) -> bytes:
    buffer = bytearray(length)
    _fill(descriptor, memoryview(buffer), start)
    return bytes(buffer)


def _fill(descriptor: int, buffer: memoryview, start: int) -> None:
    while buffer:
        count = os.preadv(descriptor, [buffer], start)
        if count == 0:
            raise DamagedFile("it is cut off")
        buffer, start = buffer[count:], start + count


def _named(states: DocumentStates) -> dict[str, Tensor]:
    named = {}
    for number, (keys, values) in enumerate(states):
        named[f"{number}.keys"], named[f"{number}.values"] = keys, values
    return named


def _shapes(layout: Layout, tokens: int) -> dict[str, tuple[int, int, int]]:
    """The order is that of `_named`."""
    shapes = {}
    for number, layer in enumerate(layout.layers):
        shapes[f"{number}.keys"] = (layer.kv_heads, tokens, layer.key_dim)
        shapes[f"{number}.values"] = (layer.kv_heads, tokens, layer.value_dim)
    return shapes


def _checksum(part: Tensor) -> int:
    # CRC-32 per tensor detects every single burst of errors, several times as fast as a cryptographic hash. A writer to
    # the folder owns the documents anyway.
    return zlib.crc32(_bytes_of(part))


def _bytes_of(part: Tensor) -> memoryview:
    """The tensor must be contiguous and on the CPU."""
    return part.reshape(-1).view(torch.uint8).numpy().data


# --- document_store
# Documents' states on disk, kept between runs and shared by processes.

log = logging.getLogger(__name__)

_Item = tuple[bytes, DocumentStates, str]  # key, states, generation at the miss

_MISSED = 4096  # most documents being computed; cancelled answers leave theirs
_WAITING = 2**28  # most bytes in the queue, or one document; more is not written
_HEADER = 1024, 256  # bytes of a file besides its numbers, at most: fixed, and per layer
_KEEP = 0.9  # share of the limit left by evictions, so that listings are rare


@dataclass(frozen=True, slots=True)
class DocumentStoreCounters:
    hits: int = 0
    misses: int = 0
    written: int = 0
    evictions: int = 0
    damaged: int = 0  # untrusted files; each is a miss, too
    failed: int = 0


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Folder of documents' states, and its limit in bytes."""

    folder: Path
    limit_bytes: int


class DocumentStore:
    """One file per document, named by content address, with least-recently-used eviction.

    Processes may share a folder. A file appears whole, by a rename under the lock. The limit includes unfinished files.
    Nothing is forced to disk: checksums detect damage by a power cut. A removed file stays readable for its reader.
    After a failure the document is computed again. One thread uses a store; its own thread writes the files.
    """

    def __init__(self, options: StoreOptions, source: str, layout: Layout) -> None:
        """Keeps at most `options.limit_bytes` computed by `source`, with tensors as in `layout`."""
        self.folder = options.folder
        self.limit_bytes = options.limit_bytes
        self.source = source
        self.counters = DocumentStoreCounters()
        self._layout = layout
        self._name = secrets.token_hex(16)
        self._size = 0  # bytes in the folder, valid while this was the last writer
        self._warned = False
        self._missed: dict[bytes, str] = {}  # generation of the first miss of each document being computed, by key
        self._held: list[_Item] = []
        self._waiting = 0  # bytes held or in the queue
        self._counting = threading.Lock()
        self._queue: queue.Queue[_Item | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        with suppress(OSError):  # missing or not writable: `put` reports it
            self._shrink()

    def get(self, key: bytes) -> DocumentStates | None:
        """Returns None on a miss. Removes a damaged file."""
        path = self._path(key)
        try:
            states = load_states(path, self._layout, self._label(key), self.limit_bytes)
        except DamagedFile:
            self._count(damaged=1, misses=1)
            with suppress(OSError):
                path.unlink()
        except OSError:  # usually a missing file
            self._count(misses=1)
        else:
            self._count(hits=1)
            self.touch(key)
            return states
        self._missed.setdefault(key, read_note(self.folder / GENERATION))
        if len(self._missed) > _MISSED:
            del self._missed[next(iter(self._missed))]
        return None

    def put(self, key: bytes, states: DocumentStates) -> None:
        """Holds `states`, computed after a miss, until `release`. They must not change.

        Ignores states put before, missed too long ago, or missed before the store was cleared, even for a cancelled
        answer.
        """
        generation = self._missed.pop(key, None)
        if generation is None:
            return
        size = states_bytes(states)
        if self._waiting and self._waiting + size > _WAITING:
            self.release()
            self._count(failed=1)
            return
        with self._counting:
            self._waiting += size
        self._held.append((key, states, generation))

    def release(self) -> None:
        if not self._held:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="document-store", daemon=True)
            self._thread.start()
        for item in self._held:
            self._queue.put(item)
        self._held.clear()

    def file_bytes(self, tokens: int) -> int:
        """Most bytes of the file for `tokens` tokens."""
        return tokens * self._layout.token_bytes + _HEADER[0] + _HEADER[1] * len(self._layout.layers)

    @property
    def steady_bytes(self) -> int:
        """Most bytes to write without evicting any of them."""
        return int(_KEEP * self.limit_bytes)

    def touch(self, key: bytes) -> None:
        """Marks the document as used now, also after a read from memory."""
        with suppress(OSError):
            os.utime(self._path(key))

    def flush(self) -> None:
        self.release()
        self._queue.join()

    def close(self) -> None:
        self.release()
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._write(*item)
            except (OSError, SafetensorError) as error:
                self._count(failed=1)
                self._warn(error)
            except Exception:
                self._count(failed=1)
                log.exception("a document's keys and values could not be saved")
            finally:
                with self._counting:
                    self._waiting -= states_bytes(item[1])
                del item  # may be the last reference to the tensors
                self._queue.task_done()
        self._queue.task_done()

    def _write(self, key: bytes, states: DocumentStates, generation: str) -> None:
        path = self._path(key)
        needed = self.file_bytes(states[0][0].shape[1])
        if needed > self.limit_bytes:
            return
        private_folder(self.folder)  # keys and values reveal the document
        with locked(self.folder) as unfinished:
            if path.exists() or read_note(self.folder / GENERATION) != generation:
                return  # written by another process, or cleared by the user meanwhile
            if read_note(self.folder / LAST_WRITER) != self._name:
                self._size = sum(size for _, size, _ in list_stored_files(self.folder))
                write_note(self.folder / LAST_WRITER, self._name)
            if self._size + needed > self.limit_bytes:
                self._make_room(needed)
            unfinished.mkdir(mode=0o700)
            beginning = unfinished / path.name
            save_states(beginning, states, self._label(key))
            size = beginning.stat().st_size
            beginning.replace(path)  # no sync: the checksum detects the damage of a power cut
            self._size += size
        self._count(written=1)

    def _shrink(self) -> None:
        """An earlier run may have had a larger limit."""
        if sum(size for _, size, _ in list_stored_files(self.folder)) > self.limit_bytes:
            with locked(self.folder):
                self._make_room(0)

    def _make_room(self, needed: int) -> None:
        files = sorted(list_stored_files(self.folder))
        self._size = sum(size for _, size, _ in files)
        aim = min(self.limit_bytes - needed, self.steady_bytes)
        for _, size, path in files:
            if self._size <= aim:
                break
            path.unlink(missing_ok=True)
            self._size -= size
            self._count(evictions=1)

    def _path(self, key: bytes) -> Path:
        return self.folder / f"{key.hex()}{SUFFIX}"

    def _label(self, key: bytes) -> Label:
        return Label(key.hex(), self.source)

    def _count(self, **more: int) -> None:
        with self._counting:
            old = self.counters
            self.counters = replace(old, **{name: getattr(old, name) + count for name, count in more.items()})

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            log.warning("documents' keys and values can't be saved in %s: %s; answers continue", self.folder, reason)


# --- document_cache


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """A miss may be a hit on `disk`."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    conversations: int
    conversation_bytes: int
    disk: DocumentStoreCounters


@dataclass(frozen=True, slots=True)
class _Entry:
    states: DocumentStates
    size: int  # bytes
    tenant: Hashable = None
    earlier: NDArray[np.int64] | None = None  # tokens of a conversation; None: a document


class DocumentCache:
    """Least-recently-used KV of documents and of conversations in memory.

    Documents are keyed by (model identity, token ids). An optional store on disk serves their misses. Documents and
    conversations start their rows, so their KV depends on the model and their own tokens alone: a hit equals
    recomputation exactly. Conversations are never on disk, and only their own tenant finds them.
    """

    def __init__(self, limit_bytes: int, store: DocumentStore | None = None) -> None:
        """`limit_bytes` limits memory; 0 keeps nothing there."""
        if limit_bytes < 0:
            raise ValueError(f"the document cache's limit must not be negative, got {limit_bytes} bytes")
        self.limit_bytes = limit_bytes
        self.store = store
        self.unwritten = False  # states for the store were put since the last `release`
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._bytes = self._hits = self._misses = self._evictions = 0
        self._conversations = self._conversation_bytes = 0

    @staticmethod
    def key(model_identity: str, tokens: Sequence[int]) -> bytes:
        digest = hashlib.sha256(model_identity.encode())
        digest.update(b"\0")
        digest.update(np.asarray(tokens, dtype="<u4").tobytes())
        return digest.digest()

    def get(self, key: bytes) -> DocumentStates | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._hits += 1
            self._entries.move_to_end(key)
            if self.store is not None:
                self.store.touch(key)
            return entry.states
        self._misses += 1
        states = None if self.store is None else self.store.get(key)
        if states is not None:
            self._keep(key, states)
        return states

    def put(self, key: bytes, states: DocumentStates) -> None:
        """Keeps new `states`. They must not change, and are written after `release`."""
        self._keep(key, states)
        if self.store is not None:
            self.store.put(key, states)
            self.unwritten = True

    def earlier(self, tenant: Hashable, tokens: Sequence[int]) -> DocumentStates | None:
        """States of the longest known beginning of a conversation, or None."""
        wanted = np.asarray(tokens, dtype=np.int64)
        best, length = None, 0
        for key, entry in self._entries.items():
            if entry.earlier is not None and entry.tenant == tenant:
                common = _common(entry.earlier, wanted)
                if common > length:
                    best, length = key, common
        if best is None:
            return None
        self._entries.move_to_end(best)
        return shortened(self._entries[best].states, length)

    def put_earlier(self, tenant: Hashable, tokens: Sequence[int], states: DocumentStates) -> None:
        """Keeps a conversation's `states`, in place of those of its beginnings. They must not change."""
        own = np.asarray(tokens, dtype=np.int64)
        for key, entry in list(self._entries.items()):
            kept = entry.earlier
            if kept is not None and entry.tenant == tenant and _common(kept, own) == len(kept):
                self._drop(key)
        digest = hashlib.sha256(repr(tenant).encode() + own.tobytes()).digest()
        self._keep(b"earlier" + digest, states, tenant, own)

    def forget_earlier(self, tenant: Hashable) -> None:
        """Frees the conversations of `tenant`."""
        for key, entry in list(self._entries.items()):
            if entry.earlier is not None and entry.tenant == tenant:
                self._drop(key)

    def release(self) -> None:
        """As `DocumentStore.release`."""
        if self.store is not None:
            self.store.release()
        self.unwritten = False

    def flush(self) -> None:
        if self.store is not None:
            self.store.flush()

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    def _keep(
        self,
        key: bytes,
        states: DocumentStates,
        tenant: Hashable = None,
        earlier: NDArray[np.int64] | None = None,
    ) -> None:
        size = states_bytes(states)
        if size > self.limit_bytes or key in self._entries:
            return
        while self._bytes + size > self.limit_bytes:
            self._drop(next(iter(self._entries)))
            self._evictions += 1
        self._entries[key] = _Entry(states, size, tenant, earlier)
        self._count(self._entries[key], 1)

    def _drop(self, key: bytes) -> None:
        self._count(self._entries.pop(key), -1)

    def _count(self, entry: _Entry, sign: int) -> None:
        self._bytes += sign * entry.size
        if entry.earlier is not None:
            self._conversations += sign
            self._conversation_bytes += sign * entry.size

    @property
    def counters(self) -> CacheCounters:
        """Hits, misses, evictions so far; entries and bytes now."""
        disk = DocumentStoreCounters() if self.store is None else self.store.counters
        conversations, size = self._conversations, self._conversation_bytes
        documents = len(self._entries) - conversations, self._bytes - size
        return CacheCounters(self._hits, self._misses, self._evictions, *documents, conversations, size, disk)


def _common(one: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """Length of the common beginning."""
    length = min(len(one), len(other))
    different = np.flatnonzero(one[:length] != other[:length])
    return int(different[0]) if len(different) else length


# --- document_states
# A document's states in transit between two decoders of the same model.

_OVER_TOKENS, _OVER_DIMENSIONS = 1, 2  # axes of [kv_heads, tokens, dim]


def shapes_of(layout: Layout) -> tuple[KvShape, ...]:
    """The layers of a model in the payload's form."""
    return tuple(KvShape(layer.kv_heads, layer.key_dim, layer.value_dim) for layer in layout.layers)


def pack_states(tokens: Sequence[int], states: DocumentStates) -> bytes:
    """The `kv` payload of a document. Raises `ValueError` beyond 8-bit quantisation."""
    layers = tuple(
        (quantise_kv(_numbers(key), _OVER_TOKENS), quantise_kv(_numbers(value), _OVER_DIMENSIONS))
        for key, value in states
    )
    return encode_kv(KvEntries(tuple(tokens), layers))


def unpack_states(data: bytes, layout: Layout, vocabulary: int, most_tokens: int) -> tuple[list[int], DocumentStates]:
    """Token ids and states in `data`. Raises `ProtocolError`."""
    entries = decode_kv(data, shapes_of(layout), vocabulary, most_tokens)
    restored = tuple((_tensor(key, layout), _tensor(value, layout)) for key, value in entries.layers)
    return list(entries.tokens), restored


def largest_states(layout: Layout, tokens: int) -> int:
    """Most bytes of the payload of `tokens` tokens."""
    return largest_kv(shapes_of(layout), tokens)


def shortened(states: DocumentStates, tokens: int) -> DocumentStates:
    """States of the first `tokens` tokens: they depend on no later token."""
    return tuple((key[:, :tokens], value[:, :tokens]) for key, value in states)


def _numbers(states: Tensor) -> NDArray[np.float32]:
    numbers: NDArray[np.float32] = states.to(torch.float32).cpu().numpy()
    return numbers


def _tensor(codes: Codes, layout: Layout) -> Tensor:
    return torch.from_numpy(codes.numbers()).to(device=layout.torch_device, dtype=layout.dtype)
