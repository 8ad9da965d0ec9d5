"""Databases of earlier formats, made of one of the present."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from common.library.store import DATABASE

_NEW = "remarks", "encodings"
_LACKS = {4: (*_NEW, "copies", "removed"), 5: (*_NEW, "copies"), 6: _NEW}  # tables, by format
_FILES = (
    "CREATE TABLE files (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, root TEXT NOT NULL,"
    " title TEXT NOT NULL, sha256 TEXT NOT NULL, size INTEGER NOT NULL, mtime INTEGER NOT NULL,"
    " chunking TEXT NOT NULL, chunks INTEGER NOT NULL)"
)


def put_back(folder: Path, version: int) -> None:
    """Make the database of a library that nobody has open one of an earlier format."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.executescript(
            f"""
            CREATE TABLE present AS SELECT * FROM files;
            DROP TABLE files;
            {_FILES};
            INSERT INTO files SELECT * FROM present;
            DROP TABLE present;
            {"".join(f"DROP TABLE {table};" for table in _LACKS[version])}
            DELETE FROM sqlite_sequence WHERE name = 'files';
            PRAGMA user_version = {version};
            """
        )
