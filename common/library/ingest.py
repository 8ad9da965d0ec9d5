"""Bringing a library up to date with a folder of documents.

Work is committed document by document in batches, so an interruption loses at most one batch; a document of
many chunks stages its vectors on the way and appears, or changes, all at once.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.library.chunks import Chunk, Chunker, title_of
from common.library.documents import File, Found, Scan, Skipped, UnusableDocument, content_of, load, scan, suffix_of
from common.library.embedder import Embedder, unit_vectors
from common.library.errors import EmbedderChanged
from common.library.passed_over import is_hidden
from common.library.places import is_within
from common.library.readers.content import storable
from common.library.readers.formats import GUESSED, REVISIONS
from common.library.readers.isolated import IsolatedReader
from common.library.relocation import relocate
from common.library.store import READING, FileRecord, Store
from common.library.successors import is_gone, is_read_alike, moved_to, pass_on, typed

BATCH = 32  # chunks committed together: about a second of embedding on one core

Progress = Callable[[int, int, str], None]  # bytes done, bytes to do, the document at work


class Interrupted(Exception):
    """Raised by a `Progress` to end a reading where it is; what has been read is kept, and the next one goes on."""


@dataclass(frozen=True, slots=True)
class AddReport:
    """Result of an `add`, in documents; `chunks` counts those written by it.

    `skipped` holds (path, reason) of documents not taken in, `duplicates` (path, path of the first) of those that have
    the content of another one, `remarks` (path, remark) of those that were read.
    `ignored` counts files of other types, by the endings of their names, and `passed_over`
    folders that were not looked into, by their names.
    """

    added: int
    updated: int
    unchanged: int
    moved: int
    removed: int
    chunks: int
    skipped: tuple[tuple[str, str], ...]
    duplicates: tuple[tuple[str, str], ...]
    remarks: tuple[tuple[str, str], ...]
    ignored: Mapping[str, int]
    passed_over: Mapping[str, int]


def quiet(done: int, total: int, path: str) -> None:
    """A `Progress` that shows nothing."""


def check_embedder(store: Store, embedder: Embedder) -> None:
    """Raise `EmbedderChanged` when the vectors come from another model; call inside `store.reading()`."""
    stored = store.state().embedder
    if stored is not None and stored != embedder.identity and store.count() > 0:
        raise EmbedderChanged(
            f"the library was embedded with {stored} and {embedder.identity} is configured: run"
            " `dragon library add --rebuild FOLDER` to embed it again, with `--role cloud` where it is a cloud's, or"
            " configure the former model"
        )


class Ingestion:
    """One run of bringing `root` into a store; the caller holds the library's writer lock."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        chunker: Chunker,
        root: Path,
        progress: Progress = quiet,
        first: Collection[str] = (),
        watch: bool = False,
        tags: Sequence[str] | None = None,
        written: str = "",
        encoding: str | None = None,
    ) -> None:
        """`first` has the absolute paths of documents or folders that are read before all others; `watch`, `tags` and
        `encoding` are noted before anything is read, see `Library.add`. What was added as `written`, which has since
        become a link to `root`, goes on there, with what was added in it.
        """
        self._store = store
        self._embedder = embedder
        self._chunker = chunker
        self._root = root
        self._name = storable(str(root))
        self._base = root.parent if os.path.isfile(root) else root
        self._progress = progress
        self._first = frozenset(first)
        self._watch = watch
        self._tags = tags
        self._written = written
        self._encoding = encoding
        self._encodings: dict[str, str] = {}  # that were named, by folder or document
        self._known: dict[str, FileRecord] = {}  # documents of `root`, by path
        self._named: list[str] = []  # what was added by its own name, and is passed over here
        self._work = f"{READING}{hashlib.sha256(self._name.encode()).hexdigest()}/"
        self._batch: list[tuple[FileRecord, list[Chunk]]] = []
        self._batched = 0  # chunks in the batch
        self._touched: list[tuple[int, int, int]] = []  # id of known content under other times, its size and time
        self._held: dict[str, str] = {}  # content (SHA-256) that stays in the library, and its path
        self._elsewhere: dict[str, FileRecord] = {}  # of that, what lies outside of `root`
        self._movable: dict[str, FileRecord] = {}  # content of documents that are gone from where they were
        self._moved: list[FileRecord] = []
        self._duplicates: list[tuple[str, str]] = []
        self._copies: list[tuple[str, str]] = []  # the paths of these, and their content
        self._remarks: list[tuple[str, str]] = []  # with the paths of the documents
        self._done = 0  # bytes
        self._total = 0
        self._added = self._updated = self._unchanged = self._passed_on = self._removed = self._chunks = 0

    def run(self) -> AddReport:
        """Read, embed and commit what changed, then forget what is gone."""
        found = scan(self._root)
        with self._store.reading():
            check_embedder(self._store, self._embedder)
        if self._written != self._name:
            with self._store.writing():
                self._passed_on, self._removed = relocate(self._store, self._written, self._name, str(self._base))
        with self._store.reading():
            records = self._store.files()
            roots = [reading.root for reading in self._store.readings.all()]
            self._encodings = self._store.readings.encodings()
        if self._encoding is not None:
            self._encodings[self._name] = self._encoding
        # What was added by its own name stays where it is, if it would be passed over here.
        self._named = [root for root in roots if self._passes_over(root, found)]
        self._known = known = {file.path: file for file in records if self._is_here(file.path)}
        changed = [file for file in found.files if not self._is_unchanged(file, known.get(file.path))]
        self._sort_by_content(records, known, found, changed)
        # Of those alike first what is there: new ones may be copies of it.
        sizes = {file.size for file in changed if self._is_first(file.path)}
        changed.sort(
            key=lambda file: (
                not (self._is_first(file.path) or (file.path in known and file.size in sizes)),
                file.path not in known,
            )
        )
        self._unchanged = len(found.files) - len(changed)
        self._total = sum(file.size for file in changed)
        with self._store.writing():
            self._begin()
        skipped = list(found.skipped)
        try:
            self._read(changed, known, skipped)
        except Interrupted:
            self._commit_batch()
            with self._store.writing():
                self._note_known()
            raise
        self._commit_batch()
        self._progress(self._total, self._total, "")
        self._finish(known, found.files, skipped)
        return AddReport(
            self._added,
            self._updated,
            self._unchanged,
            len(self._moved) + self._passed_on,
            self._removed,
            self._chunks,
            tuple((self._relative(item.path), item.reason) for item in skipped),
            tuple((self._relative(path), self._relative(first)) for path, first in self._duplicates),
            tuple((self._relative(path), remark) for path, remark in self._remarks),
            found.ignored,
            Counter(os.path.basename(folder) for folder in found.passed_over),
        )

    def _passes_over(self, root: str, found: Scan) -> bool:
        """Whether what was added by its own name, and is there, is none of what this reading looks at."""
        hidden = root != self._name and is_within(root, self._name) and is_hidden(os.path.basename(root))
        return (hidden or any(is_within(root, folder) for folder in found.passed_over)) and not is_gone(root)

    def _is_here(self, path: str) -> bool:
        """Whether a path is one at which this reading looks."""
        return is_within(path, str(self._root)) and not any(is_within(path, root) for root in self._named)

    def _begin(self) -> None:
        """Note what was asked for: whoever goes on with an interrupted reading need not say it again."""
        self._store.readings.begin(self._name, self._total)
        if self._watch:
            self._store.readings.watch(self._name)
        if self._encoding is not None:
            self._store.readings.name_encoding(self._name, self._encoding)
        if self._tags is not None and self._store.tags.put(self._name, self._tags):
            self._store.advance()

    def _read(self, changed: Sequence[Found], known: Mapping[str, FileRecord], skipped: list[Skipped]) -> None:
        with closing(IsolatedReader()) as reader:
            for number, file in enumerate(changed):
                if number and self._is_first(changed[number - 1].path) and not self._is_first(file.path):
                    self._commit_batch()
                self._progress(self._done, self._total, file.path)
                try:
                    self._take_in(load(file.path), file.path, known.get(file.path), reader)
                except UnusableDocument as error:
                    skipped.append(Skipped(file.path, error.reason, error.unknown))
                self._done += file.size

    def _is_first(self, path: str) -> bool:
        return path in self._first or any(str(folder) in self._first for folder in Path(path).parents)

    def _sort_by_content(
        self, records: Sequence[FileRecord], known: Mapping[str, FileRecord], found: Scan, changed: Sequence[Found]
    ) -> None:
        """Note which content stays, and which may turn up under another path because its own is gone."""
        present, unread = {file.path for file in found.files}, {file.path for file in changed}
        unseen = [item.path for item in found.skipped if item.unknown]
        for record in records:
            if (
                record.path in known
                and record.path not in present
                and not any(is_within(record.path, path) for path in unseen)
            ):
                self._movable[record.sha256] = record
            elif record.path not in unread:
                self._held[record.sha256] = record.path
                if record.path not in known:
                    self._elsewhere[record.sha256] = record

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._base)

    def _is_unchanged(self, file: Found, record: FileRecord | None) -> bool:
        return record is not None and (record.size, record.mtime, record.chunking) == (
            file.size,
            file.mtime,
            self._chunking(file.path),
        )

    def _chunking(self, path: str) -> str:
        """Name of the way in which a document becomes chunks; by another one it is read again."""
        suffix = suffix_of(path)
        revision, encoding = REVISIONS.get(suffix), self._named_encoding(path) if suffix in GUESSED else ""
        parts = self._chunker.identity, "" if revision is None else str(revision), encoding
        return ":".join(filter(None, parts))

    def _named_encoding(self, path: str) -> str:
        """The encoding that was named for a document, or for the innermost folder around it; else empty."""
        around = [root for root in self._encodings if is_within(path, root)]
        return self._encodings[max(around, key=len)] if around else ""

    def _take_in(self, file: File, path: str, known: FileRecord | None, reader: IsolatedReader) -> None:
        chunking = self._chunking(path)
        if known is not None and (known.sha256, known.chunking) == (file.sha256, chunking):
            self._touched.append((known.id, file.size, file.mtime))
            self._held[file.sha256] = path
            self._unchanged += 1
            return
        self._release(file.sha256)
        if file.sha256 in self._held:
            self._duplicates.append((path, self._held[file.sha256]))
            self._copies.append((path, file.sha256))
            return
        if known is None and self._move(file, path):
            self._held[file.sha256] = path
            return
        content = content_of(file, reader, self._named_encoding(path))
        self._held[file.sha256] = path
        chunks = self._chunker.chunks_of(content)
        record = FileRecord(
            id=known.id if known else 0,
            path=path,
            root=known.root if known else str(self._base),
            title=title_of(typed(path), content),
            sha256=file.sha256,
            size=file.size,
            mtime=file.mtime,
            chunking=chunking,
            chunks=len(chunks),
            remarks=content.remarks,
        )
        self._remarks += [(path, remark) for remark in content.remarks]
        if len(chunks) > BATCH:
            self._commit_batch()
            self._commit(record, chunks, self._staged_vectors(record, chunks))
            return
        self._batch.append((record, chunks))
        self._batched += len(chunks)
        if self._batched >= BATCH:
            self._commit_batch()

    def _release(self, sha256: str) -> None:
        """Let content move here whose file lay elsewhere and is gone from there, where a link may be now: that folder
        may be read later, or never.
        """
        record = self._elsewhere.get(sha256)
        if record is None or self._held.get(sha256) != record.path:
            return
        if is_gone(record.path) or os.path.realpath(record.path) != record.path:
            del self._held[sha256]
            self._movable[sha256] = record

    def _move(self, file: File, path: str) -> bool:
        """Take over what is known of a document that was elsewhere; returns whether there is one."""
        former = self._movable.pop(file.sha256, None)
        if former is None or former.chunking != self._chunking(path) or not is_read_alike(former.path, path):
            return False
        moved = moved_to(former, path, str(self._base))
        self._moved.append(replace(moved, size=file.size, mtime=file.mtime))
        return True

    def _pass_on(self, path: str) -> bool:
        """Let a copy elsewhere take the place of a document whose content goes, and return whether there is one. Those
        at which this reading looks are read anyway.
        """
        record = self._known.get(path)
        return record is not None and pass_on(self._store, record, lambda copy: self._is_here(copy.path))

    def _put(self, record: FileRecord, chunks: list[Chunk], vectors: NDArray[np.float32]) -> None:
        known = self._known.get(record.path)
        if known is not None and known.sha256 != record.sha256:
            self._pass_on(record.path)
        self._store.put_file(record, chunks, vectors)

    def _staged_vectors(self, record: FileRecord, chunks: list[Chunk]) -> NDArray[np.float32]:
        """Vectors [chunks, dimension] of a long document, kept as they are made."""
        work = self._work_on(record)
        with self._store.reading():
            ready = self._store.staged_count(work)
        for start in range(ready, len(chunks), BATCH):
            done = self._done + record.size * start // len(chunks)
            self._progress(done, self._total, record.path)
            vectors = unit_vectors(self._embedder, [chunk.text for chunk in chunks[start : start + BATCH]])
            with self._store.writing():
                self._store.stage(work, range(start, start + len(vectors)), vectors)
                self._store.readings.reached(self._name, done, record.path)
        with self._store.reading():
            return np.stack([vector for _, vector in self._store.staged(work)])

    def _work_on(self, record: FileRecord) -> str:
        """Name of the work on a long document."""
        what = f"{record.sha256}/{record.chunking}/{self._embedder.identity}"
        return self._work + hashlib.sha256(what.encode()).hexdigest()

    def _commit_batch(self) -> None:
        batch, self._batch, self._batched = self._batch, [], 0
        texts = [chunk.text for _, chunks in batch for chunk in chunks]
        if not texts:
            return
        vectors = unit_vectors(self._embedder, texts)
        with self._store.writing():
            self._ready_for(vectors)
            self._store.readings.reached(self._name, self._done, batch[-1][0].path)
            start = 0
            for record, chunks in batch:
                self._put(record, chunks, vectors[start : start + len(chunks)])
                start += len(chunks)
            self._store.advance()
        for record, chunks in batch:
            self._count(record, chunks)

    def _commit(self, record: FileRecord, chunks: list[Chunk], vectors: NDArray[np.float32]) -> None:
        with self._store.writing():
            self._ready_for(vectors)
            self._put(record, chunks, vectors)
            self._store.clear_staged(self._work_on(record))
            self._store.advance()
        self._count(record, chunks)

    def _ready_for(self, vectors: NDArray[np.float32]) -> None:
        """An empty library takes on whatever model fills it."""
        if self._store.state().embedder != self._embedder.identity:
            self._store.set_embedder(self._embedder.identity, vectors.shape[1])

    def _count(self, record: FileRecord, chunks: list[Chunk]) -> None:
        self._added += record.id == 0
        self._updated += record.id != 0
        self._chunks += len(chunks)

    def _finish(self, known: dict[str, FileRecord], found: list[Found], skipped: list[Skipped]) -> None:
        """Remove what is no longer there or no longer text; not what merely couldn't be looked at."""
        present = {file.path for file in found} - {item.path for item in skipped if not item.unknown}
        present -= {path for path, _ in self._duplicates}
        moved = {record.id for record in self._moved}
        unseen = [item.path for item in skipped if item.unknown]
        gone = [
            file
            for file in known.values()
            if file.id not in moved
            and file.path not in present
            and not any(is_within(file.path, path) for path in unseen)
        ]
        with self._store.writing():
            self._store.clear_staged(self._work)
            self._store.copies.put(self._name, str(self._base), self._copies, [*self._named, *unseen])
            removed = [file.id for file in gone if not self._pass_on(file.path)]
            self._passed_on += len(gone) - len(removed)
            self._removed += len(removed)
            self._store.remove_files(removed)
            self._note_known()
            if gone:
                self._store.advance()
            self._store.readings.end(self._name, [(item.path, item.reason) for item in skipped])

    def _note_known(self) -> None:
        """Note under which times and paths known content was found."""
        for touched in self._touched:
            self._store.touch_file(*touched)
        for record in self._moved:
            self._store.move_file(record)
        if self._moved:
            self._store.advance()
