"""Embedding every chunk of a library again, with another model."""

from __future__ import annotations

from common.library.embedder import Embedder, unit_vectors
from common.library.ingest import BATCH, Progress, quiet
from common.library.store import Store


def reembed(store: Store, embedder: Embedder, progress: Progress = quiet) -> int:
    """Embed every chunk again with `embedder` and exchange all vectors at once; the number of chunks.

    Interrupted, it goes on where it stopped, unless a reading or a removal was done since.
    """
    work = f"rebuild/{embedder.identity}"
    with store.writing():
        store.drop_staged(work)  # of documents that a reading has replaced, which was interrupted itself
    with store.reading():
        total, done, last = store.count(), store.staged_count(work), store.last_staged(work) or 0
    dimension = 0
    while True:
        with store.reading():
            rows = store.texts_after(last, BATCH)
        if not rows:
            break
        progress(done, total, "")
        vectors = unit_vectors(embedder, [text for _, text in rows])
        dimension = vectors.shape[1]
        with store.writing():
            store.stage(work, [chunk for chunk, _ in rows], vectors)
        last = rows[-1][0]
        done += len(rows)
    if total:
        dimension = dimension or unit_vectors(embedder, ["dimension"]).shape[1]
        with store.writing():
            store.adopt_staged(work)
            store.set_embedder(embedder.identity, dimension)
            store.clear_staged()
            store.advance()
    progress(total, total, "")
    return total
