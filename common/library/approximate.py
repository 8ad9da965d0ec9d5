"""Approximate search: a FAISS index that looks into the lists nearest to a query, with a byte per dimension.

Its vectors are rounded, so it names candidates; what is the nearest among them is decided by the exact vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

LISTS = 4  # times the square root of the number of vectors: FAISS's guidelines say 4 to 16
PROBES = 32  # lists that a search looks into, at least
VECTORS_PER_LIST = 40  # that the lists are chosen by; FAISS warns below 39
CANDIDATES = 64  # that are ranked by their exact vectors, at least
CANDIDATES_PER_HIT = 2  # four found no more at 100,000 vectors: what is missed lies in lists not looked into
_WHOLE = 1024  # of a selection's vectors that are all candidates; reading them takes some milliseconds
_SPARE = 4  # times as many vectors as candidates are looked at, at least
_ROUNDS = 10  # of k-means, FAISS's own number for this kind of index
_SEED = 1234
_SPREAD = 16  # times as many ids as are chosen, at most, have a bit each in a selector

_faiss: Any = faiss  # its type stubs lack the parameters of a search


def list_count(vectors: int) -> int:
    """Number of lists for so many vectors."""
    return max(1, min(vectors, int(LISTS * math.sqrt(vectors))))


def is_approximate(index: object) -> bool:
    """Whether it is an index of this kind."""
    return isinstance(index, faiss.IndexIVFScalarQuantizer)


def has_doubled(index: Any, vectors: int) -> bool:
    """Whether there are twice as many vectors as its lists were chosen for."""
    return list_count(vectors // 2) >= int(index.nlist)


def train(sample: NDArray[np.float32], lists: int, stopped: Callable[[], bool]) -> Any:
    """An empty index with its lists and codes fitted to `sample` [n, dimension]; None when `stopped` says so meanwhile.

    It runs in the calling thread and those that FAISS may start from it.
    """
    dimension = sample.shape[1]
    parameters = _faiss.ClusteringParameters()
    parameters.niter, parameters.spherical, parameters.seed = 1, True, _SEED
    parameters.min_points_per_centroid = 1  # a warning on stderr otherwise
    clustering = _faiss.Clustering(dimension, lists, parameters)
    centroids = faiss.IndexFlatIP(dimension)
    for _ in range(_ROUNDS):  # each goes on from the centroids before it, and can be the last
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
    """Ids of vectors that may be the nearest `k` to `query` [dimension]: several times as many, or all there are.

    `among` are the ids that may be found, all of them in the index; None: all. The fewer they are, the more lists are
    looked into, and few of them are candidates all together.
    """
    if among is not None and len(among) <= max(_WHOLE, CANDIDATES_PER_HIT * k):
        return among
    size, lists = int(index.ntotal) if among is None else len(among), int(index.nlist)
    wanted = min(size, max(CANDIDATES, CANDIDATES_PER_HIT * k))
    probes = min(lists, max(PROBES, math.ceil(_SPARE * wanted * lists / max(1, size))))
    # The lists near to the query may be nearly empty, or hold few of those that may be found.
    enough = min(k, size) if among is None else wanted
    chosen = None if among is None else selector(among)
    found = _probe(index, query, wanted, probes, chosen)
    return found if len(found) >= enough else _probe(index, query, wanted, lists, chosen)


def _probe(index: Any, query: NDArray[np.float32], count: int, probes: int, chosen: Any) -> NDArray[np.int64]:
    _, ids = index.search(query.reshape(1, -1), count, params=_faiss.SearchParametersIVF(nprobe=probes, sel=chosen))
    found: NDArray[np.int64] = ids[0][ids[0] >= 0]
    return found


def ids_of(index: Any) -> NDArray[np.int64]:
    """Ids of all its vectors, ascending."""
    lists = index.invlists
    ids = [faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number)) for number in range(lists.nlist)]
    return np.sort(np.concatenate(ids).astype(np.int64))


def is_sound(index: Any) -> bool:
    """Whether the parts of an index that was read from a file fit together as `train` leaves them."""
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
        and quantizer.trained.size() == 2 * index.d  # least value and width of each dimension
        and isinstance(lists, faiss.ArrayInvertedLists)
        and lists.nlist > 0
        and (lists.nlist, lists.code_size) == (index.nlist, index.d)
        and index.code_size == index.d
        and len(ids_of(index)) == index.ntotal
    )


def selector(chosen: NDArray[np.int64]) -> Any:
    """The selector of `chosen` ids [n], ascending, at least one.

    Every search makes one and asks it about every vector, for which bits take a fraction of a hash set's time. That one
    is for few ids of many, and for ids so large, in a database that somebody hands on, that bits would fill the memory.
    """
    if chosen[0] < 0 or chosen[-1] >= _SPREAD * len(chosen):
        return faiss.IDSelectorBatch(chosen)
    bits = np.zeros(int(chosen[-1]) + 1, np.bool_)
    bits[chosen] = True
    return _faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
