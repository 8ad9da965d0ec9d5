"""Search by vectors alone, exhaustive against approximate, on the same questions in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.library.chunks import Chunk
from common.library.index import VectorIndex
from common.library.store import INDEX, FileRecord, Store
from scripts.bench.rows import Row

COSINE = 0.9  # of a made-up vector with the real one that it is a neighbour of
_FILE = 64  # chunks of a document


def grown(vectors: NDArray[np.float32], count: int) -> Iterator[NDArray[np.float32]]:
    """The first `count` of `vectors` [n, dimension], in blocks; beyond n, neighbours of them in random directions."""
    random = np.random.default_rng(7)
    yield vectors[:count]
    missing = count - len(vectors)
    while missing > 0:
        near = vectors[:missing]
        noise = random.normal(size=near.shape)
        noise -= np.sum(noise * near, axis=1, keepdims=True) * near
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        yield (COSINE * near + np.sqrt(1 - COSINE**2) * noise).astype(np.float32)
        missing -= len(near)


def fill(
    folder: Path, embedder: str, blocks: Iterable[NDArray[np.float32]], text: Callable[[int], str] = "chunk {}".format
) -> None:
    """Make a library's database of blocks of vectors [n, dimension], as of this `embedder`; `text` gives each one's, by
    its number from 0 on.
    """
    store = Store(folder)
    put = 0
    for block in blocks:
        with store.writing():
            if put == 0:
                store.set_embedder(embedder, block.shape[1])
            for start in range(0, len(block), _FILE):
                part = block[start : start + _FILE]
                record = FileRecord(0, f"/{put}", "/", f"{put}", f"{put}", 0, 0, "", len(part))
                store.put_file(record, [Chunk(0, 1, text(put + number)) for number in range(len(part))], part)
                put += len(part)
            store.advance()
    store.close()


def measure(folder: Path, questions: NDArray[np.float32], ks: Sequence[int]) -> Iterator[Row]:
    """Searches a library both ways for the nearest `k` chunks to each of `questions` [n, dimension], in turns.

    Rows have milliseconds, and the share of the exhaustive search's chunks that the approximate one found.
    """
    store = Store(folder)
    exhaustive, approximate = (_prepared(store, folder, least) for least in (0, 1))
    with store.reading():
        for k in ks:
            for number, question in enumerate(questions):
                (all_, slow), (own, fast) = (
                    _timed(index, store, question, k) for index in (exhaustive[0], approximate[0])
                )
                recall = len(set(own) & set(all_)) / len(all_) if all_ else None
                yield {"hits": k, "question": number, "exhaustive": slow, "approximate": fast, "recall": recall}
    for name, (index, seconds, size) in (("exhaustive", exhaustive), ("approximate", approximate)):
        yield {"hits": 0, "index": name, "seconds": seconds, "MiB": size / 2**20}
        index.close()
    store.close()


def _timed(index: VectorIndex, store: Store, question: NDArray[np.float32], k: int) -> tuple[list[int], float]:
    began = time.perf_counter()
    found = index.search(store, question, k)
    return found, 1e3 * (time.perf_counter() - began)


def _prepared(store: Store, folder: Path, approximate_from: int) -> tuple[VectorIndex, float, int]:
    """An index that is ready, the seconds that took, and its bytes."""
    began = time.perf_counter()
    index = VectorIndex(folder, approximate_from)
    with store.reading():
        index.refresh(store)
        if approximate_from:
            index.search(store, np.zeros(store.state().dimension or 0, np.float32), 1)  # begins the training
    if approximate_from:
        index.finish_training()
        with store.reading():
            index.refresh(store)
        if not index.approximate:
            raise RuntimeError("no approximate index was made; the log says why")
    seconds = time.perf_counter() - began
    index.save(store)
    return index, seconds, (folder / INDEX).stat().st_size if index.approximate else 0
