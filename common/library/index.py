"""The FAISS index: a cache of the store's vectors, in memory and in a file.

What it holds is brought up to date by comparing ids with those of the store.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from common.library import approximate, index_file
from common.library.store import Store
from common.library.training import Trainer

_faiss: Any = faiss  # its type stubs lack the parameters of a search


class VectorIndex:
    """Inner-product search over every chunk of one library; not for several threads at once.

    Exhaustive (`IndexFlatIP`) below `approximate_from` vectors, or always when that is 0. From there on a search looks
    into some of many lists (`IndexIVFScalarQuantizer`): what it finds is ranked by the exact vectors, but it may miss a
    neighbour. The lists are trained beside the searches, which are exhaustive until that is done.
    """

    def __init__(self, folder: Path, approximate_from: int = 0) -> None:
        self._folder = folder
        self._approximate_from = approximate_from
        self._trainer = Trainer(folder)
        self._index: Any = None
        self._commit: str | None = None  # whose vectors are in the index
        self._untrained = False  # whether lists are wanted, or others than there are
        self.saved = True  # False while the file, if there is one, is not of use for the next start

    def __len__(self) -> int:
        return 0 if self._index is None else int(self._index.ntotal)

    @property
    def approximate(self) -> bool:
        """Whether a search may miss a neighbour."""
        return approximate.is_approximate(self._index)

    def close(self) -> None:
        """End the training, if one is under way."""
        self._trainer.close()

    def finish_training(self) -> None:
        """Wait for the training that a search has begun; the next `refresh` takes its result."""
        self._trainer.wait()

    def refresh(self, store: Store) -> None:
        """Bring the index to the store's current snapshot; call inside `store.reading()`."""
        state = store.state()
        trained = self._trainer.take()
        if state.commit == self._commit and trained is None:
            return
        index = self._index
        if self._commit is None or not store.descends_from(self._commit):
            index = index_file.read(self._folder, store)
            self.saved = index is not None
        if trained is not None and store.descends_from(trained.commit):
            index, self.saved = trained.index, False
        self._index, self._commit = None, None  # a failure below leaves nothing half done
        if state.dimension is not None:
            self._index = self._updated(index, store, state.dimension)
        self._commit = state.commit

    def search(
        self, store: Store, query: NDArray[np.float32], k: int, among: NDArray[np.int64] | None = None
    ) -> list[int]:
        """Ids of the up to `k` chunks nearest to the unit vector `query` [dimension], nearest first; call after
        `refresh`, in the same snapshot. `among` are the ids that may be found, ascending, None: all; where there are
        `k` of them, `k` are found.
        """
        if self._untrained:
            self._trainer.start()
        k = min(k, len(self) if among is None else len(among))
        if k <= 0:
            return []
        if self.approximate:
            ids = np.sort(approximate.candidates(self._index, query, k, among))
            similarities = store.vectors_of(ids, len(query)).astype(np.float64) @ query.astype(np.float64)
            return [int(identifier) for identifier in ids[np.argsort(-similarities, kind="stable")][:k]]
        chosen = None if among is None else _faiss.SearchParameters(sel=faiss.IDSelectorBatch(among))
        _, found = self._index.search(query.reshape(1, -1), k, params=chosen)
        return [int(identifier) for identifier in found[0] if identifier >= 0]

    def save(self) -> None:
        """Write the file; only the holder of the writer lock may. A failure costs time, not content."""
        self.saved = True  # or tried: a disk that is full now is not tried again at every search
        if self._index is not None and self._commit is not None:
            index_file.write(self._folder, self._index, self._commit)

    def _updated(self, index: Any, store: Store, dimension: int) -> Any:
        present = store.chunk_ids()
        wanted = 0 < self._approximate_from <= len(present)
        if index is not None and index.d == dimension and (wanted or not approximate.is_approximate(index)):
            _shrink(index, present)
            _grow(index, store, dimension)
        else:
            index = None
        if index is None or not np.array_equal(_ids(index), present):
            self.saved = False  # no file served: there is none, it is of another kind, or lies about its content
            index = faiss.IndexIDMap2(faiss.IndexFlatIP(dimension))
            _grow(index, store, dimension)
        if not np.array_equal(_ids(index), present):
            raise store.damaged("chunks and vectors don't belong together")
        lists = approximate.is_approximate(index)
        self._untrained = wanted and (not lists or approximate.has_doubled(index, len(present)))
        return index


def _ids(index: Any) -> NDArray[np.int64]:
    if approximate.is_approximate(index):
        return approximate.ids_of(index)
    ids: NDArray[np.int64] = faiss.vector_to_array(index.id_map)
    return ids


def _shrink(index: Any, present: NDArray[np.int64]) -> None:
    """Take out the chunks that are not `present`."""
    gone = np.setdiff1d(_ids(index), present)
    if len(gone) > 0:
        index.remove_ids(gone)


def _grow(index: Any, store: Store, dimension: int) -> None:
    """Put in the chunks that are newer than every one in the index."""
    for ids, vectors in store.vectors_after(int(_ids(index).max(initial=0)), dimension):
        index.add_with_ids(vectors, ids)
