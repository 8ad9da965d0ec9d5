"""Tables and pictures of a run, written into the documents between marks.

A document has `<!-- SUITE: TITLE -->` above a table, where `TITLE` is how the table's own title begins, and
`<!-- end ... -->` below it. What is between them, and what the end says of the run, is the suite's to write.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from common.process.version import commit
from scripts.bench.measuring import Table

BEGIN: Final = re.compile(r"<!-- (?P<suite>(?!end\b)[\w-]+): (?P<title>.+?) -->")
_BLOCK: Final = re.compile(BEGIN.pattern + r"\n.*?<!-- end.*?-->", re.S)


class UnknownTable(ValueError):
    """A document asks for a table that the suite does not have."""


def published(document: str, record: Mapping[str, Any], made: str) -> str:
    """`document` with the tables of a run's `record`; `made` says when and where. Raises `UnknownTable`."""

    def replaced(block: re.Match[str]) -> str:
        if block["suite"] != record["suite"]:
            return block[0]
        table = _table(record, block["title"])
        return f"<!-- {block['suite']}: {block['title']} -->\n\n{table}\n\n<!-- end: {made} -->"

    return _BLOCK.sub(replaced, document)


def publish(record: Mapping[str, Any], pictures: Path, root: Path) -> list[Path]:
    """Write the run's tables into README and docs below `root`, and its pictures, which lie in the folder `pictures`,
    in place of those that docs have; returns the files that changed. Raises `UnknownTable`, before anything is written.
    """
    made = f"commit {commit()}, {time.strftime('%Y-%m-%d')}, {record['machine']['processor']}"
    texts = {
        path: published(path.read_text("utf-8"), record, made)
        for path in (root / "README.md", *sorted((root / "docs").glob("*.md")))
    }
    changed = [path for path, text in texts.items() if text != path.read_text("utf-8")]
    for path in changed:
        path.write_text(texts[path], "utf-8")
    for picture in sorted((root / "docs" / "figures").glob(f"{record['suite']}-*.png")):
        if (drawn := pictures / picture.name).is_file():
            shutil.copyfile(drawn, picture)
            changed.append(picture)
    return changed


def _table(record: Mapping[str, Any], title: str) -> Table:
    found = [table for name, table in record["tables"].items() if name.startswith(title)]
    if len(found) != 1:
        raise UnknownTable(f"{len(found)} tables of the suite {record['suite']} begin with '{title}'; one has to")
    return Table(found[0]["heads"], found[0]["rows"])
