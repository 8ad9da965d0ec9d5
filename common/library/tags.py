"""User-given tags of folders and documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from common.library.database import Database


class Tags:
    """Tags of one database, inside its transactions; contents inherit their folder's tags."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, root: str, tags: Sequence[str]) -> bool:
        """Replaces the tags of a folder or document; False if they are unchanged."""
        if set(self.of_all().get(root, ())) == set(tags):
            return False
        self.forget(root)
        self._database.run_many("INSERT INTO tags VALUES (?, ?)", [(root, tag) for tag in sorted(set(tags))])
        return True

    def forget(self, root: str) -> None:
        self._database.run("DELETE FROM tags WHERE root = ?", (root,))

    def of_all(self) -> Mapping[str, tuple[str, ...]]:
        """Sorted own tags of folders and documents."""
        found: dict[str, tuple[str, ...]] = {}
        for root, tag in self._database.all("SELECT root, tag FROM tags ORDER BY root, tag"):
            found[root] = (*found.get(root, ()), tag)
        return found


def tags_of(path: str, tagged: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Sorted tags of a path: its own and its parent folders'."""
    # Looks up each parent, since there may be many tagged folders.
    found = set(tagged.get(path, ()))
    while (cut := path.rfind("/")) > 0:
        path = path[:cut]
        found.update(tagged.get(path, ()))
    found.update(tagged.get("/", ()))
    return tuple(sorted(found))
