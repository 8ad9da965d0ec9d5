"""The contents of a library as people look at them: all of one moment, and without waiting for a search."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from common.library.readings import Reading
from common.library.store import FileRecord, Store


@dataclass(frozen=True, slots=True)
class Contents:
    """Documents of a library, and what is known of the folders that were added."""

    files: tuple[FileRecord, ...]  # by path
    readings: tuple[Reading, ...]  # the latest of every folder, by path
    watched: tuple[str, ...]  # folders in which a daemon looks for changes
    tags: Mapping[str, tuple[str, ...]]  # of every folder and document that was tagged itself


def contents_of(folder: Path) -> Contents:
    """The contents of the library in `folder` as they are now, by a connection of their own."""
    with closing(Store(folder)) as store, store.reading():
        readings = store.readings
        return Contents(tuple(store.files()), tuple(readings.all()), tuple(readings.watched()), store.tags.of_all())
