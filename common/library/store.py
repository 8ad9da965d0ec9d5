"""The library's truth: documents, chunks and vectors in one SQLite database.

A chunk's text and vector never change under its id and ids are never used twice, so whoever knows a set of
ids knows their vectors. Every change of content is a commit with a random name. The names of former commits
are kept until all vectors are replaced, so that an index of a former content is told from one of another
library, or of a future that a restored backup took back.
"""

from __future__ import annotations

import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from common.library.chunks import Chunk
from common.library.copies import Copies
from common.library.database import Database, intact
from common.library.errors import LibraryDamaged
from common.library.keywords import Keywords
from common.library.places import below, is_within
from common.library.readings import Readings
from common.library.tags import Tags

DATABASE = "library.sqlite"
INDEX = "index.faiss"  # beside it
READING = "reading/"  # begins the names of work on documents
_MOST_DIMENSIONS = 2**16  # of a vector; embedding models have up to some thousand
_ROWS = 1024  # fetched at a time: 1.5 MB of vectors
_REMOVED = 2**20  # chunks that are no more are remembered, at most
# Columns of paths, but for those of the documents.
_PLACES = (
    *(("readings", "root"), ("readings", "path"), ("skipped", "root"), ("skipped", "path")),
    *(("watched", "root"), ("tags", "root"), ("copies", "root"), ("copies", "path"), ("encodings", "root")),
)


@dataclass(frozen=True, slots=True)
class State:
    """Version of a library's content. `embedder` and `dimension` are None while nothing was ever embedded."""

    commit: str
    embedder: str | None
    dimension: int | None


@dataclass(frozen=True, slots=True)
class Counts:
    """Size of a library."""

    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class FileRecord:
    """A document of the library. `path` is absolute; `mtime` is in nanoseconds, 0 when not to be trusted."""

    id: int
    path: str
    root: str
    title: str
    sha256: str
    size: int
    mtime: int
    chunking: str
    chunks: int
    remarks: tuple[str, ...] = ()  # see `Content`

    @property
    def relative_path(self) -> str:
        """The path below the folder that was added."""
        return below(self.path, self.root)


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
    """One connection to a library's tables; not for several threads at once. Raises `LibraryError`s."""

    def __init__(self, folder: Path, upgrade: bool = False, durable: bool = True) -> None:
        """`upgrade` and `durable` are as for `connect`; raises its `LibraryOutdated`."""
        self._database = Database(folder / DATABASE, upgrade, durable)
        self.tags = Tags(self._database)
        self.copies = Copies(self._database)
        self.readings = Readings(self._database)
        self.keywords = Keywords(self._database)

    def close(self) -> None:
        """Release the connection."""
        self._database.close()

    def gather(self, patient: bool = True) -> bool:
        """As `Database.gather`."""
        return self._database.gather(patient)

    def copy(self, folder: Path) -> None:
        """Write the content as it is now to a database in `folder`."""
        self._database.copy(folder / DATABASE)

    def reading(self) -> AbstractContextManager[None]:
        """One snapshot for everything that is read inside, whatever other processes commit meanwhile."""
        return self._database.transaction(write=False)

    def writing(self) -> AbstractContextManager[None]:
        """Changes that are made all or not at all; durable when the block is left."""
        return self._database.transaction(write=True)

    def state(self) -> State:
        """The content's name and the embedding model that its vectors come from."""
        commits = self._database.all("SELECT name FROM commits ORDER BY generation DESC LIMIT 1")
        models = self._database.all("SELECT embedder, dimension FROM model")
        if len(models) > 1 or len(models) > len(commits):
            raise self._database.damaged("its state is missing")
        embedder, dimension = models[0] if models else (None, None)
        if models and not (
            isinstance(embedder, str) and isinstance(dimension, int) and 0 < dimension < _MOST_DIMENSIONS
        ):
            raise self._database.damaged("it does not say which model its vectors are of")
        return State(commits[0][0] if commits else "", embedder, dimension)

    def descends_from(self, commit: str) -> bool:
        """Whether the content came out of that of `commit` by adding and removing chunks, all known."""
        return self.age(commit) is not None

    def age(self, commit: str) -> int | None:
        """Number of contents that there were after that of `commit`; None where the present one doesn't descend from
        it.
        """
        query = "SELECT count(*) FROM commits WHERE generation >= (SELECT generation FROM commits WHERE name = ?)"
        ((since,),) = self._database.all(query, (commit,))
        return int(since) - 1 if since else None

    def removed_since(self, commit: str) -> NDArray[np.int64]:
        """Ids of the chunks [n] that are no more, of those that the content of `commit` had or that came after it."""
        since = "generation >= (SELECT generation FROM commits WHERE name = ?)"
        if self._database.all(f"SELECT 1 FROM removed JOIN chunks ON id = chunk WHERE {since} LIMIT 1", (commit,)):
            raise self._database.damaged("a chunk was removed and is there")
        return self._database.integers(f"SELECT chunk FROM removed WHERE {since}", (commit,))[:, 0]

    def set_embedder(self, identity: str, dimension: int) -> None:
        """Record the embedding model that all vectors come from, now that they do."""
        self._database.run("DELETE FROM model")
        self._database.run("INSERT INTO model VALUES (?, ?)", (identity, dimension))
        self._database.run("DELETE FROM commits")
        self._database.run("DELETE FROM removed")
        self.advance()

    def advance(self) -> None:
        """Tell every reader that the content changed."""
        self._database.run("INSERT INTO commits (name) VALUES (?)", (secrets.token_hex(16),))
        ends = "SELECT (SELECT min(number) FROM removed), (SELECT max(number) FROM removed)"
        ((first, last),) = self._database.all(ends)
        if first is not None and last - first >= _REMOVED:
            self._forget_removed(last - _REMOVED // 2)

    def files(self) -> list[FileRecord]:
        """All documents, by path."""
        columns = "id, path, root, title, sha256, size, mtime, chunking, chunks"
        rows = self._database.all(f"SELECT {columns} FROM files ORDER BY path")
        for row in rows:
            self._check_document(*row[1:4])
        remarks: dict[int, list[str]] = {}
        for file, text in self._database.all("SELECT file, text FROM remarks ORDER BY rowid"):
            remarks.setdefault(file, []).append(text)
        return [replace(FileRecord(*row), remarks=tuple(remarks.get(row[0], ()))) for row in rows]

    def put_file(self, record: FileRecord, chunks: Sequence[Chunk], vectors: NDArray[np.float32]) -> None:
        """Replace whatever the library holds under the record's path. `record.id` is ignored."""
        self.remove_files(row[0] for row in self._database.all("SELECT id FROM files WHERE path = ?", (record.path,)))
        file = self._new_file(record)
        for chunk, vector in zip(chunks, vectors, strict=True):
            identifier = self._database.run(
                "INSERT INTO chunks (file, first, last, place, text, checksum) VALUES (?, ?, ?, ?, ?, ?)",
                (file, chunk.start, chunk.end, chunk.place, chunk.text, zlib.crc32(chunk.text.encode())),
            )
            self._put_vectors([(identifier, vector.tobytes())])
        self.keywords.add(file)
        self.copies.forget_one(record.path)

    def touch_file(self, identifier: int, size: int, mtime: int) -> None:
        """Remember that a file with other times has the content known already."""
        self._database.run("UPDATE files SET size = ?, mtime = ? WHERE id = ?", (size, mtime, identifier))

    def move_file(self, record: FileRecord) -> None:
        """Make the document `record.id` one under the record's path, title and times. It gets another id: whoever knows
        that of a document means the file at its path.
        """
        self.keywords.remove([record.id])
        file = self._new_file(record)
        self._database.run("UPDATE chunks SET file = ? WHERE file = ?", (file, record.id))
        self._database.run("DELETE FROM files WHERE id = ?", (record.id,))
        self.keywords.add(file)
        self.copies.forget_one(record.path)

    def relocate(self, folder: str, place: str) -> None:
        """Note that what was added as `folder`, or in it, is at `place` now, with its tags and copies. Its documents
        are moved before, see `relocation`.
        """
        below, beside = (path.rstrip(os.sep) + os.sep for path in (folder, place))
        for table, column in _PLACES:
            change = f"UPDATE OR REPLACE {table} SET {column} ="
            self._database.run(f"{change} ? WHERE {column} = ?", (place, folder))
            self._database.run(
                f"{change} ? || substr({column}, ?) WHERE substr({column}, 1, ?) = ?",
                (beside, len(below) + 1, len(below), below),
            )
        # A copy that another folder's reading passed over is no part of that one any more.
        outside = "substr(path, 1, length(rtrim(root, '/')) + 1) <> rtrim(root, '/') || '/'"
        self._database.run(f"DELETE FROM copies WHERE {outside} OR path IN (SELECT path FROM files)")

    def remove_files(self, identifiers: Iterable[int]) -> None:
        """Forget documents with their chunks and vectors."""
        chosen = list(identifiers)
        self.keywords.remove(chosen)
        self._database.run_many(
            "INSERT INTO removed (generation, chunk)"
            " SELECT (SELECT max(generation) FROM commits), id FROM chunks WHERE file = ?",
            [(identifier,) for identifier in chosen],
        )
        self._database.run_many("DELETE FROM files WHERE id = ?", [(identifier,) for identifier in chosen])

    def count(self) -> int:
        """Number of chunks. It takes as long as there are documents."""
        return int(self._database.all("SELECT coalesce(sum(chunks), 0) FROM files")[0][0])

    def count_to(self, most: int) -> int:
        """Number of chunks, or `most` where there are more: it takes as long as there are that many."""
        query = "SELECT count(*) FROM (SELECT 1 FROM chunks INDEXED BY chunks_of_file LIMIT ?)"
        return int(self._database.all(query, (most,))[0][0])

    def counts(self) -> Counts:
        """Number of documents and chunks. It takes as long as there are documents."""
        documents = self._database.all("SELECT count(*) FROM files")[0][0]
        return Counts(int(documents), self.count())

    def chunk_ids(self) -> NDArray[np.int64]:
        """Every chunk's id, ascending."""
        # The order by (file, id) is answered from the narrow index; the tables are full of text and vectors.
        return np.sort(self._database.integers("SELECT id FROM chunks INDEXED BY chunks_of_file")[:, 0])

    def chunk_files(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Every chunk's id, and the id of its document [n] each, in no order."""
        pairs = self._database.integers("SELECT id, file FROM chunks INDEXED BY chunks_of_file")
        return pairs[:, 0], pairs[:, 1]

    def places(self) -> list[tuple[int, str, str]]:
        """Every document's id, its path, and that of the folder that was added; both absolute."""
        rows = self._database.all("SELECT id, path, root FROM files")
        for _, path, root in rows:
            if not (isinstance(path, str) and isinstance(root, str) and is_within(path, root)):
                raise self._database.damaged("it does not say where a document is")
        return [(file, path, root) for file, path, root in rows]

    def has_chunk(self, identifier: int) -> bool:
        """Whether there is a chunk of this id."""
        return bool(self._database.all("SELECT 1 FROM chunks WHERE id = ?", (identifier,)))

    def chunks_of(self, file: int) -> list[int]:
        """Ids of a document's chunks, in the document's order."""
        return [row[0] for row in self._database.all("SELECT id FROM chunks WHERE file = ? ORDER BY id", (file,))]

    def vectors_after(self, identifier: int, dimension: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Ids [n] and vectors [n, dimension] of the chunks above `identifier`, ascending, in blocks."""
        query = "SELECT chunk, vector, checksum FROM vectors WHERE chunk > ? ORDER BY chunk LIMIT ?"
        while rows := self._database.all(query, (identifier, _ROWS)):
            identifier = rows[-1][0]
            yield np.array([row[0] for row in rows], np.int64), self._block(rows, dimension)

    def vectors_of(self, identifiers: NDArray[np.int64], dimension: int) -> NDArray[np.float32]:
        """Vectors [n, dimension] of chunks that there are, by their ids [n], ascending."""
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
        """The chunks of these ids, with text and vector."""
        query = (
            "SELECT chunks.id, title, path, root, place, text, chunks.checksum, vector, vectors.checksum FROM chunks"
            " JOIN files ON files.id = chunks.file JOIN vectors ON vectors.chunk = chunks.id"
            " WHERE chunks.id = ?"
        )
        found = []
        for identifier in identifiers:
            rows = self._database.all(query, (identifier,))
            if not rows:
                raise self._database.damaged(f"chunk {identifier} is missing")
            for chunk, title, path, root, place, text, text_sum, vector, vector_sum in rows:
                if not intact(text, text_sum) or not intact(vector, vector_sum):
                    raise self._database.damaged(f"chunk {chunk} is not what was written")
                self._check_document(path, root, title)
                found.append(StoredChunk(chunk, title, path, root, str(place), text, np.frombuffer(vector, np.float32)))
        return found

    def texts_after(self, identifier: int, limit: int) -> list[tuple[int, str]]:
        """Up to `limit` chunks' ids and texts above `identifier`, ascending."""
        query = "SELECT id, text, checksum FROM chunks WHERE id > ? ORDER BY id LIMIT ?"
        rows = self._database.all(query, (identifier, limit))
        for chunk, text, checksum in rows:
            if not intact(text, checksum):
                raise self._database.damaged(f"the text of chunk {chunk} is not what was written")
        return [(chunk, text) for chunk, text, _ in rows]

    def stage(self, work: str, items: Sequence[int], vectors: NDArray[np.float32]) -> None:
        """Keep vectors of a piece of work that isn't complete; a search doesn't see them."""
        rows = [(work, item, vector.tobytes()) for item, vector in zip(items, vectors, strict=True)]
        self._database.run_many("INSERT OR REPLACE INTO staged VALUES (?, ?, ?)", rows)

    def drop_staged(self, work: str) -> None:
        """Forget what this piece of work has staged for chunks, its items, that are no more."""
        self._database.run("DELETE FROM staged WHERE work = ? AND item NOT IN (SELECT id FROM chunks)", (work,))

    def staged_count(self, work: str) -> int:
        """Number of vectors that this piece of work has staged."""
        return int(self._database.all("SELECT count(*) FROM staged WHERE work = ?", (work,))[0][0])

    def last_staged(self, work: str) -> int | None:
        """The highest item that this piece of work has staged."""
        last: int | None = self._database.all("SELECT max(item) FROM staged WHERE work = ?", (work,))[0][0]
        return last

    def staged(self, work: str) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Items and vectors staged for this piece of work, ascending."""
        query = "SELECT item, vector FROM staged WHERE work = ? AND item > ? ORDER BY item LIMIT ?"
        last = -1
        while rows := self._database.all(query, (work, last, _ROWS)):
            last = rows[-1][0]
            for item, vector in rows:
                yield item, np.frombuffer(vector, np.float32)

    def adopt_staged(self, work: str) -> None:
        """Make the staged vectors, items being chunk ids, the vectors of all chunks."""
        self._database.run("DELETE FROM vectors")
        self._put_vectors((item, vector.tobytes()) for item, vector in self.staged(work))

    def damaged(self, what: str) -> LibraryDamaged:
        """The error for content that contradicts itself."""
        return self._database.damaged(what)

    def clear_staged(self, readings: str = "") -> None:
        """Forget unfinished work; of readings, which `READING` begins the names of, those that `readings` begins, or
        all of them.
        """
        self._database.run(
            "DELETE FROM staged WHERE substr(work, 1, ?) <> ? OR substr(work, 1, ?) = ?",
            (len(READING), READING, len(readings), readings),
        )

    def _new_file(self, record: FileRecord) -> int:
        """The id of a document that is new."""
        _, *columns, remarks = astuple(record)
        file = self._database.run(
            "INSERT INTO files (path, root, title, sha256, size, mtime, chunking, chunks)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            columns,
        )
        self._database.run_many("INSERT INTO remarks VALUES (?, ?)", [(file, remark) for remark in remarks])
        return file

    def _forget_removed(self, last: int) -> None:
        """Forget which chunks were removed up to number `last`, and the contents that had them."""
        past = "generation <= (SELECT generation FROM removed WHERE number = ?)"
        for table in ("commits", "removed"):
            self._database.run(f"DELETE FROM {table} WHERE {past}", (last,))

    def _check_document(self, path: object, root: object, title: object) -> None:
        if not (isinstance(path, str) and isinstance(root, str) and isinstance(title, str) and is_within(path, root)):
            raise self._database.damaged("it does not say where a document is")

    def _block(self, rows: list[tuple[Any, ...]], dimension: int) -> NDArray[np.float32]:
        for chunk, vector, checksum in rows:
            if not intact(vector, checksum) or len(vector) != 4 * dimension:
                raise self._database.damaged(f"the vector of chunk {chunk} is not what was written")
        return np.frombuffer(b"".join(row[1] for row in rows), dtype=np.float32).reshape(len(rows), dimension)

    def _put_vectors(self, rows: Iterable[tuple[int, bytes]]) -> None:
        self._database.run_many(
            "INSERT INTO vectors VALUES (?, ?, ?)",
            ((chunk, vector, zlib.crc32(vector)) for chunk, vector in rows),
        )
