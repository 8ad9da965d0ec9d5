"""Account of what was read when: one entry for each folder that was added, kept in the library's database."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from common.library.database import Database
from common.library.readers.content import storable


@dataclass(frozen=True, slots=True)
class IngestRun:
    """The latest reading of a folder or document. Times are seconds since 1970."""

    root: str
    began: float
    ended: float | None  # None while it goes on, or when it was interrupted
    done: int  # bytes
    total: int
    path: str  # the document at work
    running: bool
    watched: bool
    skipped: tuple[tuple[str, str], ...]  # path and reason of documents that were not taken in


class IngestRuns:
    """Entries of one database; inside its transactions."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, root: str, total: int) -> None:
        """Note that the documents of `root` are being read, `total` bytes of which changed."""
        self._database.run("DELETE FROM skipped WHERE root = ?", (root,))
        self._database.run(
            "INSERT OR REPLACE INTO readings VALUES (?, ?, ?, NULL, 0, ?, '')", (root, os.getpid(), time.time(), total)
        )

    def reached(self, root: str, done: int, path: str) -> None:
        """Note how far it is."""
        self._database.run("UPDATE readings SET done = ?, path = ? WHERE root = ?", (done, path, root))

    def end(self, root: str, skipped: Iterable[tuple[str, str]]) -> None:
        """Note that it is done, and what was skipped: paths with the reasons."""
        self._database.run("UPDATE readings SET ended = ?, done = total, path = '' WHERE root = ?", (time.time(), root))
        rows = [(root, storable(path), reason) for path, reason in skipped]
        self._database.run_many("INSERT INTO skipped VALUES (?, ?, ?)", rows)

    def name_encoding(self, root: str, encoding: str) -> None:
        """Read the texts of a folder or document in this encoding; empty: in what their bytes tell."""
        self._database.run("DELETE FROM encodings WHERE root = ?", (root,))
        if encoding:
            self._database.run("INSERT INTO encodings VALUES (?, ?)", (root, encoding))

    def encodings(self) -> dict[str, str]:
        """The encodings that were named, by the folders and documents."""
        return dict(self._database.all("SELECT root, encoding FROM encodings"))

    def watch(self, root: str) -> None:
        """Let daemons read what changes in `root`, until it is forgotten."""
        self._database.run("INSERT OR IGNORE INTO watched VALUES (?)", (root,))

    def watched(self) -> list[str]:
        """The folders that are watched."""
        return [root for (root,) in self._database.all("SELECT root FROM watched ORDER BY root")]

    def roots(self) -> list[str]:
        """The folders and documents that were added and read, by path."""
        return [root for (root,) in self._database.all("SELECT root FROM readings ORDER BY root")]

    def forget(self, root: str) -> None:
        """Remove the entry of a folder that was removed."""
        for table in ("readings", "skipped", "watched", "encodings"):
            self._database.run(f"DELETE FROM {table} WHERE root = ?", (root,))

    def all(self) -> list[IngestRun]:
        """Every folder's latest reading, by path."""
        watched = set(self.watched())
        skipped: dict[str, list[tuple[str, str]]] = {}
        for root, path, reason in self._database.all("SELECT root, path, reason FROM skipped ORDER BY path"):
            skipped.setdefault(root, []).append((path, reason))
        rows = self._database.all("SELECT root, process, began, ended, done, total, path FROM readings ORDER BY root")
        return [
            IngestRun(
                root,
                began,
                ended,
                done,
                total,
                path,
                ended is None and _lives(process, began),
                root in watched,
                tuple(skipped.get(root, ())),
            )
            for root, process, began, ended, done, total, path in rows
        ]


def _lives(process: int, began: float) -> bool:
    """Whether the process that began to read then is still there."""
    try:
        return bool(psutil.Process(process).create_time() <= began)
    except psutil.Error:
        return False
