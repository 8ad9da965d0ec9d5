"""A side's library on disk: adds documents and searches chunks."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from common.library.chunks import Chunker
from common.library.database import is_published, writer_lock
from common.library.documents import has_content
from common.library.embedder import Embedder, SentenceTransformerEmbedder, query_vector, unit_vectors
from common.library.errors import LibraryBusy, LibraryDamaged, LibraryError, NotWatched
from common.library.hit import Hit
from common.library.index import VectorIndex
from common.library.ingest import AddReport, Ingestion, Order, Progress, check_embedder, quiet, reembed
from common.library.keywords import fused
from common.library.naming import document_named
from common.library.overview import Contents, Overview, contents_of
from common.library.places import as_written, on_disk
from common.library.readers.content import storable
from common.library.readings import IngestRun
from common.library.removal import Named, removal
from common.library.selection import Selection, Selections
from common.library.store import Counts, FileRecord, Store, StoredChunk
from common.process.files import private_folder

log = logging.getLogger(__name__)

SearchKind = Literal["dense", "keyword", "hybrid"]
_CANDIDATES = 64  # least number of candidates per ranking for fusion
_FORGOTTEN_AT_ONCE = 50_000  # chunks up to which a change also removes old words: 0.3 s


class Library:
    """Documents, chunks and vectors in one folder, safe for several threads and processes.

    One process at a time may change it; any number may search it. The next search sees a change. A published snapshot
    can only be searched. Every failure is a `LibraryError`.
    """

    def __init__(
        self,
        folder: Path,
        embedder: Embedder,
        *,
        chunker: Chunker | None = None,
        approximate_from: int = 0,
        kind: SearchKind = "dense",
        passing: bool = False,
    ) -> None:
        """Opens the library in `folder`.

        Args:
            chunker: cuts documents; by default at 128 tokens of the bundled embedding model.
            approximate_from: number of chunks from which vector search is approximate; 0 for never.
            kind: ranking of a search: vectors, words, or both.
            passing: the library is never opened again, so nothing need be durable or quick to load.
        """
        self.folder = Path(os.path.abspath(folder))
        try:
            private_folder(self.folder)
        except OSError as error:
            raise LibraryError(f"the library folder {folder} can't be made: {error.strerror}") from error
        published = is_published(self.folder)
        self._passing = passing
        self._embedder = embedder
        self._chunker = chunker
        self._kind = kind
        self._lock = threading.Lock()  # guards the reading connection and the index
        # Readers of snapshots receive the index that the writing process trained.
        self._index = VectorIndex(self.folder, approximate_from, trains=not published)
        self._selections = Selections(self.folder)
        self._store = Store(self.folder, durable=not passing)
        try:
            with self._store.reading():
                self._store.check()
        except BaseException:
            self._store.close()
            raise
        self._overview = Overview(self.folder, published)

    def close(self) -> None:
        """Closes the database and stops background work."""
        with self._lock:
            self._index.close()
            self._overview.close()
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def counts(self) -> Counts:
        """Number of documents and chunks, counted once per change."""
        return self._overview.counts

    @property
    def identity(self) -> str:
        """Name of the present content; changes with it, and is empty before the first."""
        return self._overview.identity

    @property
    def count(self) -> int:
        return self.counts.chunks

    def count_to(self, most: int) -> int:
        """Counts the chunks up to `most`. Neither this nor `identity` waits for searches."""
        return self._overview.chunks(most)

    def contents(self) -> Contents:
        """Snapshot of `files`, `readings`, `watched` and `tags`; waits for no search."""
        return contents_of(self.folder)

    def files(self) -> list[FileRecord]:
        """The documents by path. Searches and this call never wait for each other."""
        with closing(Store(self.folder)) as store, store.reading():
            return store.files()

    def readings(self) -> list[IngestRun]:
        """The latest reading of every added folder, by path."""
        with self._reading():
            return self._store.readings.all()

    def watched(self) -> list[str]:
        """The folders watched by daemons."""
        with self._reading():
            return self._store.readings.watched()

    def tags(self) -> Mapping[str, tuple[str, ...]]:
        """Own tags of folders and documents; see `tags_of`."""
        with self._reading():
            return self._store.tags.of_all()

    def add(
        self,
        documents: Path,
        progress: Progress = quiet,
        watch: bool = False,
        tags: Sequence[str] | None = None,
        first: Collection[str] = (),
        again: bool = False,
        encoding: str | None = None,
    ) -> AddReport:
        """Brings the library up to date with a folder or one document.

        Changed documents are replaced, deleted ones removed. After an interruption the next `add` continues.

        Args:
            watch: daemons repeat the reading whenever something changes.
            tags: replace those of the folder or document; None keeps them.
            first: absolute paths to read before all others.
            again: raise `NotWatched` unless the folder is watched.
            encoding: for texts that do not state theirs, from now on; empty detects it.
        """
        root, written = Path(on_disk(documents)), storable(as_written(documents))
        with self._changing() as store:
            with store.reading():
                if again and written not in store.readings.watched():
                    raise NotWatched(f"{documents} is no longer watched")
            order = Order(first, watch, tags, written, encoding)
            report = Ingestion(store, self._embedder, self._cutter(), root, progress, order).run()
            with store.writing():
                if (report.updated or report.removed) and store.count() <= _FORGOTTEN_AT_ONCE:
                    store.keywords.forget()
            return report

    def watch(self, folder: Path) -> None:
        """Lets daemons read a folder, now and after every change."""
        root = storable(on_disk(folder))
        with self._reading():
            if root in self._store.readings.watched():
                return
        with self._changing() as store, store.writing():
            store.readings.watch(root)

    def chunk(self, number: int) -> StoredChunk | None:
        """A chunk by its number; None if it no longer exists."""
        with self._reading():
            return self._store.chunks([number])[0] if self._store.has_chunk(number) else None

    def rebuild(self, progress: Progress = quiet) -> int:
        """Embeds every chunk again and returns their number."""
        with self._changing() as store:
            return reembed(store, self._embedder, progress)

    def remove(self, paths: Named, but: Collection[str] = ()) -> int:
        """Forgets documents, in the index file too, and returns their number.

        Paths are of documents or folders: absolute, or relative as `files` shows them. A copy elsewhere takes the place
        of a removed document. The added folders in `but` stay. Raises `PathError` for a document that would come back;
        see `removal`.
        """
        with self._changing(thoroughly=True) as store:
            with store.reading():
                chosen = removal(store.paths(), self._added(store), store.readings.watched(), paths, but)
            with store.writing():
                store.clear_staged()
                for root in chosen.roots:
                    store.readings.forget(root)
                    store.tags.forget(root)
                store.remove_paths([*chosen.files, *chosen.copies], has_content)
                if chosen.files:
                    store.keywords.forget()
                if chosen.files or chosen.roots:  # their tags chose documents
                    store.advance()
        return len(chosen.files)

    def _added(self, store: Store) -> set[str]:
        read = {reading.root for reading in store.readings.all()}
        return read | set(store.tags.of_all()) | set(store.readings.watched())

    def texts(self) -> list[str]:
        """Every chunk's text, in order of addition."""
        with self._reading():
            return [text for _, text in self._store.texts_after(0, self._store.count())]

    def warm(self) -> None:
        """Loads the model and the index for a quick first search; raises their errors."""
        unit_vectors(self._embedder, ["warm"])
        self.search("warm", 1)

    def settle(self) -> None:
        """Takes a finished training result and writes the index file if missing."""
        with self._reading():
            self._refresh()
        self._keep()

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Unit vectors [texts, dimension] of texts as documents."""
        return unit_vectors(self._embedder, texts)

    @property
    def busy(self) -> bool:
        """Whether a process is changing the library."""
        try:
            with writer_lock(self.folder):
                return False
        except LibraryBusy:
            return True

    def check(self, only: Sequence[str]) -> None:
        """Raises `NoDocumentFits` if a pattern finds no document."""
        self._selections.prepare(only, self._store, self._reading)
        with self._reading():
            self._chosen(only)

    def search(self, query: str, k: int, earlier: str = "", only: Sequence[str] = ()) -> list[Hit]:
        """Up to `k` chunks with the best fit to `query`, best first.

        The searched vector includes a share of the `earlier` query, for follow-ups that omit the topic. `only` are
        patterns of permitted documents (`proto.patterns`); empty permits all. If these have `k` chunks, a vector search
        finds `k`. Raises `NoDocumentFits` for a pattern without documents.

        A keyword search needs a common word. Similarity is computed from the stored vector in float64, so it depends on
        query and chunk alone.
        """
        if k < 0:
            raise ValueError(f"the number of hits can't be negative: {k}")
        self._selections.prepare(only, self._store, self._reading)
        with self._reading():
            self._refresh()
            self._chosen(only)
            if k == 0 or len(self._index) == 0:
                return []
        vector = query_vector(self._embedder, query, earlier)
        self._selections.prepare(only, self._store, self._reading)
        with self._reading():
            self._refresh()  # embedding took a while
            chosen = self._chosen(only)
            found = self._store.chunks(self._ranked(query, vector, k, None if chosen is None else chosen.chunks))
        self._keep()
        hits = [Hit.of(chunk, vector) for chunk in found]
        return sorted(hits, key=lambda hit: (-hit.similarity, hit.chunk)) if self._kind == "dense" else hits

    def passages(self, name: str, query: str, only: Sequence[str] = ()) -> list[Hit]:
        """All chunks of the document with title or path `name`, in order.

        `only` is as in `search`. Raises `UnknownDocument`, see `document_named`, and `NoDocumentFits`.
        """
        vector = unit_vectors(self._embedder, [query], queries=True)[0]
        self._selections.prepare(only, self._store, self._reading)
        with self._reading():
            check_embedder(self._store, self._embedder)
            chosen = self._chosen(only)
            files = [file for file in self._store.files() if chosen is None or file.content in chosen.contents]
            document = document_named(files, name)
            found = self._store.chunks(self._store.chunks_of(document))
        return [Hit.of(chunk, vector) for chunk in found]

    def _ranked(self, query: str, vector: NDArray[np.float32], k: int, among: NDArray[np.int64] | None) -> list[int]:
        if self._kind == "dense":
            return self._index.search(self._store, vector, k, among)
        if self._kind == "keyword":
            return list(self._store.keywords.search(query, k, len(self._index), among))
        count = max(k, _CANDIDATES)
        by_words = self._store.keywords.search(query, count, len(self._index), among)
        return fused(self._index.search(self._store, vector, count, among), by_words)[:k]

    def _chosen(self, only: Sequence[str]) -> Selection | None:
        chosen = self._selections.of(self._store, only)
        return None if chosen is None else chosen.check()

    def _refresh(self) -> None:
        check_embedder(self._store, self._embedder)
        self._index.refresh(self._store)

    def _cutter(self) -> Chunker:
        if self._chunker is None:
            self._chunker = Chunker(SentenceTransformerEmbedder().tokenizer_file)
        return self._chunker

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, self._store.reading():
            yield

    @contextmanager
    def _changing(self, thoroughly: bool = False) -> Iterator[Store]:
        """Opens its own connection, so searches continue.

        At the end it saves the index file if outdated, or if `thoroughly`.
        """
        if is_published(self.folder):
            raise LibraryError(f"the library {self.folder} is a snapshot of another library: change that library")
        with writer_lock(self.folder), closing(Store(self.folder, durable=not self._passing)) as store:
            with store.reading():
                store.check()
            yield store
            if self._passing:
                return
            with store.writing():
                store.keywords.sign()
            with self._reading():
                kept = self._store.index_label() is not None
                outdated = self._index.outdated(self._store) or (thoroughly and kept)
                if outdated:
                    self._index.refresh(self._store)
            if outdated:
                with self._lock:
                    self._index.save(self._store)
            self._gather(store)

    def _gather(self, store: Store) -> None:
        """Empties the log into the database file, so no removed content stays there."""
        try:
            store.gather()
        except LibraryDamaged:
            raise
        except LibraryError as error:  # committed all the same
            log.warning("the database of the library %s could not take in its log: %s", self.folder, error)

    def _keep(self) -> None:
        """Writes a missing index file, unless another writer is at work."""
        if self._index.saved or self._passing or is_published(self.folder):
            return
        try:
            with writer_lock(self.folder), self._lock:
                if not self._index.saved:
                    self._index.save(self._store)
        except LibraryDamaged:
            raise
        except LibraryError:  # continues without it, e.g. on a full disk
            return
