"""The library's SQLite database: contents by hash, their paths, chunks and vectors.

The first path of a content is a document, the others are copies. A copy replaces a removed document. Chunk ids are
never reused, and their texts and vectors never change. Every change is a commit with a random name, kept until all
vectors are replaced. Names distinguish an index of a former state from a foreign one, or one newer than a restored
backup.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.library.chunks import Chunk
from common.library.database import Database, checksum
from common.library.errors import LibraryDamaged
from common.library.keywords import Keywords
from common.library.places import below, has_left, is_read_alike, is_within, relocated, stem
from common.library.readings import IngestRuns
from common.library.tags import Tags

DATABASE = "library.sqlite"
INDEX = "index.faiss"
READING = "reading/"  # prefix of work names for documents
_MOST_DIMENSIONS = 2**16  # of a vector; models have up to thousands
_ROWS = 1024  # fetched at a time: 1.5 MB of vectors
_REMOVED = 2**20  # largest number of removed chunks that are remembered
# Columns with paths of roots and documents, outside `paths`.
_PLACES = (
    *(("readings", "root"), ("readings", "path"), ("skipped", "root"), ("skipped", "path")),
    *(("watched", "root"), ("tags", "root"), ("encodings", "root")),
)
_FILES = (
    "SELECT paths.id, path, root, title, sha256, size, stamp, chunking, chunks, content, remarks,"
    " paths.checksum, named, contents.checksum FROM paths JOIN contents ON contents.id = content"
)
_CONTENT = "sha256, chunking, title, named, chunks, remarks, checksum"


@dataclass(frozen=True, slots=True)
class Version:
    """Version of a content; `embedder` and `dimension` are None before the first embedding."""

    commit: str
    embedder: str | None
    dimension: int | None


@dataclass(frozen=True, slots=True)
class IndexLabel:
    """Identifies the index file: the commit of its vectors, and its SHA-256."""

    commit: str
    sha256: str

    def fits(self, path: Path) -> bool:
        """Whether the file at `path` has this SHA-256."""
        try:
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except OSError:
            return False


@dataclass(frozen=True, slots=True)
class Counts:
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A document or copy; `path` is absolute, `stamp` is as of `File`."""

    id: int
    path: str
    root: str
    title: str
    sha256: str
    size: int
    stamp: int
    chunking: str
    chunks: int
    content: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def relative_path(self) -> str:
        """The path below the added folder."""
        return below(self.path, self.root)


IsSame = Callable[[FileRecord], bool]
Intake = tuple[FileRecord, Sequence[Chunk] | None, NDArray[np.float32] | None]


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk with its document and its vector [dimension]."""

    id: int
    title: str
    path: str
    root: str
    place: str
    text: str
    vector: NDArray[np.float32]


class Store:
    """One connection to a library's tables, for one thread. Raises `LibraryError`s."""

    def __init__(self, folder: Path, durable: bool = True) -> None:
        """Opens the database; `durable` is as for `connect`."""
        self._database = Database(folder / DATABASE, durable)
        self.tags = Tags(self._database)
        self.readings = IngestRuns(self._database)
        self.keywords = Keywords(self._database)

    def close(self) -> None:
        self._database.close()

    def check(self, everything: bool = False) -> None:
        """Raises `LibraryDamaged` if small tables or the keyword index changed.

        `everything` also checks chunks and vectors, otherwise checked when read, and SQLite's pages.
        """
        self._database.check(everything)
        self.keywords.check()
        if everything:
            self.files()
            last = 0
            while rows := self.texts_after(last, _ROWS):
                last = rows[-1][0]
            for _ in self.vectors_after(0, self.state().dimension or 0):
                pass

    def gather(self) -> None:
        """See `Database.gather`."""
        self._database.gather()

    def copy(self, folder: Path) -> None:
        """Writes the present content to a database in `folder`."""
        self._database.copy(folder / DATABASE)

    def reading(self) -> AbstractContextManager[None]:
        """Reads everything inside from one snapshot."""
        return self._database.transaction(write=False)

    def writing(self) -> AbstractContextManager[None]:
        """Makes all changes or none; they are durable at the end."""
        return self._database.transaction(write=True)

    def state(self) -> Version:
        """Name of the content and its embedding model."""
        commits = self._database.all("SELECT name FROM commits ORDER BY generation DESC LIMIT 1")
        models = self._database.all("SELECT embedder, dimension FROM model")
        if len(models) > 1 or len(models) > len(commits):
            raise self._database.damaged("its state is missing")
        embedder, dimension = models[0] if models else (None, None)
        if models and not (
            isinstance(embedder, str) and isinstance(dimension, int) and 0 < dimension < _MOST_DIMENSIONS
        ):
            raise self._database.damaged("it does not say which model its vectors are of")
        return Version(commits[0][0] if commits else "", embedder, dimension)

    def descends_from(self, commit: str) -> bool:
        """Whether the content descends from `commit` by recorded additions and removals."""
        return bool(self._database.all("SELECT 1 FROM commits WHERE name = ?", (commit,)))

    def age(self, commit: str) -> int | None:
        """Number of commits after `commit`; None if the content does not descend from it."""
        query = "SELECT count(*) FROM commits WHERE generation >= (SELECT generation FROM commits WHERE name = ?)"
        ((since,),) = self._database.all(query, (commit,))
        return int(since) - 1 if since else None

    def removed_since(self, commit: str) -> NDArray[np.int64]:
        """Ids [n] of chunks removed since `commit`."""
        since = "generation >= (SELECT generation FROM commits WHERE name = ?)"
        if self._database.all(f"SELECT 1 FROM removed JOIN chunks ON id = chunk WHERE {since} LIMIT 1", (commit,)):
            raise self._database.damaged("a chunk was removed and is there")
        return self._database.integers(f"SELECT chunk FROM removed WHERE {since}", (commit,))[:, 0]

    def set_embedder(self, identity: str, dimension: int) -> None:
        """Records the model of all vectors, after they were replaced."""
        self._database.run("DELETE FROM model")
        self._database.run("INSERT INTO model VALUES (?, ?)", (identity, dimension))
        self._database.run("DELETE FROM commits")
        self._database.run("DELETE FROM removed")
        self.advance()

    def advance(self) -> None:
        """Signals a change of content to every reader."""
        self._database.run("INSERT INTO commits (name) VALUES (?)", (secrets.token_hex(16),))
        ends = "SELECT (SELECT min(number) FROM removed), (SELECT max(number) FROM removed)"
        ((first, last),) = self._database.all(ends)
        if first is not None and last - first >= _REMOVED:
            self._forget_removed(last - _REMOVED // 2)

    def index_label(self) -> IndexLabel | None:
        """Label of the valid index file; None without one."""
        rows = self._database.all("SELECT name, sha256 FROM indexed")
        return IndexLabel(*map(str, rows[0])) if rows else None

    def put_index_label(self, label: IndexLabel | None) -> None:
        """Records a new index file, or none."""
        self._database.run("DELETE FROM indexed")
        if label is not None:
            self._database.run("INSERT INTO indexed VALUES (?, ?)", (label.commit, label.sha256))

    def files(self) -> list[FileRecord]:
        shown = {record.content: record for record in reversed(self.paths())}
        return sorted(shown.values(), key=lambda record: record.path)

    def paths(self) -> list[FileRecord]:
        """All documents and copies; for each content the document first.

        No SQLite index is read: damage in one could hide a row.
        """
        return self._records(f"{_FILES} ORDER BY paths.id")

    def document_of(self, sha256: str) -> FileRecord | None:
        """The document with this content, or None."""
        return next(iter(self._records(f"{_FILES} WHERE sha256 = ? ORDER BY paths.id LIMIT 1", (sha256,))), None)

    def copied(self) -> list[FileRecord]:
        """Documents with copies, and the copies."""
        several = "SELECT content FROM paths GROUP BY content HAVING count(*) > 1"
        return self._records(f"{_FILES} WHERE content IN ({several}) ORDER BY paths.id")

    def put_file(self, record: FileRecord, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> None:
        """Takes in one file, see `put_files`."""
        self.put_files([(record, chunks, vectors)])

    def put_files(self, files: Sequence[Intake], is_same: IsSame = lambda record: True) -> bool:
        """Takes in files at their paths; None as chunks means known content.

        Returns whether anything but sizes and times changed. A copy becomes a document only if `is_same` confirms its
        content. The records' ids are ignored. New content at a path gets a new id, so an id always means one content.
        When a content appears elsewhere, files that left their paths are forgotten.
        """
        left: dict[int, FileRecord | None] = {}  # documents of contents with changed paths
        changed = False
        for record, chunks, vectors in files:
            new = False
            if chunks is not None and vectors is not None:
                new = self._put_content(record, chunks, vectors)
                changed = True
            ((content,),) = self._database.all("SELECT id FROM contents WHERE sha256 = ?", (record.sha256,))
            if not new:  # a new content has no other files
                left.setdefault(content, self._document(content))
            values = (record.path, record.root, content, record.size, record.stamp)
            former = self._records(f"{_FILES} WHERE path = ?", (record.path,))
            if former and former[0].content == content:
                self._put_path(former[0].id, values)
                continue
            for each in former:
                left.setdefault(each.content, self._document(each.content))
            self._delete_paths(former)
            self._put_path(None, values)
            changed = True
            if not new:
                others = self._records(f"{_FILES} WHERE content = ? AND path <> ?", (content, record.path))
                self._delete_paths(other for other in others if has_left(other.path))
        read = {record.path for record, _, _ in files}
        for content, document in left.items():
            self._settle(content, document, lambda record: record.path in read or is_same(record))
        return changed

    def remove_paths(self, records: Sequence[FileRecord], is_same: IsSame = lambda record: True) -> None:
        """Forgets files, and contents without files.

        The first copy that `is_same` and reads alike replaces a removed document.
        """
        left = {record.content: self._document(record.content) for record in records}
        self._delete_paths(records)
        for content, document in left.items():
            self._settle(content, document, is_same)

    def relocate(self, folder: str, place: str, base: str, is_same: IsSame) -> None:
        """Moves everything added as `folder` or in it to `place`, with its tags.

        A file is dropped if its new path is taken or its new name is read differently. Files with a root around
        `folder` get the root `base`.
        """
        records = self.paths()
        taken = {record.path for record in records}
        doomed: list[FileRecord] = []
        moved: list[FileRecord] = []
        for record in records:
            if not is_within(record.path, folder):
                continue
            path = relocated(record.path, folder, place)
            if path in taken or not is_read_alike(record.path, path):
                doomed.append(record)
                continue
            root = relocated(record.root, folder, place) if is_within(record.root, folder) else base
            self._put_path(record.id, (path, root, record.content, record.size, record.stamp))
            moved.append(record)
        self.remove_paths(doomed, is_same)
        for record in moved:
            self._settle(record.content, None, is_same)
        below, beside = (path.rstrip(os.sep) + os.sep for path in (folder, place))
        for table, column in _PLACES:
            change = f"UPDATE OR REPLACE {table} SET {column} ="
            self._database.run(f"{change} ? WHERE {column} = ?", (place, folder))
            self._database.run(
                f"{change} ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                (beside, len(below) + 1, len(below), below),
            )
        self.advance()

    def count(self) -> int:
        """Number of chunks, in time linear in the number of documents."""
        return int(self._database.all("SELECT coalesce(sum(chunks), 0) FROM contents")[0][0])

    def count_to(self, most: int) -> int:
        """Number of chunks up to `most`, in linear time."""
        query = "SELECT count(*) FROM (SELECT 1 FROM chunks INDEXED BY chunks_of_content LIMIT ?)"
        return int(self._database.all(query, (most,))[0][0])

    def counts(self) -> Counts:
        """Number of documents and chunks, in time linear in the number of documents."""
        documents = self._database.all("SELECT count(*) FROM contents")[0][0]
        return Counts(int(documents), self.count())

    def chunk_ids(self) -> NDArray[np.int64]:
        # Only the narrow index is needed for the order (content, id); the tables are full of text and vectors.
        return np.sort(self._database.integers("SELECT id FROM chunks INDEXED BY chunks_of_content")[:, 0])

    def chunk_contents(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids [n] of every chunk and its content, unordered."""
        pairs = self._database.integers("SELECT id, content FROM chunks INDEXED BY chunks_of_content")
        return pairs[:, 0], pairs[:, 1]

    def places(self) -> list[tuple[int, str, str]]:
        """Content, path and added folder of every document; paths are absolute."""
        rows = self._database.all("SELECT path, root, content, size, stamp, checksum FROM paths ORDER BY id DESC")
        if not all(checksum(*row) == stated and is_within(row[0], row[1]) for *row, stated in rows):
            raise self._database.damaged("it does not say where a document is")
        shown = {content: (path, root) for path, root, content, *_ in rows}
        return [(content, path, root) for content, (path, root) in shown.items()]

    def has_chunk(self, identifier: int) -> bool:
        return bool(self._database.all("SELECT 1 FROM chunks WHERE id = ?", (identifier,)))

    def chunks_of(self, document: FileRecord) -> list[int]:
        """Ids of a document's chunks, in its order."""
        rows = self._database.all("SELECT id FROM chunks WHERE content = ? ORDER BY id", (document.content,))
        if len(rows) != document.chunks:
            raise self._database.damaged("chunks of a document are missing")
        return [row[0] for row in rows]

    def vectors_after(self, identifier: int, dimension: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Ids [n] and vectors [n, dimension] of chunks above `identifier`, ascending, in blocks."""
        query = "SELECT chunk, vector, checksum FROM vectors WHERE chunk > ? ORDER BY chunk LIMIT ?"
        while rows := self._database.all(query, (identifier, _ROWS)):
            identifier = rows[-1][0]
            yield np.array([row[0] for row in rows], np.int64), self._block(rows, dimension)

    def vectors_of(self, identifiers: NDArray[np.int64], dimension: int) -> NDArray[np.float32]:
        """Vectors [n, dimension] of existing chunks by ids [n], ascending."""
        blocks = [np.empty((0, dimension), np.float32)]
        for start in range(0, len(identifiers), _ROWS):
            part = identifiers[start : start + _ROWS].tolist()
            places = ", ".join("?" * len(part))
            query = f"SELECT chunk, vector, checksum FROM vectors WHERE chunk IN ({places}) ORDER BY chunk"
            rows = self._database.all(query, part)
            if [row[0] for row in rows] != part:
                raise self._database.damaged("chunks and vectors don't belong together")
            blocks.append(self._block(rows, dimension))
        return np.concatenate(blocks)

    def chunks(self, identifiers: Iterable[int]) -> list[StoredChunk]:
        """Chunks by id, with text and vector."""
        query = (
            "SELECT content, first, last, place, text, chunks.checksum, vector, vectors.checksum FROM chunks"
            " JOIN vectors ON vectors.chunk = chunks.id WHERE chunks.id = ?"
        )
        found = []
        documents: dict[int, FileRecord | None] = {}
        for identifier in identifiers:
            rows = self._database.all(query, (identifier,))
            if not rows:
                raise self._database.damaged(f"chunk {identifier} is missing")
            ((*values, stated, vector, vector_sum),) = rows
            content, _, _, place, text = values
            if checksum(*values) != stated or not _is_vector(vector, vector_sum):
                raise self._database.damaged(f"chunk {identifier} differs from what was written")
            if content not in documents:
                documents[content] = self._document(content)
            document = documents[content]
            if document is None:
                raise self._database.damaged(f"chunk {identifier} is of no document")
            vector = np.frombuffer(vector, np.float32)
            found.append(StoredChunk(identifier, document.title, document.path, document.root, place, text, vector))
        return found

    def texts_after(self, identifier: int, limit: int) -> list[tuple[int, str]]:
        """Up to `limit` ids and texts of chunks above `identifier`, ascending."""
        query = "SELECT id, checksum, content, first, last, place, text FROM chunks WHERE id > ? ORDER BY id LIMIT ?"
        rows = self._database.all(query, (identifier, limit))
        for chunk, stated, *values in rows:
            if checksum(*values) != stated:
                raise self._database.damaged(f"the text of chunk {chunk} differs from what was written")
        return [(row[0], row[-1]) for row in rows]

    def stage(self, work: str, items: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Keeps vectors of unfinished work, invisible to searches."""
        rows = [(work, item, vector.tobytes()) for item, vector in zip(items, vectors, strict=True)]
        self._database.run_many("INSERT OR REPLACE INTO staged VALUES (?, ?, ?)", rows)

    def stage_scan(self, work: str, number: int, scan: str) -> None:
        """Keeps the words of a scan until its document is read."""
        self._database.run("INSERT OR REPLACE INTO staged VALUES (?, ?, ?)", (work, number, scan.encode()))

    def staged_works(self, prefix: str) -> set[str]:
        """Names of unfinished works that begin with `prefix`."""
        query = "SELECT DISTINCT work FROM staged WHERE substr(work, 1, ?) = ?"
        return {work for (work,) in self._database.all(query, (len(prefix), prefix))}

    def staged_scans(self, work: str) -> dict[int, str]:
        """Scans staged for `work`, by number."""
        rows = self._database.all("SELECT item, vector FROM staged WHERE work = ? ORDER BY item", (work,))
        return {number: bytes(scan).decode("utf-8", "replace") for number, scan in rows}

    def drop_staged(self, work: str) -> None:
        """Forgets staged vectors of missing chunks; items are chunk ids."""
        self._database.run("DELETE FROM staged WHERE work = ? AND item NOT IN (SELECT id FROM chunks)", (work,))

    def staged_count(self, work: str) -> int:
        """Number of vectors staged for `work`."""
        return int(self._database.all("SELECT count(*) FROM staged WHERE work = ?", (work,))[0][0])

    def last_staged(self, work: str) -> int | None:
        """Highest item staged for `work`; None without one."""
        last: int | None = self._database.all("SELECT max(item) FROM staged WHERE work = ?", (work,))[0][0]
        return last

    def staged(self, work: str) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Items and vectors staged for `work`, ascending."""
        query = "SELECT item, vector FROM staged WHERE work = ? AND item > ? ORDER BY item LIMIT ?"
        last = -1
        while rows := self._database.all(query, (work, last, _ROWS)):
            last = rows[-1][0]
            for item, vector in rows:
                yield item, np.frombuffer(vector, np.float32)

    def adopt_staged(self, work: str) -> None:
        """Makes the staged vectors the vectors of all chunks; items are chunk ids."""
        self._database.run("DELETE FROM vectors")
        self._put_vectors((item, vector.tobytes()) for item, vector in self.staged(work))

    def damaged(self, what: str) -> LibraryDamaged:
        """The error for contradictory content."""
        return self._database.damaged(what)

    def clear_staged(self, readings: str = "", but: Collection[str] = ()) -> None:
        """Forgets unfinished work, except readings without the prefix `readings` and the works in `but`.

        An empty prefix includes all readings, whose names begin with `READING`.
        """
        of_readings = "substr(work, 1, ?) <> ? OR substr(work, 1, ?) = ?"
        values = (len(READING), READING, len(readings), readings)
        works = [
            work for (work,) in self._database.all(f"SELECT DISTINCT work FROM staged WHERE {of_readings}", values)
        ]
        self._database.run_many("DELETE FROM staged WHERE work = ?", [(work,) for work in works if work not in but])

    def _records(self, query: str, values: Sequence[object] = ()) -> list[FileRecord]:
        """Files by a query beginning as `_FILES`. Raises `LibraryDamaged` for changed rows."""
        found = []
        for *row, remarks, stated, named, content_sum in self._database.all(query, values):
            record = replace(FileRecord(*row), remarks=tuple(str(remarks).splitlines()))
            of_path = checksum(record.path, record.root, record.content, record.size, record.stamp)
            of_content = checksum(record.sha256, record.chunking, record.title, named, record.chunks, remarks)
            if (of_path, of_content) != (stated, content_sum) or not is_within(record.path, record.root):
                raise self._database.damaged(f"document {record.id} differs from what was written")
            found.append(record)
        return found

    def _document(self, content: int) -> FileRecord | None:
        return next(iter(self._records(f"{_FILES} WHERE content = ? ORDER BY paths.id LIMIT 1", (content,))), None)

    def _put_path(self, identifier: int | None, values: Sequence[object]) -> None:
        columns = "path, root, content, size, stamp, checksum"
        row = (*values, checksum(*values))
        if identifier is None:
            self._database.run(f"INSERT INTO paths ({columns}) VALUES (?, ?, ?, ?, ?, ?)", row)
        else:
            self._database.run(f"UPDATE paths SET ({columns}) = (?, ?, ?, ?, ?, ?) WHERE id = ?", (*row, identifier))

    def _delete_paths(self, records: Iterable[FileRecord]) -> None:
        self._database.run_many("DELETE FROM paths WHERE id = ?", [(record.id,) for record in records])

    def _settle(self, content: int, former: FileRecord | None, is_same: IsSame) -> None:
        """Lets a copy show a content after its `former` document, or forgets the content."""
        document = self._document(content)
        while document is not None and former is not None and document.id != former.id:
            if is_read_alike(document.path, former.path) and is_same(document):
                break
            self._delete_paths([document])
            document = self._document(content)
        if document is None:
            self._remove_chunks(content)
            self._database.run("DELETE FROM contents WHERE id = ?", (content,))
        elif document.title != (title := stem(document.path)):
            named = self._database.all("SELECT 1 FROM contents WHERE id = ? AND named", (content,))
            if named:
                self.keywords.remove(content)
                self._describe(content, replace(document, title=title))
                self.keywords.add(content)

    def _put_content(self, record: FileRecord, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> bool:
        """Returns whether the content is new."""
        known = replace(record, chunks=len(chunks))
        shown = self.document_of(record.sha256)
        if shown is not None and not is_read_alike(shown.path, record.path):
            self._delete_paths(self._records(f"{_FILES} WHERE content = ?", (shown.content,)))
            self._settle(shown.content, None, lambda record: False)
            shown = None
        if shown is None:
            content = self._database.run(
                f"INSERT INTO contents ({_CONTENT}) VALUES (?, ?, ?, ?, ?, ?, ?)", _content_row(known)
            )
        else:
            content = shown.content
            self._remove_chunks(content)
            self._describe(content, known)
        for chunk, vector in zip(chunks, vectors, strict=True):
            values = (content, chunk.start, chunk.end, chunk.place, chunk.text)
            identifier = self._database.run(
                "INSERT INTO chunks (content, first, last, place, text, checksum) VALUES (?, ?, ?, ?, ?, ?)",
                (*values, checksum(*values)),
            )
            self._put_vectors([(identifier, vector.tobytes())])
        self.keywords.add(content)
        return shown is None

    def _describe(self, content: int, document: FileRecord) -> None:
        self._database.run(
            f"UPDATE contents SET ({_CONTENT}) = (?, ?, ?, ?, ?, ?, ?) WHERE id = ?", (*_content_row(document), content)
        )

    def _remove_chunks(self, content: int) -> None:
        self.keywords.remove(content)
        self._database.run(
            "INSERT INTO removed (generation, chunk)"
            " SELECT (SELECT max(generation) FROM commits), id FROM chunks WHERE content = ?",
            (content,),
        )
        self._database.run("DELETE FROM chunks WHERE content = ?", (content,))

    def _forget_removed(self, last: int) -> None:
        past = "generation <= (SELECT generation FROM removed WHERE number = ?)"
        for table in ("commits", "removed"):
            self._database.run(f"DELETE FROM {table} WHERE {past}", (last,))

    def _block(self, rows: list[tuple[Any, ...]], dimension: int) -> NDArray[np.float32]:
        for chunk, vector, stated in rows:
            if not _is_vector(vector, stated) or len(vector) != 4 * dimension:
                raise self._database.damaged(f"the vector of chunk {chunk} differs from what was written")
        return np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float32).reshape(len(rows), dimension)

    def _put_vectors(self, rows: Iterable[tuple[int, bytes]]) -> None:
        self._database.run_many(
            "INSERT INTO vectors VALUES (?, ?, ?)",
            ((chunk, vector, zlib.crc32(vector)) for chunk, vector in rows),
        )


def _content_row(document: FileRecord) -> tuple[object, ...]:
    named = int(document.title == stem(document.path))
    remarks = "\n".join(document.remarks)
    values = (document.sha256, document.chunking, document.title, named, document.chunks, remarks)
    return *values, checksum(*values)


def _is_vector(vector: object, stated: int) -> bool:
    return isinstance(vector, bytes) and zlib.crc32(vector) == stated
