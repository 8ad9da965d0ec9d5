"""Keys and values of documents, kept between requests."""

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
from collections.abc import Sequence
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
# One document's keys and values as a safetensors file, which says what they are of and proves that they are whole.

_FORMAT = "1"
_HEADER_BYTES = 2**24  # some hundred for every layer
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}  # as the format spells them


class DamagedFile(Exception):
    """The file is not what was written, or is of something else: it must not be used."""


@dataclass(frozen=True, slots=True)
class Label:
    """Identity of a file's content: the document and the model that it is of."""

    key: str  # content address, hexadecimal
    source: str  # what computed it, see `common/engine/model/decoder.py`


def save_states(path: Path, states: DocumentStates, label: Label) -> None:
    """Write `states`. Raises `OSError` or `SafetensorError`; then `path` may hold anything."""
    parts = {name: part.contiguous().cpu() for name, part in _named(states).items()}
    sums = " ".join(f"{_checksum(part):08x}" for part in parts.values())
    tokens = str(states[0][0].shape[1])
    metadata = {"format": _FORMAT, "key": label.key, "source": label.source, "tokens": tokens, "crc32": sums}
    save_file(parts, path, metadata)
    path.chmod(0o600)


def load_states(path: Path, layout: Layout, label: Label, most_bytes: int) -> DocumentStates:
    """Read the states that were written to `path` for `label`, on `layout`'s torch device.

    The numbers are read, never mapped: a mapping kills the process when somebody cuts the file off meanwhile. What
    was read is what is checked, whatever happens to the file later. Raises `DamagedFile`, also for a file of more than
    `most_bytes`, and `OSError` where the file can't be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)  # nor wait at a pipe
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
    """Shape of each tensor, and its offset behind the header."""

    shapes: dict[str, tuple[int, int, int]]
    first: dict[str, int]


def _header(descriptor: int, size: int, layout: Layout, label: Label) -> tuple[dict[str, Any], _Offsets, int]:
    """The file's metadata, its tensors' offsets, and the offset of the data. Raises `DamagedFile`."""
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
    """Offset of a tensor in the `size` bytes behind the header. Raises `DamagedFile`, and what odd types do."""
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
    """Shape of every tensor of a document of `tokens` tokens, in the order of `_named`."""
    shapes = {}
    for number, layer in enumerate(layout.layers):
        shapes[f"{number}.keys"] = (layer.kv_heads, tokens, layer.key_dim)
        shapes[f"{number}.values"] = (layer.kv_heads, tokens, layer.value_dim)
    return shapes


def _checksum(part: Tensor) -> int:
    # CRC-32 of each tensor by itself: no single burst of errors passes, and it is several times as fast as a
    # cryptographic hash. Whoever may write into the folder owns the documents anyway.
    return zlib.crc32(_bytes_of(part))


def _bytes_of(part: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU."""
    return part.reshape(-1).view(torch.uint8).numpy().data


# --- document_store
# Keys and values of documents on disk, kept between runs and shared by processes.

log = logging.getLogger(__name__)

_Item = tuple[bytes, DocumentStates, str]  # key, states, generation in which they were missed

_MISSED = 4096  # documents that are being computed at most: answers that are cancelled never put theirs
_WAITING = 2**28  # bytes that wait to be written at most, or one document; what comes on top is not written
_HEADER = 1024, 256  # bytes that a file has on top of its numbers at most, and more for every layer
_KEEP = 0.9  # of the limit when room is made, so that the folder isn't listed for every document


@dataclass(frozen=True, slots=True)
class DocumentStoreCounters:
    """Statistics of a store so far in this process."""

    hits: int = 0
    misses: int = 0
    written: int = 0
    evictions: int = 0
    damaged: int = 0  # files that were not to be trusted; each is a miss, too
    failed: int = 0  # documents that could not be written


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Folder of documents' keys and values, and the most bytes kept in it."""

    folder: Path
    limit_bytes: int


class DocumentStore:
    """One file per document, named by its content address; the least recently used go first.

    Any number of processes may use a folder. A file appears whole, by a rename under the lock; the limit holds with
    unfinished files counted. Nothing is forced to the disk: whatever a power cut leaves, the checksums tell.
    A file removed while another process reads it stays readable there. Failures cost time, never an answer: what
    can't be written or read is computed. One thread uses a store; another one, the store's own, writes the files.
    """

    def __init__(self, options: StoreOptions, source: str, layout: Layout) -> None:
        """Keep at most `options.limit_bytes` of what `source` computes, tensors being as `layout` says."""
        self.folder = options.folder
        self.limit_bytes = options.limit_bytes
        self.source = source
        self.counters = DocumentStoreCounters()
        self._layout = layout
        self._name = secrets.token_hex(16)
        self._size = 0  # bytes in the folder, as long as this was the last writer
        self._warned = False
        self._missed: dict[bytes, str] = {}  # generation of the first miss of what is being computed, by key
        self._held: list[_Item] = []
        self._waiting = 0  # bytes held or in the queue
        self._counting = threading.Lock()
        self._queue: queue.Queue[_Item | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        with suppress(OSError):  # there may be none, or it can't be written to; `put` will tell
            self._shrink()

    def get(self, key: bytes) -> DocumentStates | None:
        """The stored states, or None: then they are to be computed. A file that can't be trusted is removed."""
        path = self._path(key)
        try:
            states = load_states(path, self._layout, self._label(key), self.limit_bytes)
        except DamagedFile:
            self._count(damaged=1, misses=1)
            with suppress(OSError):
                path.unlink()
        except OSError:  # most often there is none
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
        """Hold `states` (not to be changed afterwards), computed after `get` gave None, until `release`. What is put
        again, was missed too long ago, or was missed before something was removed, also for an answer that was given
        up, is not kept.
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
        """Write what `put` holds, in the background."""
        if not self._held:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write_all, name="document-store", daemon=True)
            self._thread.start()
        for item in self._held:
            self._queue.put(item)
        self._held.clear()

    def file_bytes(self, tokens: int) -> int:
        """Bytes that the file of a document of `tokens` tokens takes at most."""
        return tokens * self._layout.token_bytes + _HEADER[0] + _HEADER[1] * len(self._layout.layers)

    @property
    def steady_bytes(self) -> int:
        """Bytes that can be written without any of them being removed to make room for the rest."""
        return int(_KEEP * self.limit_bytes)

    def touch(self, key: bytes) -> None:
        """Mark the document as used now, even if it was read from memory only."""
        with suppress(OSError):
            os.utime(self._path(key))

    def flush(self) -> None:
        """Wait until all that was put is written, or given up."""
        self.release()
        self._queue.join()

    def close(self) -> None:
        """Write what waits, and end the thread."""
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
                log.exception("a document's keys and values could not be kept")
            finally:
                with self._counting:
                    self._waiting -= states_bytes(item[1])
                del item  # may be all that keeps the tensors in memory
                self._queue.task_done()
        self._queue.task_done()

    def _write(self, key: bytes, states: DocumentStates, generation: str) -> None:
        path = self._path(key)
        needed = self.file_bytes(states[0][0].shape[1])
        if needed > self.limit_bytes:
            return
        private_folder(self.folder)  # documents can be read out of their keys and values
        with locked(self.folder) as unfinished:
            if path.exists() or read_note(self.folder / GENERATION) != generation:
                return  # written by another process, or removed by the user while it was computed
            if read_note(self.folder / LAST_WRITER) != self._name:
                self._size = sum(size for _, size, _ in list_stored_files(self.folder))
                write_note(self.folder / LAST_WRITER, self._name)
            if self._size + needed > self.limit_bytes:
                self._make_room(needed)
            unfinished.mkdir(mode=0o700)
            beginning = unfinished / path.name
            save_states(beginning, states, self._label(key))
            size = beginning.stat().st_size
            beginning.replace(path)  # nobody waits for the disk: a checksum tells what a power cut has damaged
            self._size += size
        self._count(written=1)

    def _shrink(self) -> None:
        """Remove files down to the limit, which may have been larger in an earlier run."""
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
            log.warning("documents' keys and values can't be kept in %s: %s; answers go on", self.folder, reason)


# --- document_cache


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Statistics of a document cache so far. A miss in memory may have been a hit on disk: see `disk`."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    disk: DocumentStoreCounters


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
        self.unwritten = False  # something was put since the last `release`, for the store
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
            self.unwritten = True

    def release(self) -> None:
        """Write to disk, in the background, what was put: nobody waits for the computer now."""
        if self.store is not None:
            self.store.release()
        self.unwritten = False

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
        disk = DocumentStoreCounters() if self.store is None else self.store.counters
        return CacheCounters(self._hits, self._misses, self._evictions, len(self._entries), self._bytes, disk)


# --- document_states
# A document's keys and values on their way between two decoders of the same model.

_OVER_TOKENS, _OVER_DIMENSIONS = 1, 2  # axes of [kv_heads, tokens, dim]


def shapes_of(layout: Layout) -> tuple[KvShape, ...]:
    """The layers of a model as the payload knows them."""
    return tuple(KvShape(layer.kv_heads, layer.key_dim, layer.value_dim) for layer in layout.layers)


def pack_states(tokens: Sequence[int], states: DocumentStates) -> bytes:
    """The `kv` payload of a document. Raises `ValueError` for numbers that 8 bits can't hold."""
    layers = tuple(
        (quantise_kv(_numbers(key), _OVER_TOKENS), quantise_kv(_numbers(value), _OVER_DIMENSIONS))
        for key, value in states
    )
    return encode_kv(KvEntries(tuple(tokens), layers))


def unpack_states(data: bytes, layout: Layout, vocabulary: int, most_tokens: int) -> tuple[list[int], DocumentStates]:
    """Token ids and states of the document in `data`. Raises `ProtocolError`."""
    entries = decode_kv(data, shapes_of(layout), vocabulary, most_tokens)
    restored = tuple((_tensor(key, layout), _tensor(value, layout)) for key, value in entries.layers)
    return list(entries.tokens), restored


def largest_states(layout: Layout, tokens: int) -> int:
    """Bytes that the payload of a document of at most `tokens` tokens can take."""
    return largest_kv(shapes_of(layout), tokens)


def shortened(states: DocumentStates, tokens: int) -> DocumentStates:
    """States of the document's first `tokens` tokens: a token's keys and values depend on none after it."""
    return tuple((key[:, :tokens], value[:, :tokens]) for key, value in states)


def _numbers(states: Tensor) -> NDArray[np.float32]:
    numbers: NDArray[np.float32] = states.to(torch.float32).cpu().numpy()
    return numbers


def _tensor(codes: Codes, layout: Layout) -> Tensor:
    return torch.from_numpy(codes.numbers()).to(device=layout.torch_device, dtype=layout.dtype)
