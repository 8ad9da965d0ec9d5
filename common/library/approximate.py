"""Approximate search: a FAISS inverted-file index with one byte per dimension.

The index stores rounded vectors and names candidates. The exact vectors rank them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

LISTS = 4  # times the square root of the number of vectors: FAISS's guidelines say 4 to 16
PROBES = 32  # least number of lists that a search looks into
VECTORS_PER_LIST = 40  # training vectors per list; FAISS warns below 39
CANDIDATES = 64  # least number of candidates ranked by exact vectors
CANDIDATES_PER_HIT = 2  # four found no more at 100,000 vectors: the missed ones are in other lists
_WHOLE = 1024  # a selection up to this size is all candidates: milliseconds to read
_SPARE = 4  # least ratio of vectors looked at to candidates
_ROUNDS = 10  # of k-means, FAISS's default for this index
_SEED = 1234
_SPREAD = 16  # most bits of a selector per chosen id

_faiss: Any = faiss  # its type stubs lack the parameters of a search


def list_count(vectors: int) -> int:
    return max(1, min(vectors, int(LISTS * math.sqrt(vectors))))


def is_approximate(index: object) -> bool:
    return isinstance(index, faiss.IndexIVFScalarQuantizer)


def has_doubled(index: Any, vectors: int) -> bool:
    """Whether the vectors are twice as many as the index chose its lists for."""
    return list_count(vectors // 2) >= int(index.nlist)


def train(sample: NDArray[np.float32], lists: int, stopped: Callable[[], bool]) -> Any:
    """Fits the lists and codes of an empty index to `sample` [n, dimension].

    Returns None when `stopped`. Runs in the calling thread and in FAISS's own threads.
    """
    dimension = sample.shape[1]
    parameters = _faiss.ClusteringParameters()
    parameters.niter, parameters.spherical, parameters.seed = 1, True, _SEED
    parameters.min_points_per_centroid = 1  # prevents a warning on stderr
    clustering = _faiss.Clustering(dimension, lists, parameters)
    centroids = faiss.IndexFlatIP(dimension)
    for _ in range(_ROUNDS):  # each round continues from the last centroids, so any can be the last
        if stopped():
            return None
        clustering.train(sample, centroids)
    kind, metric = faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFScalarQuantizer(centroids, dimension, lists, kind, metric)
    index.train(sample)
    return index


def candidates(
    index: Any, query: NDArray[np.float32], k: int, among: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Ids of several times `k` vectors near `query` [dimension], or all ids.

    `among` are the permitted ids, all in the index; None permits all. The fewer they are, the more lists are searched.
    """
    if among is not None and len(among) <= max(_WHOLE, CANDIDATES_PER_HIT * k):
        return among
    size, lists = int(index.ntotal) if among is None else len(among), int(index.nlist)
    wanted = min(size, max(CANDIDATES, CANDIDATES_PER_HIT * k))
    probes = min(lists, max(PROBES, math.ceil(_SPARE * wanted * lists / max(1, size))))
    # The nearest lists may hold few of the permitted vectors.
    enough = min(k, size) if among is None else wanted
    chosen = None if among is None else selector(among)
    found = _probe(index, query, wanted, probes, chosen)
    return found if len(found) >= enough else _probe(index, query, wanted, lists, chosen)


def _probe(index: Any, query: NDArray[np.float32], count: int, probes: int, chosen: Any) -> NDArray[np.int64]:
    _, ids = index.search(query.reshape(1, -1), count, params=_faiss.SearchParametersIVF(nprobe=probes, sel=chosen))
    found: NDArray[np.int64] = ids[0][ids[0] >= 0]
    return found


def ids_of(index: Any) -> NDArray[np.int64]:
    """Ids of all vectors, ascending."""
    lists = index.invlists
    ids = [faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)) for number in range(lists.nlist)]
    return np.sort(np.concatenate(ids).astype(np.int64))


def is_sound(index: Any) -> bool:
    """Whether the parts of a loaded index fit together as after `train`."""
    if index.quantizer is None or index.invlists is None:
        return False
    centroids, lists = faiss.downcast_index(index.quantizer), faiss.downcast_InvertedLists(index.invlists)
    quantizer = index.sq
    return (
        index.is_trained
        and index.by_residual
        and index.metric_type == faiss.METRIC_INNER_PRODUCT
        and index.direct_map.type == _faiss.DirectMap.NoMap
        and isinstance(centroids, faiss.IndexFlatIP)
        and (centroids.d, centroids.ntotal) == (index.d, index.nlist)
        and (quantizer.qtype, quantizer.d) == (faiss.ScalarQuantizer.QT_8bit, index.d)
        and quantizer.trained.size() == 2 * index.d  # minimum and width of each dimension
        and isinstance(lists, faiss.ArrayInvertedLists)
        and lists.nlist > 0
        and (lists.nlist, lists.code_size) == (index.nlist, index.d)
        and index.code_size == index.d
        and len(ids_of(index)) == index.ntotal
    )


def selector(chosen: NDArray[np.int64]) -> Any:
    """Selector of the ids `chosen` [n], ascending, at least one.

    Every search asks it about every vector, and bits are much faster than a hash set. The hash set serves few ids among
    many, and foreign databases with ids too large for a bitmap.
    """
    if chosen[0] < 0 or chosen[-1] >= _SPREAD * len(chosen):
        return faiss.IDSelectorBatch(chosen)
    bits = np.zeros(int(chosen[-1]) + 1, np.bool_)
    bits[chosen] = True
    return _faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
