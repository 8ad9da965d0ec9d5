"""Trains an approximate index in a background thread."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from common.library import approximate
from common.library.errors import LibraryDamaged
from common.library.store import Store

_SEED = 40

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Trained:
    """An approximate index with the vectors of `commit`, and of some later chunks."""

    commit: str
    index: Any


def sample(store: Store, lists: int, dimension: int) -> NDArray[np.float32]:
    """Vectors [n, dimension] of random chunks, for choosing `lists` lists."""
    present = store.chunk_ids()
    most = min(len(present), lists * approximate.VECTORS_PER_LIST)
    return store.vectors_of(np.sort(np.random.default_rng(_SEED).choice(present, most, replace=False)), dimension)


class Trainer:
    """Trains one index at a time, in one thread with its own connection.

    A failure is logged and stops training until the next start of the program.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._result: Trained | None = None
        self._failed = False

    def start(self) -> None:
        """Starts training, unless it runs or has a result."""
        under_way = self._thread is not None and self._thread.is_alive()
        if not (under_way or self._result or self._failed or self._closing.is_set()):
            self._thread = threading.Thread(target=self._run, name="index training", daemon=True)
            self._thread.start()

    def take(self) -> Trained | None:
        """Returns the finished index once; None before."""
        if self._result is None:  # an unconditional swap could lose a result that arrives meanwhile
            return None
        result, self._result = self._result, None
        return result

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Stops the training within a tenth of its time."""
        self._closing.set()
        self.wait()

    def _run(self) -> None:
        faiss.omp_set_num_threads(1)  # in this thread only, since answers are computed meanwhile
        try:
            store = Store(self._folder)
            try:
                self._result = self._trained(store)
            finally:
                store.close()
        except Exception as error:  # FAISS raises many kinds; searches continue after any
            self._failed = True
            _log.warning("no approximate index of %s was made, search stays as it is: %s", self._folder, error)

    def _trained(self, store: Store) -> Trained | None:
        """Returns the index; None if stopped. Restarts if all vectors were replaced meanwhile."""
        while True:
            with store.reading():
                state, count = store.state(), store.count()
                if state.dimension is None or count == 0:
                    return None
                lists = approximate.list_count(count)
                chosen = sample(store, lists, state.dimension)
            index = approximate.train(chosen, lists, self._closing.is_set)
            del chosen
            if index is None:
                return None
            with store.reading():
                now = store.state()
                if not store.descends_from(state.commit):
                    continue
            # Each block has its own snapshot: in a single one the log of other writers would grow for an hour.
            try:
                for ids, vectors in store.vectors_after(0, state.dimension):
                    if self._closing.is_set():
                        return None
                    index.add_with_ids(vectors, ids)
            except LibraryDamaged:
                if store.descends_from(now.commit):
                    raise
                continue  # now another model's vectors
            return Trained(now.commit, index)
