"""Record of readings: one entry per added folder, in the library's database."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from common.library.database import Database
from common.library.readers.content import storable

_COLUMNS = "root, process, began, ended, done, total, path, place"


@dataclass(frozen=True, slots=True)
class IngestRun:
    """Latest reading of a folder or document; times are seconds since 1970."""

    root: str
    began: float
    ended: float | None  # None while it is running or after an interruption
    done: int  # bytes
    total: int
    path: str  # the document being read
    place: str  # in it, e.g. «page 3 of 20»; empty where unknown
    running: bool
    watched: bool
    encoding: str  # that the user named for its texts; empty detects it
    skipped: tuple[tuple[str, str], ...]  # path and reason of documents not taken in


class IngestRuns:
    """Entries of one database, inside its transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, root: str, total: int) -> None:
        """Records the start of a reading of `root` with `total` changed bytes."""
        self._database.run("DELETE FROM skipped WHERE root = ?", (root,))
        self._database.run(
            "INSERT OR REPLACE INTO readings VALUES (?, ?, ?, NULL, 0, ?, '', '')",
            (root, os.getpid(), time.time(), total),
        )

    def reached(self, root: str, done: int, path: str, place: str) -> None:
        """Records progress."""
        values = done, storable(path), place, root
        self._database.run("UPDATE readings SET done = ?, path = ?, place = ? WHERE root = ?", values)

    def end(self, root: str, skipped: Iterable[tuple[str, str]]) -> None:
        """Records the end, and the skipped paths with reasons."""
        statement = "UPDATE readings SET ended = ?, done = total, path = '', place = '' WHERE root = ?"
        self._database.run(statement, (time.time(), root))
        rows = [(root, storable(path), reason) for path, reason in skipped]
        self._database.run_many("INSERT INTO skipped VALUES (?, ?, ?)", rows)

    def name_encoding(self, root: str, encoding: str) -> None:
        """Sets the encoding of a folder's or document's texts; empty detects it."""
        self._database.run("DELETE FROM encodings WHERE root = ?", (root,))
        if encoding:
            self._database.run("INSERT INTO encodings VALUES (?, ?)", (root, encoding))

    def encodings(self) -> dict[str, str]:
        """The named encodings by folder or document."""
        return dict(self._database.all("SELECT root, encoding FROM encodings"))

    def watch(self, root: str) -> None:
        """Lets daemons read changes in `root` until it is forgotten."""
        self._database.run("INSERT OR IGNORE INTO watched VALUES (?)", (root,))

    def watched(self) -> list[str]:
        return [root for (root,) in self._database.all("SELECT root FROM watched ORDER BY root")]

    def roots(self) -> list[str]:
        """The added folders and documents, by path."""
        return [root for (root,) in self._database.all("SELECT root FROM readings ORDER BY root")]

    def forget(self, root: str) -> None:
        """Removes all entries of a folder."""
        for table in ("readings", "skipped", "watched", "encodings"):
            self._database.run(f"DELETE FROM {table} WHERE root = ?", (root,))

    def all(self) -> list[IngestRun]:
        """Every folder's latest reading, by path."""
        watched, encodings = set(self.watched()), self.encodings()
        skipped: dict[str, list[tuple[str, str]]] = {}
        for root, path, reason in self._database.all("SELECT root, path, reason FROM skipped ORDER BY path"):
            skipped.setdefault(root, []).append((path, reason))
        rows = self._database.all(f"SELECT {_COLUMNS} FROM readings ORDER BY root")
        return [
            IngestRun(
                root,
                began,
                ended,
                done,
                total,
                path,
                place,
                ended is None and _lives(process, began),
                root in watched,
                encodings.get(root, ""),
                tuple(skipped.get(root, ())),
            )
            for root, process, began, ended, done, total, path, place in rows
        ]


def _lives(process: int, began: float) -> bool:
    """Whether the process of a reading still exists; its id may be reused."""
    try:
        return bool(psutil.Process(process).create_time() <= began)
    except psutil.Error:
        return False
