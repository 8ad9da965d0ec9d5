"""Brings a library up to date with a folder of documents.

Documents are committed in batches, so an interruption loses at most one. A long document stages its vectors and
appears, or changes, at once. A file with known content becomes another path of it.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from common.library.chunks import Chunk, Chunker, title_of
from common.library.documents import (
    File,
    FoundFile,
    Scan,
    Skipped,
    UnusableDocument,
    has_content,
    load,
    read_content,
    scan,
)
from common.library.embedder import Embedder, unit_vectors
from common.library.errors import EmbedderChanged
from common.library.passed_over import is_hidden
from common.library.places import has_left, is_gone, is_read_alike, is_within, suffix_of
from common.library.readers.content import as_typed, storable
from common.library.readers.formats import GUESSED, REVISIONS
from common.library.readers.isolated import IsolatedReader, Reading
from common.library.readers.scans import NOT_INSTALLED, Later, Scanned, can_read_scans, packed, unpacked
from common.library.store import READING, FileRecord, Intake, Store

BATCH = 32  # committed together: about a second of embedding on one core
_PAUSE = 0.5  # seconds between notes of the present place, which other processes see
_UNREAD_SCANS = ":scans left out"  # of a document read without recognition
_MOST_PATHS = 1024  # files committed together

Progress = Callable[[int, int, str, str], None]  # bytes done, bytes in total, present document, place in it


class Interrupted(Exception):
    """Raised by a `Progress` to end a reading; the next reading continues."""


@dataclass(frozen=True, slots=True)
class AddReport:
    """Result of an `add` in documents; `chunks` counts the written ones.

    * `skipped`: (path, reason) of documents not taken in.
    * `duplicates`: (path, first path) of repeated contents.
    * `remarks`: (path, remark) of read documents.
    * `ignored`: files of other types, by suffix.
    * `passed_over`: unvisited folders, by name.
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


def quiet(done: int, total: int, path: str, place: str) -> None:
    """A silent `Progress`."""


def check_embedder(store: Store, embedder: Embedder) -> None:
    """Raises `EmbedderChanged` for another model's vectors; call inside `store.reading()`."""
    stored = store.state().embedder
    if stored is not None and stored != embedder.identity and store.count() > 0:
        raise EmbedderChanged(
            f"the library was embedded with {stored}, and {embedder.identity} is configured: run `dragon library "
            "add --rebuild FOLDER` (for a cloud with `--role cloud`), or configure the earlier model"
        )


@dataclass(frozen=True, slots=True)
class Order:
    """Options for reading a folder.

    Documents or folders in `first` (absolute paths) are read first. `watch`, `tags` and `encoding` are recorded before
    the reading, see `Library.add`. `written` is a former folder, now a link to this one: its documents move here.
    """

    first: Collection[str] = ()
    watch: bool = False
    tags: Sequence[str] | None = None
    written: str = ""
    encoding: str | None = None

    def is_first(self, path: str) -> bool:
        return path in self.first or any(str(folder) in self.first for folder in Path(path).parents)


class Ingestion:
    """Brings one folder into a store; the caller holds the library's writer lock."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        chunker: Chunker,
        root: Path,
        progress: Progress = quiet,
        order: Order | None = None,
    ) -> None:
        self._store = store
        self._chunker = chunker
        self._root = root
        self._order = order or Order()
        self._writer = _Writer(store, embedder, storable(str(root)), progress)
        self._named: list[str] = []  # added by its own name, and passed over here
        self._contents: set[str] = set()  # hashes in the library
        self._unread: set[str] = set()  # files that have changed, or may have
        self._encodings: dict[str, str] = {}  # named by the user, by folder or document

    @cached_property
    def _base(self) -> Path:
        return self._root.parent if os.path.isfile(self._root) else self._root

    def run(self) -> AddReport:
        """Reads, embeds and commits changes, then forgets removed documents."""
        found = scan(self._root)
        with self._store.reading():
            check_embedder(self._store, self._writer.embedder)
            before = records = self._store.paths()
            roots = self._store.readings.roots()
        if self._order.written not in ("", self._writer.name) and self._order.written in roots:
            with self._store.writing():
                self._store.relocate(self._order.written, self._writer.name, str(self._base), has_content)
                records, roots = self._store.paths(), self._store.readings.roots()
        with self._store.reading():
            self._encodings = self._store.readings.encodings()
        if self._order.encoding is not None:
            self._encodings[self._writer.name] = self._order.encoding
        # A document added by its own name stays if this reading would pass it over.
        self._named = [root for root in roots if self._passes_over(root, found)]
        known = {record.path: record for record in records if self._is_here(record.path)}
        changed = [file for file in found.files if not self._is_unchanged(file, known.get(file.path))]
        changed.sort(key=lambda file: not self._order.is_first(file.path))
        self._unread = {file.path for file in changed}
        self._contents = {record.sha256 for record in records}
        self._writer.total = sum(file.size for file in changed)
        with self._store.writing():
            self._begin()
        skipped = list(found.skipped)
        try:
            self._read(changed, known, skipped)
        except Interrupted:
            self._writer.commit()
            raise
        self._writer.commit()
        self._writer.progress(self._writer.total, self._writer.total, "", "")
        self._finish(known, found.files, skipped)
        with self._store.reading():
            return self._report(before, {record.id: record.path for record in records}, found, skipped)

    def _passes_over(self, root: str, found: Scan) -> bool:
        """Whether this reading passes over an existing root added by its own name."""
        hidden = root != self._writer.name and is_within(root, self._writer.name) and is_hidden(os.path.basename(root))
        return (hidden or any(is_within(root, folder) for folder in found.passed_over)) and not is_gone(root)

    def _is_here(self, path: str) -> bool:
        return is_within(path, str(self._root)) and not any(is_within(path, root) for root in self._named)

    def _begin(self) -> None:
        """Records the options for a continuation after an interruption."""
        name, order = self._writer.name, self._order
        self._store.readings.begin(name, self._writer.total)
        if order.watch:
            self._store.readings.watch(name)
        if order.encoding is not None:
            self._store.readings.name_encoding(name, order.encoding)
        if order.tags is not None and self._store.tags.put(name, order.tags):
            self._store.advance()

    def _read(self, changed: Sequence[FoundFile], known: Mapping[str, FileRecord], skipped: list[Skipped]) -> None:
        """Reads documents with unknown scans last: recognition takes seconds for a page."""
        with closing(IsolatedReader()) as reader:
            later = self._read_each(changed, known, skipped, reader, later=True)
            if later:
                self._writer.commit()
                self._read_each(later, known, skipped, reader, later=False)

    def _read_each(
        self,
        files: Sequence[FoundFile],
        known: Mapping[str, FileRecord],
        skipped: list[Skipped],
        reader: IsolatedReader,
        later: bool,
    ) -> list[FoundFile]:
        """Returns the files to read later."""
        left = []
        for number, file in enumerate(files):
            if number and self._order.is_first(files[number - 1].path) and not self._order.is_first(file.path):
                self._writer.commit()
            self._writer.reached(file.path)
            try:
                self._take_in(load(file.path), file.path, known.get(file.path), reader, later)
            except Later:
                left.append(file)
                continue
            except UnusableDocument as error:
                skipped.append(Skipped(file.path, error.reason, error.unknown, error.scans))
            self._unread.discard(file.path)
            self._writer.done += file.size
        return left

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self._base)

    def _is_unchanged(self, file: FoundFile, record: FileRecord | None) -> bool:
        if record is None or (record.size, record.stamp) != (file.size, file.stamp):
            return False
        return _is_current(record.chunking, self._chunking(file.path))

    def _chunking(self, path: str) -> str:
        """Name of a document's chunking; a change makes `add` read it again."""
        revision = REVISIONS.get(suffix_of(path))
        parts = self._chunker.identity, "" if revision is None else str(revision), self._named_encoding(path)
        return ":".join(filter(None, parts))

    def _named_encoding(self, path: str) -> str:
        """Encoding named for a document or its innermost folder; empty if none applies."""
        around = [root for root in self._encodings if suffix_of(path) in GUESSED and is_within(path, root)]
        return self._encodings[max(around, key=len)] if around else ""

    def _take_in(self, file: File, path: str, known: FileRecord | None, reader: IsolatedReader, later: bool) -> None:
        record = FileRecord(
            id=0,
            path=path,
            root=known.root if known else str(self._base),
            title="",
            sha256=file.sha256,
            size=file.size,
            stamp=file.stamp,
            chunking=self._chunking(path),
            chunks=0,
        )
        if self._is_known(record):
            self._writer.put(record, None)
            return
        reading = _Reading(self._writer, record, later)
        try:
            content = read_content(file, reader, self._named_encoding(path), reading)
        except UnusableDocument as error:
            error.scans = reading.work
            raise
        chunks = self._chunker.chunks_of(content)
        title = title_of(Path(as_typed(path)), content)
        chunking = record.chunking + _UNREAD_SCANS * any(NOT_INSTALLED in remark for remark in content.remarks)
        record = replace(record, title=title, chunking=chunking, chunks=len(chunks), remarks=content.remarks)
        self._writer.put(record, chunks)
        self._contents.add(record.sha256)

    def _is_known(self, record: FileRecord) -> bool:
        """Whether the library has a file's content, read alike or kept as another path."""
        if self._writer.has(record.sha256):
            return True
        if record.sha256 not in self._contents:
            return False
        with self._store.reading():
            shown = self._store.document_of(record.sha256)
        if shown is None:
            return False
        encodings = self._named_encoding(shown.path), self._named_encoding(record.path)
        if is_read_alike(shown.path, record.path) and encodings[0] == encodings[1]:
            return _is_current(shown.chunking, record.chunking)
        return shown.path not in self._unread and not has_left(shown.path)

    def _finish(self, known: Mapping[str, FileRecord], found: Sequence[FoundFile], skipped: Sequence[Skipped]) -> None:
        """Removes files if gone or no longer text; unreadable files stay."""
        present = {file.path for file in found} - {item.path for item in skipped if not item.unknown}
        unseen = [item.path for item in skipped if item.unknown]
        gone = {path for path in known if path not in present and not any(is_within(path, place) for place in unseen)}
        with self._store.writing():
            self._store.clear_staged(self._writer.work, {item.scans for item in skipped})
            # Another folder, the source of moved files, may be read later or never.
            copied = self._store.copied()
            here = {record.content for record in copied if record.path in present}
            doomed = [record for record in copied if record.content in here and self._has_left(record)]
            doomed += [record for path, record in known.items() if path in gone]
            self._store.remove_paths(doomed, has_content)
            if doomed:
                self._store.advance()
            self._store.readings.end(self._writer.name, [(item.path, item.reason) for item in skipped])

    def _has_left(self, record: FileRecord) -> bool:
        return not self._is_here(record.path) and has_left(record.path)

    def _report(
        self, before: Sequence[FileRecord], at: Mapping[int, str], found: Scan, skipped: Sequence[Skipped]
    ) -> AddReport:
        had = {record.content: record for record in reversed(before)}
        was = {at.get(record.id, record.path): record.content for record in had.values()}
        read = {file.path for file in found.files} - {item.path for item in skipped}
        documents: dict[int, FileRecord] = {}
        duplicates = []
        for record in self._store.paths():
            first = documents.setdefault(record.content, record)
            if first is not record and record.path in read:
                duplicates.append((self._relative(record.path), self._relative(first.path)))
        counts: Counter[str] = Counter()
        remarks: list[tuple[str, str]] = []
        for record in documents.values():
            if record.content not in had or had[record.content].chunking != record.chunking:
                counts["updated" if record.path in was else "added"] += 1
                remarks += [(self._relative(record.path), remark) for remark in record.remarks]
            elif was.get(record.path) == record.content:
                counts["unchanged"] += record.path in read
            else:
                counts["updated" if record.path in was else "moved"] += 1
        left = {record.path for record in documents.values()}
        removed = [path for path, content in was.items() if content not in documents and path not in left]
        return AddReport(
            counts["added"],
            counts["updated"],
            counts["unchanged"],
            counts["moved"],
            len(removed),
            self._writer.chunks,
            tuple((self._relative(item.path), item.reason) for item in skipped),
            tuple(sorted(duplicates)),
            tuple(sorted(remarks)),
            found.ignored,
            Counter(os.path.basename(folder) for folder in found.passed_over),
        )


def _is_current(chunking: str, wanted: str) -> bool:
    """Whether a document was read as it would be now; scans may be readable since."""
    return chunking == wanted or (chunking == wanted + _UNREAD_SCANS and not can_read_scans())


class _Reading(Reading):
    """Keeps scans in the store, so that an interrupted reading continues after them."""

    def __init__(self, writer: _Writer, record: FileRecord, later: bool) -> None:
        self._writer = writer
        self._record = record
        self.work = f"{writer.work}{hashlib.sha256(f'{record.sha256}/{record.chunking}'.encode()).hexdigest()}/scans"
        super().__init__(writer.scans(self.work), later)

    def keep(self, number: int, scan: Scanned) -> None:
        super().keep(number, scan)
        self._writer.stage_scan(self.work, number, scan)

    def reached(self, page: int, pages: int, slow: bool = False) -> None:
        part = self._record.size * (page - 1) // max(1, pages)
        self._writer.reached(self._record.path, f"page {page} of {pages}", part, slow)


class _Writer:
    def __init__(self, store: Store, embedder: Embedder, name: str, progress: Progress) -> None:
        self.embedder = embedder
        self.name = name  # of the folder or document
        self.progress = progress
        self.done = self.total = 0  # bytes
        self.chunks = 0  # written
        self._store = store
        self._noted = time.monotonic()
        self._batch: list[tuple[FileRecord, list[Chunk] | None]] = []

    @cached_property
    def earlier(self) -> frozenset[str]:
        """Works that an earlier reading staged."""
        with self._store.reading():
            return frozenset(self._store.staged_works(self.work))

    def reached(self, path: str, place: str = "", part: int = 0, slow: bool = False) -> None:
        """Reports the present document and place, `part` bytes into it; `slow` if it takes seconds."""
        self.progress(self.done + part, self.total, path, place)
        if slow or time.monotonic() - self._noted > _PAUSE:
            with self._store.writing():
                self._note(part, path, place)

    def _note(self, part: int, path: str, place: str = "") -> None:
        self._store.readings.reached(self.name, self.done + part, path, place)
        self._noted = time.monotonic()

    def scans(self, work: str) -> dict[int, Scanned]:
        """The scans that an earlier reading staged for a document."""
        if work not in self.earlier:
            return {}
        with self._store.reading():
            staged = self._store.staged_scans(work)
        try:
            return {number: unpacked(scan) for number, scan in staged.items()}
        except (ValueError, TypeError, KeyError):
            raise self._store.damaged("a scan is not what was written") from None

    def stage_scan(self, work: str, number: int, scan: Scanned) -> None:
        with self._store.writing():
            self._store.stage_scan(work, number, packed(scan))

    @property
    def work(self) -> str:
        """Prefix of this reading's staged works."""
        return f"{READING}{hashlib.sha256(self.name.encode()).hexdigest()}/"

    def has(self, sha256: str) -> bool:
        """Whether a content is about to be written."""
        return any(record.sha256 == sha256 for record, chunks in self._batch if chunks is not None)

    def put(self, record: FileRecord, chunks: list[Chunk] | None) -> None:
        """Takes in a file; `chunks` is None for known content."""
        if chunks is not None and len(chunks) > BATCH:
            self.commit()
            vectors = self._staged_vectors(record, chunks)
            self._write([(record, chunks)], vectors, self._work_on(record))
            return
        self._batch.append((record, chunks))
        if sum(len(each or ()) for _, each in self._batch) >= BATCH or len(self._batch) >= _MOST_PATHS:
            self.commit()

    def commit(self) -> None:
        batch, self._batch = self._batch, []
        if not batch:
            return
        texts = [chunk.text for _, chunks in batch for chunk in chunks or ()]
        self._write(batch, unit_vectors(self.embedder, texts) if texts else None)

    def _write(
        self,
        batch: Sequence[tuple[FileRecord, list[Chunk] | None]],
        vectors: NDArray[np.float32] | None,
        staged: str | None = None,
    ) -> None:
        store = self._store
        with store.writing():
            # An empty library accepts any model.
            if vectors is not None and store.state().embedder != self.embedder.identity:
                store.set_embedder(self.embedder.identity, vectors.shape[1])
            self._note(0, batch[-1][0].path)
            files: list[Intake] = []
            start = 0
            for record, chunks in batch:
                end = start + len(chunks or ())
                files.append((record, chunks, None if vectors is None else vectors[start:end]))
                start = end
            if store.put_files(files, has_content):
                store.advance()
            if staged is not None:
                store.clear_staged(staged)
        self.chunks += start

    def _staged_vectors(self, record: FileRecord, chunks: list[Chunk]) -> NDArray[np.float32]:
        """Vectors [chunks, dimension] of a long document, staged as they are made."""
        work = self._work_on(record)
        with self._store.reading():
            ready = self._store.staged_count(work)
        for start in range(ready, len(chunks), BATCH):
            part = record.size * start // len(chunks)
            self.progress(self.done + part, self.total, record.path, "")
            vectors = unit_vectors(self.embedder, [chunk.text for chunk in chunks[start : start + BATCH]])
            with self._store.writing():
                self._store.stage(work, range(start, start + len(vectors)), vectors)
                self._note(part, record.path)
        with self._store.reading():
            return np.stack([vector for _, vector in self._store.staged(work)])

    def _work_on(self, record: FileRecord) -> str:
        what = f"{record.sha256}/{record.chunking}/{self.embedder.identity}"
        return self.work + hashlib.sha256(what.encode()).hexdigest()


def reembed(store: Store, embedder: Embedder, progress: Progress = quiet) -> int:
    """Embeds every chunk again and replaces all vectors at once.

    Returns the number of chunks. After an interruption it continues, unless a reading or a removal came between.
    """
    work = f"rebuild/{embedder.identity}"
    with store.writing():
        store.drop_staged(work)  # of documents replaced by an interrupted reading
    with store.reading():
        total, done, last = store.count(), store.staged_count(work), store.last_staged(work) or 0
    dimension = 0
    while True:
        with store.reading():
            rows = store.texts_after(last, BATCH)
        if not rows:
            break
        progress(done, total, "", "")
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
    progress(total, total, "", "")
    return total
