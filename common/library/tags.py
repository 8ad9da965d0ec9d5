"""Tags of folders and documents, as they were given when these were added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.library.database import Database


class Tags:
    """Tags of one database, inside its transactions. What lies in a tagged folder, now or later, has its tags."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, root: str, tags: Sequence[str]) -> bool:
        """Give a folder or document these tags in place of those it has; whether they are others."""
        if set(self.of_all().get(root, ())) == set(tags):
            return False
        self.forget(root)
        self._database.run_many("INSERT INTO tags VALUES (?, ?)", [(root, tag) for tag in sorted(set(tags))])
        return True

    def forget(self, root: str) -> None:
        """Take all tags from a folder or document."""
        self._database.run("DELETE FROM tags WHERE root = ?", (root,))

    def of_all(self) -> Mapping[str, tuple[str, ...]]:
        """The tags of every folder and document that was tagged itself, sorted."""
        found: dict[str, tuple[str, ...]] = {}
        for root, tag in self._database.all("SELECT root, tag FROM tags ORDER BY root, tag"):
            found[root] = (*found.get(root, ()), tag)
        return found


def tags_of(path: str, tagged: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """The tags of a document or folder at `path`: its own and those of the folders around it, sorted."""
    # The path itself and everything around it are looked up: there may be many tagged folders.
    found = set(tagged.get(path, ()))
    while (cut := path.rfind("/")) > 0:
        path = path[:cut]
        found.update(tagged.get(path, ()))
    found.update(tagged.get("/", ()))
    return tuple(sorted(found))
