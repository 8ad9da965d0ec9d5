"""Selects the documents and added folders for `Library.remove` to forget."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from common.library.errors import PathError
from common.library.places import is_gone, is_within, places
from common.library.readers.content import storable
from common.library.store import FileRecord
from proto.patterns import normalised

Named = Sequence[str | Path] | Literal["all"]


@dataclass(frozen=True, slots=True)
class Removal:
    """Documents, added roots, and copies of documents to forget."""

    files: list[FileRecord]
    roots: list[str]
    copies: list[FileRecord]


def removal(
    records: Sequence[FileRecord],
    roots: Collection[str],
    watched: Collection[str],
    paths: Named,
    but: Collection[str] = (),
) -> Removal:
    """Chooses from `records`, see `Store.paths`, and added `roots`, except folders in `but`.

    A document in a `watched` folder would come back. If the path names an added root, the root is forgotten and such
    documents stay; otherwise they raise `PathError`. So does an empty path.
    """
    shown = {record.content: record for record in reversed(records)}
    files = sorted(shown.values(), key=lambda file: file.path)
    copies = [record for record in records if record is not shown[record.content]]
    if paths == "all":
        return Removal(files, list(roots), copies)
    if any(not str(path) for path in paths):
        raise PathError("the path is empty: name documents as `dragon library list` shows them, or where they are")
    given = [PathArgument(path) for path in dict.fromkeys(paths)]
    gone = {each: [root for root in roots if each.holds(root) and root not in but] for each in given}
    left = set(watched).difference(*gone.values())
    chosen: dict[int, FileRecord] = {}
    for path in given:
        named = path.documents(files)
        kept = {file.id: root for file in named if (root := _coming_back(file, left)) is not None}
        if kept and not gone[path]:
            (root, *_) = kept.values()
            raise PathError(f"{root} is watched: remove the file there, or stop watching the folder")
        chosen |= {file.id: file for file in named if file.id not in kept}
    return Removal(
        list(chosen.values()),
        [root for each in gone.values() for root in each],
        [copy for copy in copies if any(path.takes(copy, but) for path in given)],
    )


def named_uploads(path: str, files: Sequence[FileRecord], uploads: Path) -> list[str]:
    """Files in `uploads` named by a path; none for the folder or a parent.

    A document elsewhere takes precedence if the path leads to it on disk.
    """
    folder = storable(str(uploads.resolve()))
    given = PathArgument(path)
    if not path or given.holds(folder):
        return []
    named = given.documents(files)
    found = [file.path for file in named if is_within(file.path, folder)]
    there = uploads.resolve() / path
    if not named and there.parent == uploads.resolve() and there.is_file():
        found = [str(there)]
    return found


class PathArgument:
    """A given path, resolved once for all comparisons."""

    def __init__(self, path: str | Path) -> None:
        self.places = places(path)
        self._normalised = tuple(map(normalised, self.places))
        self._relative = normalised(os.path.normpath(path))

    def documents(self, files: Sequence[FileRecord]) -> list[FileRecord]:
        """Named documents; the exact one if others differ only in accents."""
        return [file for file in files if file.path in self.places] or [file for file in files if self.names(file)]

    def names(self, file: FileRecord) -> bool:
        """Whether it names a document or its folder, on disk or as listed."""
        return self.holds(file.path) or is_within(normalised(file.relative_path), self._relative)

    def takes(self, file: FileRecord, but: Collection[str]) -> bool:
        """Whether it names a file outside the `but` folders within the path."""
        return self.names(file) and not any(is_within(file.path, folder) for folder in but if self.holds(folder))

    def holds(self, known: str) -> bool:
        """Whether an absolute path of the library is the named one or below it."""
        known = normalised(known)
        return any(is_within(known, place) for place in self._normalised)


def _coming_back(file: FileRecord, watched: Collection[str]) -> str | None:
    roots = (root for root in watched if is_within(file.path, root))
    return next((root for root in roots if is_gone(root) or not is_gone(file.path)), None)
