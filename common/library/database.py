"""The SQLite connection under a library: schema, durability, and its errors as sentences."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from common.library.errors import LibraryBusy, LibraryDamaged, LibraryError, LibraryFull, LibraryOutdated

PUBLISHED = "published"  # a file beside a database that nobody changes any more

FORMAT = 8  # of the tables
_MOST_COLUMN = 2**28  # bytes of a value; a document has 10 MB at most
_COPIED = 4096  # pages of a database at a time: 16 MB
_PATIENCE = 10.0  # seconds; another process's commit takes milliseconds

# Tags of folders, and of documents that were added by themselves.
_TAGS = "CREATE TABLE tags (root TEXT NOT NULL, tag TEXT NOT NULL, PRIMARY KEY (root, tag))"
# Chunks that are no more, by the latest content that had them.
_REMOVED = (
    "CREATE TABLE removed (number INTEGER PRIMARY KEY, generation INTEGER NOT NULL, chunk INTEGER NOT NULL)",
    "CREATE INDEX removed_since ON removed (generation)",
)
# Files that are passed over, since another one has their content.
_COPIES = (
    "CREATE TABLE copies (path TEXT PRIMARY KEY, root TEXT NOT NULL, sha256 TEXT NOT NULL)",
    "CREATE INDEX copies_of_content ON copies (sha256)",
)
# AUTOINCREMENT: the id of what is deleted is never given to another document or chunk.
_FILES = (
    "CREATE TABLE files (id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL UNIQUE, root TEXT NOT NULL,"
    " title TEXT NOT NULL, sha256 TEXT NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL,"
    " chunking TEXT NOT NULL, chunks INTEGER NOT NULL)"
)
_FORMER_FILES = _FILES.replace(" AUTOINCREMENT", "")  # of the formats before 7
_FILES_ANEW = (
    "CREATE TABLE former AS SELECT * FROM files",
    "DROP TABLE files",
    _FILES,
    "INSERT INTO files SELECT * FROM former",
    "DROP TABLE former",
)
# Names of encodings of folders and documents whose texts do not tell theirs.
_ENCODINGS = "CREATE TABLE encodings (root TEXT PRIMARY KEY, encoding TEXT NOT NULL)"
# What the user is told of a document, see `Content`.
_REMARKS = (
    "CREATE TABLE remarks (file INTEGER NOT NULL REFERENCES files ON DELETE CASCADE, text TEXT NOT NULL)",
    "CREATE INDEX remarks_of_file ON remarks (file)",
)
_STEPS = {
    3: (_TAGS,),
    4: _REMOVED,
    5: _COPIES,
    6: _FILES_ANEW,
    7: (*_REMARKS, _ENCODINGS),
}  # each from an earlier format to the next one
# What brings an earlier format up to date; what it creates is what that format lacks.
_SINCE = {each: tuple(chain.from_iterable(_STEPS[step] for step in range(each, FORMAT))) for each in _STEPS}

_SCHEMA = (
    "CREATE TABLE model (embedder TEXT NOT NULL, dimension INTEGER NOT NULL)",
    # Every content that this library had, since its vectors were last replaced, by a random name.
    "CREATE TABLE commits (generation INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE)",
    _FILES,
    (
        "CREATE TABLE chunks (id INTEGER PRIMARY KEY AUTOINCREMENT,"
        " file INTEGER NOT NULL REFERENCES files ON DELETE CASCADE,"
        " first INTEGER NOT NULL, last INTEGER NOT NULL, place TEXT NOT NULL, text TEXT NOT NULL,"
        " checksum INTEGER NOT NULL)"
    ),
    "CREATE INDEX chunks_of_file ON chunks (file)",
    (
        "CREATE TABLE vectors (chunk INTEGER PRIMARY KEY REFERENCES chunks ON DELETE CASCADE,"
        " vector BLOB NOT NULL, checksum INTEGER NOT NULL)"
    ),
    ("CREATE TABLE staged (work TEXT NOT NULL, item INTEGER NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (work, item))"),
    (
        "CREATE TABLE readings (root TEXT PRIMARY KEY, process INTEGER NOT NULL, began REAL NOT NULL, ended REAL,"
        " done INTEGER NOT NULL, total INTEGER NOT NULL, path TEXT NOT NULL)"
    ),
    "CREATE TABLE watched (root TEXT PRIMARY KEY)",
    "CREATE TABLE skipped (root TEXT NOT NULL, path TEXT NOT NULL, reason TEXT NOT NULL)",
    # The index of words reads what it has to forget from the chunks themselves, so that it holds no text.
    (
        "CREATE VIEW passages AS SELECT chunks.id AS id, file, title, text FROM chunks"
        " JOIN files ON files.id = chunks.file"
    ),
    "CREATE VIRTUAL TABLE keywords USING fts5(title, text, content='passages', content_rowid='id')",
    _TAGS,
    *_REMOVED,
    *_COPIES,
    *_REMARKS,
    _ENCODINGS,
    f"PRAGMA user_version = {FORMAT}",
)


def damaged(path: Path, what: str) -> LibraryDamaged:
    """The error for a database that isn't what was written."""
    return LibraryDamaged(
        f"the library's database {path} is damaged ({what}): move the folder away and add the documents again, or"
        " restore it from a backup"
    )


def connect(path: Path, upgrade: bool = False, durable: bool = True) -> sqlite3.Connection:
    """A connection in which committed means on the disk, where it is to be `durable`. Raises `LibraryOutdated` for an
    earlier format, unless that is to be brought up to date.

    A published one is read as a file that never changes: without locks, which a file system of several machines may
    lack.
    """
    published = is_published(path.parent)
    place = f"file:{quote(str(path))}?immutable=1" if published else path
    connection = sqlite3.connect(place, timeout=_PATIENCE, isolation_level=None, check_same_thread=False, uri=published)
    # Text on a damaged page may not decode; its checksum then tells, instead of an exception from the driver.
    connection.text_factory = lambda content: content.decode("utf-8", "replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_COLUMN)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        version = _recognise(connection, path)  # first: what follows would change another program's database
        if version in _SINCE and not upgrade:
            raise LibraryOutdated(
                f"the library {path.parent} has format {version} of an earlier version: `dragon library list`, with"
                " `--role cloud` for a cloud's, brings it up to date, as every daemon that opens it"
            )
        if not published:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        connection.execute("PRAGMA secure_delete = ON")  # of what is removed nothing stays in the file
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA cell_size_check = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def is_published(folder: Path) -> bool:
    """Whether nobody changes the library in `folder` any more."""
    return (folder / PUBLISHED).exists()


def intact(content: object, checksum: int) -> bool:
    """Whether a value read back is the one written (CRC-32); a damaged page may even change its type."""
    if isinstance(content, str):
        content = content.encode("utf-8", "replace")
    return isinstance(content, bytes) and zlib.crc32(content) == checksum


def _recognise(connection: sqlite3.Connection, path: Path) -> int:
    """The format of a library's database, 0 for an empty one. Raises `LibraryError` for tables that no library has.

    Triggers and views among them would run with what is written later.
    """
    connection.execute("BEGIN")  # the version and the tables of one moment
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    found = _tables(connection)
    connection.execute("COMMIT")
    if version not in (0, FORMAT, *_SINCE):
        raise LibraryError(
            f"the library {path.parent} has format {version} and this program reads format"
            f" {FORMAT}: use the program that wrote it, or another folder"
        )
    if found != (_library_tables(version) if version else set()):
        raise LibraryError(
            f"the database {path} has tables, views or triggers that no library has, so that another program's it may"
            " be, or be damaged: it is left as it is; use another folder, or restore a backup"
        )
    return int(version)


@cache
def _library_tables(version: int) -> Set[tuple[str, str, str]]:
    """The tables of a library of this format."""
    connection = sqlite3.connect(":memory:")
    try:
        if version in _SINCE:
            connection.execute(_FORMER_FILES)
        for statement in _SCHEMA:
            if statement not in _SINCE.get(version, ()):
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
    """One connection to a library's database; not for several threads at once.

    Raises `LibraryFull`, `LibraryDamaged`, `LibraryBusy` or `LibraryError` in place of SQLite's errors.
    """

    def __init__(self, path: Path, upgrade: bool = False, durable: bool = True) -> None:
        """`upgrade` and `durable` are as for `connect`; raises its `LibraryOutdated`."""
        self.path = path
        with self._translated():
            self._connection = connect(path, upgrade, durable)
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Release the connection; using it afterwards is a `LibraryError`."""
        with self._translated():
            self._connection.close()

    @contextmanager
    def transaction(self, write: bool) -> Iterator[None]:
        """One snapshot for reading, or changes that are made all or not at all and are durable at the end."""
        self.run("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self.run("ROLLBACK")
            raise

    def run(self, statement: str, values: Sequence[object] = ()) -> int:
        """Execute a statement; the id of the row it inserted."""
        with self._translated():
            return self._connection.execute(statement, values).lastrowid or 0

    def run_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Execute a statement for every row."""
        with self._translated():
            self._connection.executemany(statement, rows)

    def all(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Every row of a query."""
        with self._translated():
            return self._connection.execute(statement, values).fetchall()

    def integers(self, statement: str, values: Sequence[object] = ()) -> NDArray[np.int64]:
        """Every row of a query for integers [rows, columns]: of millions, too, without an object for each."""
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
        """Let queries call a function by this name, with an integer."""
        with self._translated():
            self._connection.create_function(name, 1, call, deterministic=True)
        try:
            yield
        finally:
            with self._translated():
                self._connection.create_function(name, 1, None)

    def damaged(self, what: str) -> LibraryDamaged:
        """The error for content that isn't what was written."""
        return damaged(self.path, what)

    def gather(self, patient: bool = True) -> bool:
        """Bring all that was committed into the database's own file; whether nobody's reading kept it from that.
        If this is `patient`, it waits for the end of what others are reading, some seconds at most.
        """
        self.all(f"PRAGMA busy_timeout = {round(_PATIENCE * 1e3) if patient else 0}")
        try:
            ((busy, _, _),) = self.all("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.all(f"PRAGMA busy_timeout = {round(_PATIENCE * 1e3)}")
        return not busy

    def copy(self, path: Path) -> None:
        """Write all that was committed to a database at `path`, in one file without a log. Call inside of a transaction
        for reading, else it begins again whenever somebody writes.

        Signals are handled between two parts of it: a large one takes minutes.
        """
        with self._translated():
            copied = sqlite3.connect(path, isolation_level=None)
            try:
                self._connection.backup(copied, pages=_COPIED, progress=lambda *_: None)
                copied.execute("PRAGMA journal_mode = DELETE")
            finally:
                copied.close()

    def _prepare(self) -> None:
        version = self.all("PRAGMA user_version")[0][0]
        if version == 0:
            with self.transaction(write=True):
                if self.all("PRAGMA user_version")[0][0] == 0:  # else another process was quicker
                    for statement in _SCHEMA:
                        self.run(statement)
        elif version in _SINCE:
            self.run("PRAGMA foreign_keys = OFF")  # or a table that is dropped takes along what belongs to its rows
            with self.transaction(write=True):
                ((present,),) = self.all("PRAGMA user_version")
                for statement in _SINCE.get(present, ()):
                    self.run(statement)
                self.run(f"PRAGMA user_version = {FORMAT}")
            self.run("PRAGMA foreign_keys = ON")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Around SQLite's own work and nothing else."""
        try:
            yield
        except sqlite3.Error as error:
            raise self._explained(error) from error
        # What the driver makes of sizes and texts on a damaged page.
        except (UnicodeDecodeError, MemoryError, OverflowError) as error:
            raise self.damaged(f"it can't be read: {type(error).__name__}") from error

    def _explained(self, error: sqlite3.Error) -> LibraryError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code, without its extension
        folder = self.path.parent
        if code == sqlite3.SQLITE_FULL:
            return LibraryFull(
                f"no space is left on the disk of {folder}: free some and run the command again,"
                " it goes on where it stopped"
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_TOOBIG):
            return self.damaged(str(error))
        if code == sqlite3.SQLITE_BUSY:
            return LibraryBusy(f"another process is changing the library {folder}: try again when it is done")
        return LibraryError(f"the library {folder} can't be used: {error}")
