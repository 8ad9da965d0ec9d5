"""Files that were passed over because the library has their content under another path; in its database."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from common.library.database import Database
from common.library.places import is_within


class Copies:
    """Copies of one database, inside its transactions. None has the path of a document of the library."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, folder: str, root: str, copies: Iterable[tuple[str, str]], unseen: Collection[str] = ()) -> None:
        """Note which copies there are in `folder`, paths with the contents' SHA-256, in place of those known there, but
        for those in `unseen` places; as documents their root would be `root`.
        """
        self.forget(folder, unseen)
        self._database.run_many(
            "INSERT INTO copies VALUES (?, ?, ?)", [(path, root, sha256) for path, sha256 in copies]
        )

    def of(self, sha256: str) -> list[tuple[str, str]]:
        """Paths and roots of the copies of a content, by path."""
        return self._database.all("SELECT path, root FROM copies WHERE sha256 = ? ORDER BY path", (sha256,))

    def forget_one(self, path: str) -> None:
        """Remove the copy at `path`, if there is one."""
        self._database.run("DELETE FROM copies WHERE path = ?", (path,))

    def forget(self, folder: str, but: Collection[str] = ()) -> None:
        """Remove the copies that are `folder` or lie below it, but for those in one of the folders `but`."""
        below = folder.rstrip(os.sep) + os.sep
        within = "SELECT path FROM copies WHERE path = ? OR substr(path, 1, ?) = ?"
        for (path,) in self._database.all(within, (folder, len(below), below)):
            if not any(is_within(path, place) for place in but):
                self.forget_one(path)
