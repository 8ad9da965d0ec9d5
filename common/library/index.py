"""The FAISS index: a cache of the store's vectors, in memory or a file.

Only an approximate index has a file. In memory, the index follows removals and additions since its commit. From the
file, it is compared with the store once, id by id. The store knows the file's SHA-256 and commit, so a missing, damaged
or foreign file is ignored.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from common.library import approximate
from common.library.errors import LibraryDamaged, LibraryError
from common.library.store import INDEX, IndexLabel, Store
from common.library.training import Trainer, sample
from common.process.files import replacing

TEMPORARY = "index.faiss.new"

EXHAUSTIVE = 2**20  # largest number of vectors searched one by one where lists are wanted: 1.5 GB at 384 dimensions
_LARGE = 2**28  # a file of more bytes is not rewritten for every change
_BEHIND = 64  # commits that readers of the file can catch up with
_FEW = 1024  # lists chosen at once, in seconds, above EXHAUSTIVE vectors

_faiss: Any = faiss  # its type stubs lack search parameters and callback classes
_log = logging.getLogger(__name__)


class VectorIndex:
    """Inner-product search over a library's chunks, for one thread at a time.

    Search is exhaustive (`IndexFlatIP`) below `approximate_from` vectors, or always if that is 0. Above, it looks into
    some of many lists (`IndexIVFScalarQuantizer`) and ranks candidates by exact vectors, so it may miss a neighbour.
    The lists are trained in the background. Until then search is exhaustive, or above `EXHAUSTIVE` vectors uses a few
    long lists.
    """

    def __init__(self, folder: Path, approximate_from: int = 0, trains: bool = True) -> None:
        self._folder = folder
        self._trains = trains
        self._approximate_from = approximate_from
        self._trainer = Trainer(folder)
        self._index: Any = None
        self._commit: str | None = None  # the commit of the vectors in the index
        self._last = 0  # highest id ever in the index
        self._untrained = False  # whether the index needs new lists
        self.saved = True  # False while a file for the next start is missing

    def __len__(self) -> int:
        return 0 if self._index is None else int(self._index.ntotal)

    @property
    def approximate(self) -> bool:
        """Whether a search may miss a neighbour."""
        return approximate.is_approximate(self._index)

    def close(self) -> None:
        """Stops the training."""
        self._trainer.close()

    def finish_training(self) -> None:
        """Waits for the training; the next `refresh` takes its result."""
        self._trainer.wait()

    def refresh(self, store: Store) -> None:
        """Updates the index to the store's snapshot; call inside `store.reading()`."""
        state = store.state()
        trained = self._trainer.take()
        if state.commit == self._commit and trained is None:
            return
        index, commit = self._index, self._commit
        if trained is not None and store.descends_from(trained.commit):
            index, commit, self.saved = trained.index, trained.commit, False
            self._last = int(_ids(index).max(initial=0))
        elif commit is None or not store.descends_from(commit):
            index, commit = _read(self._folder, store), None
        self._index, self._commit = None, None  # a failure below leaves no half-updated index
        if state.dimension is not None:
            self._index = self._updated(index, commit, store, state.dimension)
        self._commit = state.commit

    def outdated(self, store: Store) -> bool:
        """Whether the file should be written again: small after every change, large after many.

        Readers catch up with few changes.
        """
        label = store.index_label()
        if label is None:
            return not self.saved
        age = store.age(label.commit)
        return not self.saved or age is None or age > (0 if _size(self._folder) <= _LARGE else _BEHIND)

    def search(
        self, store: Store, query: NDArray[np.float32], k: int, among: NDArray[np.int64] | None = None
    ) -> list[int]:
        """Ids of up to `k` chunks nearest to the unit vector `query` [dimension].

        Nearest first. Call it after `refresh`, in the same snapshot. `among` are the permitted ids, ascending; None
        permits all. If it has `k` ids, `k` are found.
        """
        if self._untrained and self._trains:
            self._trainer.start()
        k = min(k, len(self) if among is None else len(among))
        if k <= 0:
            return []
        if self.approximate:
            ids = np.sort(approximate.candidates(self._index, query, k, among))
            similarities = store.vectors_of(ids, len(query)).astype(np.float64) @ query.astype(np.float64)
            return [int(identifier) for identifier in ids[np.argsort(-similarities, kind="stable")][:k]]
        chosen = None if among is None else _faiss.SearchParameters(sel=approximate.selector(among))
        _, found = self._index.search(query.reshape(1, -1), k, params=chosen)
        return [int(identifier) for identifier in found[0] if identifier >= 0]

    def save(self, store: Store) -> None:
        """Writes the file, or removes it for exhaustive search; needs the writer lock.

        A failure costs time, not content.
        """
        self.saved = True  # or tried: a search does not retry on a full disk
        label = None
        path = self._folder / INDEX
        digest = hashlib.sha256()

        def write(part: bytes) -> int:
            digest.update(part)
            return int(file.write(part))

        try:
            if self.approximate and self._commit is not None:
                with replacing(path, temporary=self._folder / TEMPORARY) as file:
                    faiss.write_index(self._index, _faiss.PyCallbackIOWriter(write))
                label = IndexLabel(self._commit, digest.hexdigest())
            else:
                path.unlink(missing_ok=True)
            with store.writing():
                store.put_index_label(label)
        except LibraryDamaged:
            raise
        except (OSError, RuntimeError, LibraryError) as error:  # RuntimeError: FAISS's own, around a failed write
            _log.warning("the index file %s was not written, it is rebuilt when needed: %s", path, error)

    def _updated(self, index: Any, commit: str | None, store: Store, dimension: int) -> Any:
        """Updates an index with the vectors of `commit` (None: unknown) to the present content."""
        count = store.count()
        wanted = 0 < self._approximate_from <= count
        if index is not None and (index.d != dimension or (approximate.is_approximate(index) and not wanted)):
            index, self.saved = None, False
        if index is not None and commit is not None:
            _take_out(index, store.removed_since(commit))
            self._grow(index, store)
        if index is None or commit is None or index.ntotal != count:
            index = self._compared(index, store, dimension, wanted and count > EXHAUSTIVE)
        lists = approximate.is_approximate(index)
        self._untrained = wanted and (not lists or approximate.has_doubled(index, count))
        return index

    def _compared(self, index: Any, store: Store, dimension: int, large: bool) -> Any:
        present = store.chunk_ids()
        if index is not None:
            own = _ids(index)
            self._last = int(own.max(initial=0))
            if np.array_equal(own, present):
                return index
            _take_out(index, np.setdiff1d(own, present, assume_unique=True))
            self._grow(index, store)
            if np.array_equal(_ids(index), present):
                return index
        self._last = 0
        index = self._begun(store, dimension, large)
        if approximate.is_approximate(index):
            self.saved = False  # the file is missing or wrong
        self._grow(index, store)
        if not np.array_equal(_ids(index), present):
            raise store.damaged("chunks and vectors don't belong together")
        return index

    def _begun(self, store: Store, dimension: int, large: bool) -> Any:
        """An exhaustive index of many vectors would be too large and slow."""
        if large:
            return approximate.train(sample(store, _FEW, dimension), _FEW, lambda: False)
        return faiss.IndexIDMap2(faiss.IndexFlatIP(dimension))

    def _grow(self, index: Any, store: Store) -> None:
        """Adds the chunks newer than any chunk ever in the index."""
        for ids, vectors in store.vectors_after(self._last, index.d):
            index.add_with_ids(vectors, ids)
            self._last = int(ids[-1])


def _size(folder: Path) -> int:
    with suppress(OSError):
        return (folder / INDEX).stat().st_size
    return 0


def _read(folder: Path, store: Store) -> Any:
    label, path = store.index_label(), folder / INDEX
    if label is None or not store.descends_from(label.commit):
        return None
    if not label.fits(path):
        _log.warning("the index file %s is missing, damaged or another library's, and is rebuilt", path)
        return None
    try:
        with path.open("rb") as file:
            # Sizes stated in the file cannot exceed it, so nothing larger is allocated.
            size = file.seek(0, os.SEEK_END)
            _faiss.set_deserialization_vector_byte_limit(size)
            _faiss.set_deserialization_loop_limit(size)
            file.seek(0)
            index = faiss.read_index(_faiss.PyCallbackIOReader(file.read))
    except (OSError, RuntimeError, MemoryError) as error:
        _log.warning("the index file %s can't be read and is rebuilt: %s", path, error)
        return None
    if approximate.is_approximate(index) and approximate.is_sound(index):
        return index
    _log.warning("the index file %s is of another kind and is rebuilt", path)
    return None


def _ids(index: Any) -> NDArray[np.int64]:
    if approximate.is_approximate(index):
        return approximate.ids_of(index)
    ids: NDArray[np.int64] = faiss.vector_to_array(index.id_map)
    return ids


def _take_out(index: Any, gone: NDArray[np.int64]) -> None:
    if len(gone) > 0:
        index.remove_ids(gone)
