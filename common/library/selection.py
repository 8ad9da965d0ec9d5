"""Selects exactly the chunks permitted by a request's patterns, for every search."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from common.library.errors import NoDocumentFits
from common.library.patterns import PathPatterns, PatternState
from common.library.store import Store
from common.library.tags import tags_of
from proto.patterns import TAG, checked_tag, normalised

_KEPT: Final = 16  # selections of the present content
_CATALOGUES: Final = 3  # built while the library changes during searches


@dataclass(frozen=True, slots=True)
class Selection:
    """Documents chosen by patterns, and their chunks."""

    contents: frozenset[int]  # ids of the documents' contents
    chunks: NDArray[np.int64]  # chunk ids, ascending [n]
    lacking: tuple[int, ...]  # patterns without documents, by number from 1

    def check(self) -> Selection:
        """Returns the selection. Raises `NoDocumentFits` if a pattern finds no document."""
        if self.lacking:
            raise NoDocumentFits(self.lacking[0])
        return self


@dataclass(frozen=True, slots=True)
class _Folder:
    path: str  # relative to the added folder with a final slash; empty for that folder
    tags: tuple[str, ...]
    files: list[tuple[str, int]]


class _Catalogue:
    """Paths and tags of all documents of one commit."""

    def __init__(self, store: Store) -> None:
        """Takes linear time; call inside `store.reading()`."""
        self.commit = store.state().commit
        self._tagged = store.tags.of_all()
        grouped: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
        for file, path, root in store.places():
            folder, _, name = path.rpartition("/")
            below = folder[len(root.rstrip("/")) + 1 :] if len(folder) >= len(root.rstrip("/")) else ""
            grouped[folder, f"{below}/" if below else ""].append((name, file))
        self._folders = [_Folder(below, tags_of(at, self._tagged), files) for (at, below), files in grouped.items()]
        self._files = {(at, name): file for (at, _), files in grouped.items() for name, file in files}
        self._chunks, self._content_of = store.chunk_contents()

    def choose(self, patterns: Sequence[str]) -> Selection:
        """Documents with a fit to at least one pattern."""
        named = [number for number, pattern in enumerate(patterns) if not pattern.startswith(TAG)]
        tags = {
            number: checked_tag(pattern.removeprefix(TAG))
            for number, pattern in enumerate(patterns)
            if pattern.startswith(TAG)
        }
        found: set[int] = set()
        fitting: set[int] = set()
        if named:
            bits = self._by_path([patterns[number] for number in named], found)
            fitting.update(number for place, number in enumerate(named) if bits >> place & 1)
        for number, tag in tags.items():
            chosen = self._by_tag(tag)
            found |= chosen
            if chosen:
                fitting.add(number)
        contents = np.fromiter(found, np.int64, len(found))
        chunks = np.sort(self._chunks[np.isin(self._content_of, contents)])
        lacking = tuple(number + 1 for number in range(len(patterns)) if number not in fitting)
        return Selection(frozenset(found), chunks, lacking)

    def _by_path(self, patterns: Sequence[str], found: set[int]) -> int:
        automaton = PathPatterns(patterns)
        states: dict[str, PatternState] = {"": automaton.start}
        fits = 0
        for folder in self._folders:
            at = _state_of(automaton, folder.path, states)
            for name, file in folder.files:
                if each := automaton.after(at, normalised(name)).fits:
                    fits |= each
                    found.add(file)
        return fits

    def _by_tag(self, tag: str) -> set[int]:
        tagged = [folder for folder in self._folders if tag in folder.tags]
        chosen = {file for folder in tagged for _, file in folder.files}
        for root, tags in self._tagged.items():  # documents added individually
            at, _, name = root.rpartition("/")
            file = self._files.get((at, name))
            if file is not None and tag in tags:
                chosen.add(file)
        return chosen


def _state_of(automaton: PathPatterns, folder: str, states: dict[str, PatternState]) -> PatternState:
    """The state after a folder's path; common parents are matched once."""
    ways = []
    while (known := states.get(folder)) is None:
        above = folder[: folder.rfind("/", 0, -1) + 1]
        ways.append((folder, folder[len(above) :]))
        folder = above
    for path, name in reversed(ways):
        known = states[path] = automaton.after(known, normalised(name))
    return known


class Selections:
    """Selections for the present content; one thread at a time except for `prepare`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._preparing = threading.Lock()  # taken before the library's lock
        self._catalogue: _Catalogue | None = None
        self._known: OrderedDict[tuple[str, ...], Selection] = OrderedDict()

    def prepare(
        self, patterns: Sequence[str], store: Store, reading: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """Computes the choice of `patterns` for `of`, without blocking other searches.

        Call it outside of `reading()`, which locks this object and the `store`. If the library changes too fast, `of`
        computes it and others wait.
        """
        if not patterns:
            return
        with self._preparing:
            for _ in range(_CATALOGUES):
                with reading():
                    catalogue = self._current(store)
                    if catalogue is not None and tuple(patterns) in self._known:
                        return
                catalogue = catalogue or self._made()
                selection = catalogue.choose(patterns)
                with reading():
                    self._keep(catalogue, patterns, selection)

    def _made(self) -> _Catalogue:
        store = Store(self._folder)  # a connection of its own: the other one needs the lock
        try:
            with store.reading():
                return _Catalogue(store)
        finally:
            store.close()

    def _current(self, store: Store) -> _Catalogue | None:
        current = self._catalogue is not None and self._catalogue.commit == store.state().commit
        return self._catalogue if current else None

    def _keep(self, catalogue: _Catalogue, patterns: Sequence[str], selection: Selection) -> None:
        if catalogue is not self._catalogue:
            self._catalogue = catalogue
            self._known.clear()
        self._known[tuple(patterns)] = selection
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)

    def of(self, store: Store, patterns: Sequence[str]) -> Selection | None:
        """Documents chosen by checked `patterns`; None means all. Call inside `store.reading()`."""
        if not patterns:
            return None
        catalogue = self._current(store)
        if catalogue is None or tuple(patterns) not in self._known:
            catalogue = catalogue or _Catalogue(store)
            self._keep(catalogue, patterns, catalogue.choose(patterns))
        self._known.move_to_end(tuple(patterns))
        return self._known[tuple(patterns)]
