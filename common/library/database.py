"""The SQLite connection of a library: schema, durability, and errors as sentences."""

from __future__ import annotations

import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import filelock
import numpy as np
from numpy.typing import NDArray

from common.library.errors import LibraryBusy, LibraryDamaged, LibraryError, LibraryFull, LibraryLocked
from common.library.terms import SIGNS, indexed

LOCK = "writer.lock"
PUBLISHED = "published"  # this file marks a database that never changes again

FORMAT = 11
_MOST_COLUMN = 2**28  # bytes of a value; a document has at most 10 MB
_COPIED = 4096  # database pages copied at a time: 16 MB
_PATIENCE = 10.0  # seconds; another process's commit takes milliseconds

# The sum of a table's row checksums reveals a missing row.
_SUMMED = {
    "model": "embedder, dimension",
    "commits": "generation, name",
    "contents": "id, sha256, chunking, title, named, chunks, remarks",
    "paths": "id, path, root, content, size, stamp",
    "tags": "root, tag",
    "watched": "root",
    "encodings": "root, encoding",
    "readings": "root, process, began, ended, done, total, path, place",
    "skipped": "root, path, reason",
}
WORDS = "words"  # the sum of the keyword index, see `Keywords`


def _triggers(table: str, columns: str) -> Iterator[str]:
    new, old = (f"checksum({', '.join(f'{row}.{name}' for name in columns.split(', '))})" for row in ("new", "old"))
    for event, change in (("INSERT", f"+ {new}"), ("DELETE", f"- {old}"), ("UPDATE", f"+ {new} - {old}")):
        yield (
            f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table} BEGIN"
            f" UPDATE sums SET total = total {change} WHERE name = '{table}'; END"
        )
    yield f"INSERT INTO sums VALUES ('{table}', 0)"


_SCHEMA = (
    "CREATE TABLE model (embedder TEXT NOT NULL, dimension INTEGER NOT NULL)",
    # A random name for every state since the vectors were last replaced.
    "CREATE TABLE commits (generation INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE)",
    # Each file content once. `named`: its title is the shown file's name. `remarks`: lines for the user, see `Content`.
    (
        "CREATE TABLE contents (id INTEGER PRIMARY KEY AUTOINCREMENT, sha256 TEXT NOT NULL UNIQUE,"
        " chunking TEXT NOT NULL, title TEXT NOT NULL, named INTEGER NOT NULL, chunks INTEGER NOT NULL,"
        " remarks TEXT NOT NULL, checksum INTEGER NOT NULL)"
    ),
    # Paths of files. The first file with a content is the document, the others are copies. AUTOINCREMENT: a deleted id
    # is never used again.
    (
        "CREATE TABLE paths (id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, root TEXT NOT NULL,"
        " content INTEGER NOT NULL REFERENCES contents, size INTEGER NOT NULL, stamp INTEGER NOT NULL,"
        " checksum INTEGER NOT NULL)"
    ),
    "CREATE INDEX paths_of_content ON paths (content)",
    (
        "CREATE TABLE chunks (id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " content INTEGER NOT NULL REFERENCES contents ON DELETE CASCADE,"
        " first INTEGER NOT NULL, last INTEGER NOT NULL, place TEXT NOT NULL, text TEXT NOT NULL,"
        " checksum INTEGER NOT NULL)"
    ),
    "CREATE INDEX chunks_of_content ON chunks (content)",
    (
        "CREATE TABLE vectors (chunk INTEGER PRIMARY KEY REFERENCES chunks ON DELETE CASCADE,"
        " vector BLOB NOT NULL, checksum INTEGER NOT NULL)"
    ),
    # Removed chunks, with the last commit that had them.
    "CREATE TABLE removed (number INTEGER PRIMARY KEY, generation INTEGER NOT NULL, chunk INTEGER NOT NULL)",
    "CREATE INDEX removed_since ON removed (generation)",
    # The index file: the commit of its vectors, and its SHA-256.
    "CREATE TABLE indexed (name TEXT NOT NULL, sha256 TEXT NOT NULL)",
    "CREATE TABLE staged (work TEXT NOT NULL, item INTEGER NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (work, item))",
    (
        "CREATE TABLE readings (root TEXT PRIMARY KEY, process INTEGER NOT NULL, began REAL NOT NULL, ended REAL,"
        " done INTEGER NOT NULL, total INTEGER NOT NULL, path TEXT NOT NULL, place TEXT NOT NULL)"
    ),
    "CREATE TABLE watched (root TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE skipped (root TEXT NOT NULL, path TEXT NOT NULL, reason TEXT NOT NULL)",
    # Tags of folders, and of documents added individually.
    "CREATE TABLE tags (root TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (root, tag)) WITHOUT ROWID",
    # Encodings named by the user for texts that do not state theirs, by folder or document.
    "CREATE TABLE encodings (root TEXT PRIMARY KEY, encoding TEXT NOT NULL) WITHOUT ROWID",
    # The keyword index holds no text: it reads the terms to delete from the chunks.
    (
        "CREATE VIEW passages AS SELECT chunks.id AS id, content, indexed(title) AS title, indexed(text) AS text"
        " FROM chunks JOIN contents ON contents.id = chunks.content"
    ),
    (
        "CREATE VIRTUAL TABLE keywords USING fts5(title, text, content='passages', content_rowid='id',"
        f" tokenize=\"ascii tokenchars '{SIGNS}'\")"
    ),
    "CREATE TABLE sums (name TEXT PRIMARY KEY, total INTEGER)",
    f"INSERT INTO sums VALUES ('{WORDS}', NULL)",
    *chain.from_iterable(_triggers(table, columns) for table, columns in _SUMMED.items()),
    f"PRAGMA user_version = {FORMAT}",
)


def checksum(*values: object) -> int:
    """CRC-32 of a row's values; damage may even change their types."""
    return zlib.crc32(repr(values).encode("utf-8", "replace"))


def _indexed(text: object) -> str:
    """Terms of a column; damage may even change its type."""
    return indexed(text) if isinstance(text, str) else ""


def damaged(path: Path, what: str) -> LibraryDamaged:
    """The error for a database with changed content."""
    return LibraryDamaged(
        f"the library's database {path} is damaged ({what}): move the folder away and add the documents again, or"
        " restore it from a backup"
    )


def connect(path: Path, durable: bool = True) -> sqlite3.Connection:
    """Opens a connection; with `durable`, every commit reaches the disk.

    A published database is opened without locks, which shared file systems may lack.
    """
    published = is_published(path.parent)
    place = f"file:{quote(str(path))}?immutable=1" if published else path
    connection = sqlite3.connect(place, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=published)
    # Text on a damaged page may not decode. Its checksum then reveals this, without a driver exception.
    connection.text_factory = lambda content: content.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_COLUMN)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        _recognise(connection, path)  # first: the next statements would change another program's database
        connection.execute("PRAGMA trusted_schema = ON")  # the tables are ours: triggers and views may call functions
        connection.create_function("checksum", -1, checksum, deterministic=True)
        connection.create_function("indexed", 1, _indexed, deterministic=True)
        if not published:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        connection.execute("PRAGMA secure_delete = ON")  # removed content never stays in the file
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA recursive_triggers = ON")  # fires the triggers of replaced rows
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def writer_lock(folder: Path) -> Iterator[None]:
    """Holds the writer lock of the library in `folder`.

    Raises `LibraryLocked` where another process holds it, and `LibraryError`.
    """
    lock = filelock.FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise LibraryLocked(
            f"the library {folder} is being changed by another process: try again when it is done"
        ) from None
    except OSError as error:
        raise LibraryError(f"the library {folder} can't be locked: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def is_published(folder: Path) -> bool:
    """Whether the library in `folder` is published and never changes."""
    return (folder / PUBLISHED).exists()


def _recognise(connection: sqlite3.Connection, path: Path) -> None:
    """Raises `LibraryError` for another format, and for foreign tables.

    Foreign triggers and views would run at later writes.
    """
    connection.execute("BEGIN")  # version and tables of one snapshot
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    found = _tables(connection)
    connection.execute("COMMIT")
    if 0 < version < FORMAT:
        raise LibraryError(
            f"the library {path.parent} has format {version} of an earlier version, which this program doesn't read:"
            " move the folder away and add the folders again"
        )
    if version not in (0, FORMAT):
        raise LibraryError(
            f"the library {path.parent} has format {version} and this program reads format"
            f" {FORMAT}: use the program that wrote it, or another folder"
        )
    if found != (_library_tables() if version else set()):
        raise LibraryError(
            f"the database {path} has tables, views or triggers that a library never has: it is another "
            "program's, or damaged. It was not changed; use another folder, or restore a backup"
        )


@cache
def _library_tables() -> Set[tuple[str, str, str]]:
    connection = sqlite3.connect(":memory:")
    try:
        for statement in _SCHEMA:
            connection.execute(statement)
        return _tables(connection)
    finally:
        connection.close()


def _tables(connection: sqlite3.Connection) -> set[tuple[str, str, str]]:
    rows = connection.execute(
        "SELECT type, name, coalesce(sql, '') FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'"
    )
    return set(rows.fetchall())


class Database:
    """One connection to a library's database, for one thread at a time.

    Raises `LibraryFull`, `LibraryDamaged`, `LibraryBusy` or `LibraryError` in place of SQLite's errors.
    """

    def __init__(self, path: Path, durable: bool = True) -> None:
        """Opens the database; `durable` is as for `connect`."""
        self.path = path
        with self._translated():
            self._connection = connect(path, durable)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Closes the connection; later use raises `LibraryError`."""
        with self._translated():
            self._connection.close()

    @contextmanager
    def transaction(self, write: bool) -> Iterator[None]:
        """Runs one snapshot for reading, or one atomic change, durable at its end."""
        self.run("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self.run("ROLLBACK")
            raise

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        """Executes a statement; returns the id of the inserted row, or 0."""
        with self._translated():
            return self._connection.execute(statement, values).lastrowid or 0

    def run_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        with self._translated():
            self._connection.executemany(statement, rows)

    def all(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self._translated():
            return self._connection.execute(statement, values).fetchall()

    def integers(self, statement: str, values: Sequence[object] = ()) -> NDArray[np.int64]:
        """Rows of an integer query [rows, columns], without a Python object per row."""
        with self._translated():
            found = self._connection.execute(statement, values)
            columns = len(found.description)
            try:
                flat = np.fromiter(chain.from_iterable(found), np.int64)
            except (TypeError, ValueError) as error:  # a damaged page may even change a value's type
                raise self.damaged("a number is none") from error
        return flat.reshape(-1, columns)

    @contextmanager
    def function(self, name: str, call: Callable[[int], bool]) -> Iterator[None]:
        """Lets queries call an integer function by this name."""
        with self._translated():
            self._connection.create_function(name, 1, call, deterministic=True)
        try:
            yield
        finally:
            with self._translated():
                self._connection.create_function(name, 1, None)

    def damaged(self, what: str) -> LibraryDamaged:
        """The error for changed content."""
        return damaged(self.path, what)

    def check(self, pages: bool) -> None:
        """Raises `LibraryDamaged` for missing or changed rows of the small tables.

        `pages` also checks every page with SQLite.
        """
        sums = dict(self.all("SELECT name, total FROM sums"))
        for table, columns in _SUMMED.items():
            ((total,),) = self.all(f"SELECT coalesce(sum(checksum({columns})), 0) FROM {table}")
            if total != sums.get(table):
                raise self.damaged(f"rows of {table} differ from the written ones")
        found = self.all("PRAGMA integrity_check(1)") if pages else [("ok",)]
        if found != [("ok",)]:
            raise self.damaged(" ".join(str(found[0][0]).split()))

    def gather(self) -> None:
        """Moves committed content into the database file, unless readers block it for seconds."""
        self.all("PRAGMA wal_checkpoint(TRUNCATE)")

    def copy(self, path: Path) -> None:
        """Copies the committed content to a database at `path`, without a log.

        Call it inside a reading transaction, else it restarts at every write. Signals are handled between parts: a
        large copy takes minutes.
        """
        with self._translated():
            copied = sqlite3.connect(path, isolation_level=None)
            try:
                self._connection.backup(copied, pages=_COPIED, progress=lambda *_: None)
                copied.execute("PRAGMA journal_mode = DELETE")
            finally:
                copied.close()

    def _prepare(self) -> None:
        if self.all("PRAGMA user_version")[0][0] == 0:
            with self.transaction(write=True):
                if self.all("PRAGMA user_version")[0][0] == 0:  # else another process was quicker
                    for statement in _SCHEMA:
                        self.run(statement)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Wraps SQLite's own work and nothing else."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._explained(error) from error
        # The driver's errors for sizes and texts on a damaged page.
        except (UnicodeDecodeError, MemoryError, OverflowError) as error:
            raise self.damaged(f"it can't be read: {type(error).__name__}") from error

    def _explained(self, error: sqlite3.Error) -> LibraryError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # primary code without its extension
        folder = self.path.parent
        if code == sqlite3.SQLITE_FULL:
            return LibraryFull(
                f"no space is left on the disk of {_fullest(folder)}: free some and run the command again; it "
                "continues where it stopped"
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG):
            return self.damaged(str(error))
        if code == sqlite3.SQLITE_BUSY:
            return LibraryBusy(f"another process is changing the library {folder}: try again when it is done")
        return LibraryError(f"the library {folder} can't be used: {error}")


def _fullest(folder: Path) -> Path:
    named = os.environ.get("SQLITE_TMPDIR") or os.environ.get("TMPDIR")
    temporary = Path(named or "/var/tmp")
    try:
        return min(folder, temporary, key=lambda place: shutil.disk_usage(place).free)
    except OSError:
        return folder
