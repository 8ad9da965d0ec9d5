"""Contents, name and size of a library, without waiting for searches."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from common.library.readings import IngestRun
from common.library.store import Counts, FileRecord, Store


@dataclass(frozen=True, slots=True)
class Contents:
    """Documents of a library and the state of its added folders."""

    files: tuple[FileRecord, ...]  # by path
    readings: tuple[IngestRun, ...]  # the latest of every folder, by path
    watched: tuple[str, ...]  # folders watched by daemons
    tags: Mapping[str, tuple[str, ...]]  # own tags of folders and documents


def contents_of(folder: Path) -> Contents:
    """Reads the present contents of the library in `folder` over a new connection."""
    with closing(Store(folder)) as store, store.reading():
        readings = store.readings
        return Contents(tuple(store.files()), tuple(readings.all()), tuple(readings.watched()), store.tags.of_all())


class Overview:
    """Present content of a library, over its own connection; safe for several threads.

    Only its own readings delay it. Every failure is a `LibraryError`.
    """

    def __init__(self, folder: Path, published: bool) -> None:
        """`published` content never changes: it is counted now and stays known after closing."""
        self._store = Store(folder)
        self._lock = threading.Lock()  # guards the connection
        self._counted: tuple[str, Counts] | None = None  # commit and its counts
        self._final = self._count() if published else None

    def close(self) -> None:
        with self._lock:
            self._store.close()

    @property
    def identity(self) -> str:
        """Name of the content; changes with it, and is empty before the first."""
        if self._final is not None:
            return self._final[0]
        with self._lock, self._store.reading():
            return self._store.state().commit

    @property
    def counts(self) -> Counts:
        """Number of documents and chunks, counted once per change in linear time."""
        return (self._final or self._count())[1]

    def chunks(self, most: int) -> int:
        """Number of chunks, at most `most`, in constant time."""
        if self._final is not None:
            return min(most, self._final[1].chunks)
        with self._lock, self._store.reading():
            return self._store.count_to(most)

    def _count(self) -> tuple[str, Counts]:
        with self._lock, self._store.reading():
            commit = self._store.state().commit
            if self._counted is None or self._counted[0] != commit:
                self._counted = commit, self._store.counts()
            return self._counted
