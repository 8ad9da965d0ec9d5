"""The contents of a library, their name and their size, for those who can't wait for a search."""

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
    """Documents of a library, and what is known of the folders that were added."""

    files: tuple[FileRecord, ...]  # by path
    readings: tuple[IngestRun, ...]  # the latest of every folder, by path
    watched: tuple[str, ...]  # folders in which a daemon looks for changes
    tags: Mapping[str, tuple[str, ...]]  # of every folder and document that was tagged itself


def contents_of(folder: Path) -> Contents:
    """The contents of the library in `folder` as they are now, by a connection of their own."""
    with closing(Store(folder)) as store, store.reading():
        readings = store.readings
        return Contents(tuple(store.files()), tuple(readings.all()), tuple(readings.watched()), store.tags.of_all())


class Overview:
    """A connection of its own, which nothing holds up but its own readings; safe to use from several threads.

    It is that of the content as it is now, whoever changed it. Every failure is a `LibraryError`.
    """

    def __init__(self, folder: Path, published: bool) -> None:
        """`published`: the content never changes. It is counted at once, and known also when this is closed."""
        self._store = Store(folder)
        self._lock = threading.Lock()  # guards the connection
        self._counted: tuple[str, Counts] | None = None  # and of which commit
        self._final = self._count() if published else None

    def close(self) -> None:
        """Release the connection."""
        with self._lock:
            self._store.close()

    @property
    def identity(self) -> str:
        """Name of the content: another one after every change, empty if there never was any."""
        if self._final is not None:
            return self._final[0]
        with self._lock, self._store.reading():
            return self._store.state().commit

    @property
    def counts(self) -> Counts:
        """Number of documents and chunks, counted once after every change; takes as long as there are documents."""
        return (self._final or self._count())[1]

    def chunks(self, most: int) -> int:
        """Number of chunks, or `most` where there are more: however many, it takes no time."""
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
