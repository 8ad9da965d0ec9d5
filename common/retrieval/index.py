"""The FAISS index: a cache of the store's vectors, in memory and in a file.

The file can be deleted at any time. It carries the name of its content and a checksum; a file that is
missing, damaged or of another library is ignored, an older one is brought up to date by comparing ids.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from pathlib import Path
from typing import IO, Any

import faiss
import numpy as np
from numpy.typing import NDArray

from common.retrieval.store import Store

INDEX = "index.faiss"
TEMPORARY = "index.faiss.new"
_MAGIC = b"dragon-index-1\n"
_HEADER = 512  # bytes, JSON padded with spaces
_LINKS = 32  # neighbours per vector of the approximate graph, the usual middle of 16 to 64

_faiss: Any = faiss  # its type stubs lack the two callback classes
_log = logging.getLogger(__name__)


class VectorIndex:
    """Inner-product search over every chunk of one library; not for several threads at once.

    Exact (`IndexFlatIP`) up to `exact_up_to` vectors, or always when None; above it an HNSW graph, which
    may miss a neighbour.
    """

    def __init__(self, folder: Path, exact_up_to: int | None = None) -> None:
        self._path = folder / INDEX
        self._exact_up_to = exact_up_to
        self._index: Any = None
        self._commit: str | None = None  # whose vectors are in the index
        self.saved = True  # False after vectors were read one by one because no file served

    def __len__(self) -> int:
        return 0 if self._index is None else int(self._index.ntotal)

    def refresh(self, store: Store) -> None:
        """Bring the index to the store's current snapshot; call inside `store.reading()`."""
        state = store.state()
        if state.commit == self._commit:
            return
        index = self._index
        if self._commit is None or not store.descends_from(self._commit):
            index = self._load(store)
            self.saved = index is not None
        self._index, self._commit = None, None  # a failure below leaves nothing half done
        if state.dimension is not None:
            self._index = self._updated(index, store, state.dimension)
        self._commit = state.commit

    def search(self, query: NDArray[np.float32], k: int) -> list[int]:
        """Ids of the up to `k` chunks nearest to the unit vector `query` [dimension], nearest first."""
        k = min(k, len(self))
        if k <= 0:
            return []
        _, ids = self._index.search(query.reshape(1, -1), k)
        return [int(identifier) for identifier in ids[0] if identifier >= 0]

    def save(self) -> None:
        """Write the file; only the holder of the writer lock may. A failure costs time, not content."""
        self.saved = True  # or tried: a disk that is full now is not tried again at every search
        if self._index is None or self._commit is None:
            return
        temporary = self._path.with_name(TEMPORARY)
        try:
            with temporary.open("wb+") as file:
                file.write(b" " * _HEADER)
                faiss.write_index(self._index, _faiss.PyCallbackIOWriter(file.write))
                file.flush()
                header = _header(self._commit, _digest(file))
                file.seek(0)
                file.write(header)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self._path)
        except (OSError, RuntimeError) as error:  # RuntimeError: FAISS's own, around a failed write
            temporary.unlink(missing_ok=True)
            _log.warning("the index file %s was not written, it is rebuilt when needed: %s", self._path, error)

    def _load(self, store: Store) -> Any:
        """The file's index when it holds the store's content or a former one, else None."""
        try:
            with self._path.open("rb") as file:
                written = _written(file.read(_HEADER))
                if written is None or not store.descends_from(written[0]):
                    return None
                if _digest(file) != written[1]:
                    _log.warning("the index file %s is damaged and is rebuilt", self._path)
                    return None
                size = file.seek(0, os.SEEK_END)
                file.seek(_HEADER)
                # Sizes that are stated inside can be no larger than the file: nothing is allocated for others.
                _faiss.set_deserialization_vector_byte_limit(size)
                _faiss.set_deserialization_loop_limit(size)
                return _usable(faiss.read_index(_faiss.PyCallbackIOReader(file.read)), self._path)
        except FileNotFoundError:
            return None
        except (OSError, RuntimeError, MemoryError) as error:
            _log.warning("the index file %s can't be read and is rebuilt: %s", self._path, error)
            return None

    def _updated(self, index: Any, store: Store, dimension: int) -> Any:
        present = store.chunk_ids()
        approximate = self._exact_up_to is not None and len(present) > self._exact_up_to
        if index is not None and index.d == dimension and _shrink(index, present, approximate):
            _grow(index, store, dimension)
            if np.array_equal(_ids(index), present):
                return index
            self.saved = False  # a file that says it is of this library, and is not
        index = _empty(dimension, approximate)
        _grow(index, store, dimension)
        if not np.array_equal(_ids(index), present):
            raise store.damaged("chunks and vectors don't belong together")
        return index


def _usable(index: Any, path: Path) -> Any:
    """The index when it is of a kind that `save` writes and consistent, else None."""
    if isinstance(index, faiss.IndexIDMap2):
        inner = faiss.downcast_index(index.index)
        known = isinstance(inner, faiss.IndexFlatIP | faiss.IndexHNSWFlat)
        counts = {int(index.ntotal), int(inner.ntotal), len(_ids(index))}
        if known and len(counts) == 1 and inner.d == index.d and inner.metric_type == faiss.METRIC_INNER_PRODUCT:
            return index
    _log.warning("the index file %s is of another kind and is rebuilt", path)
    return None


def _empty(dimension: int, approximate: bool) -> Any:
    if approximate:
        return faiss.IndexIDMap2(faiss.IndexHNSWFlat(dimension, _LINKS, faiss.METRIC_INNER_PRODUCT))
    return faiss.IndexIDMap2(faiss.IndexFlatIP(dimension))


def _ids(index: Any) -> NDArray[np.int64]:
    ids: NDArray[np.int64] = faiss.vector_to_array(index.id_map)
    return ids


def _shrink(index: Any, present: NDArray[np.int64], approximate: bool) -> bool:
    """Take out the chunks that are not `present`; False when the index has to be built anew."""
    gone = np.setdiff1d(_ids(index), present)
    graph = isinstance(faiss.downcast_index(index.index), faiss.IndexHNSW)
    if graph != approximate or (graph and len(gone) > 0):  # a graph can't forget
        return False
    if len(gone) > 0:
        index.remove_ids(gone)
    return True


def _grow(index: Any, store: Store, dimension: int) -> None:
    """Put in the chunks that are newer than every one in the index."""
    for ids, vectors in store.vectors_after(int(_ids(index).max(initial=0)), dimension):
        index.add_with_ids(vectors, ids)


def _header(commit: str, digest: str) -> bytes:
    return (_MAGIC + json.dumps({"commit": commit, "sha256": digest}).encode()).ljust(_HEADER)


def _written(header: bytes) -> tuple[str, str] | None:
    """The commit and checksum that a file's header names; None when it isn't one of ours."""
    if len(header) != _HEADER or not header.startswith(_MAGIC):
        return None
    try:
        content = json.loads(header[len(_MAGIC) :])
        return str(content["commit"]), str(content["sha256"])
    except (ValueError, KeyError, TypeError):
        return None


def _digest(file: IO[bytes]) -> str:
    file.seek(_HEADER)
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
