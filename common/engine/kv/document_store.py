"""Keys and values of documents on disk, kept between runs and shared by processes."""

from __future__ import annotations

import logging
import os
import queue
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import SafetensorError

from common.engine.kv.document_file import DamagedFile, Label, load_states, save_states
from common.engine.kv.layout import DocumentStates, Layout, states_bytes
from common.engine.kv.store_folder import (
    GENERATION,
    LAST_WRITER,
    SUFFIX,
    listed,
    locked,
    read_note,
    write_note,
)
from common.process.private_files import private_folder

log = logging.getLogger(__name__)

_Item = tuple[bytes, DocumentStates, str]  # key, states, generation in which they were missed

_MISSED = 4096  # documents that are being computed at most: answers that are cancelled never put theirs
_WAITING = 2**28  # bytes that wait to be written at most, or one document; what comes on top is not written
_HEADER = 1024, 256  # bytes that a file has on top of its numbers at most, and more for every layer
_KEEP = 0.9  # of the limit when room is made, so that the folder isn't listed for every document


@dataclass(frozen=True, slots=True)
class StoreCounters:
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
        self.counters = StoreCounters()
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
                self._size = sum(size for _, size, _ in listed(self.folder))
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
        if sum(size for _, size, _ in listed(self.folder)) > self.limit_bytes:
            with locked(self.folder):
                self._make_room(0)

    def _make_room(self, needed: int) -> None:
        files = sorted(listed(self.folder))
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
