"""Tables and pictures of a run, written into the documents between marks.

A document has `<!-- SUITE: TITLE -->` above a table, where `TITLE` is how the table's own title begins, and
`<!-- end ... -->` below it. What is between them, and what the end says of the run, is the suite's to write: a title
that has more words stands above its table. A table that the run does not have, as its texts were not there, stays as it
is.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from scripts.bench.measuring import Table, code

BEGIN: Final = re.compile(r"<!-- (?P<suite>(?!end\b)[\w-]+): (?P<title>.+?) -->")
_BLOCK: Final = re.compile(BEGIN.pattern + r"(?P<rest>\n(?:(?!<!-- (?!end\b)[\w-]+: ).)*?<!-- end.*?-->)?", re.S)


def published(document: str, record: Mapping[str, Any], made: str, say: Callable[[str], None]) -> str:
    """`document` with the tables of a run's `record`; `made` says when and where, and `say` is told of tables that stay
    as they are.
    """

    def replaced(block: re.Match[str]) -> str:
        suite, title = block["suite"], block["title"]
        if suite != record["suite"]:
            return block[0]
        found = [(name, table) for name, table in record["tables"].items() if name.startswith(title)]
        if len(found) != 1 or not block["rest"]:
            why = "it has no end mark" if len(found) == 1 else f"{len(found)} of this run begin so, and one has to"
            say(f"the table '{title}' stays as it is: {why}")
            return block[0]
        ((name, table),) = found
        caption = "" if name == title else f"*{name}*\n\n"
        return f"<!-- {suite}: {title} -->\n\n{caption}{Table(table['heads'], table['rows'])}\n\n<!-- end: {made} -->"

    return _BLOCK.sub(replaced, document)


def publish(record: Mapping[str, Any], pictures: Path, root: Path, say: Callable[[str], None]) -> list[Path]:
    """Write the run's tables into README and docs below `root`, and its pictures, which lie in the folder `pictures`,
    in place of those that docs have; returns the files that changed. `say` is told of tables that stay.
    """
    began, ended = record["machine"]["commit"], code()
    measured = began if began == ended else f"{began} to {ended}"
    made = f"commit {measured}, {time.strftime('%Y-%m-%d')}, {record['machine']['processor']}"
    texts = {
        path: published(path.read_text("utf-8"), record, made, say)
        for path in (root / "README.md", *sorted((root / "docs").rglob("*.md")))
    }
    changed = [path for path, text in texts.items() if text != path.read_text("utf-8")]
    for path in changed:
        path.write_text(texts[path], "utf-8")
    for name in record["pictures"]:
        picture = root / "docs" / "figures" / name
        if picture.is_file():
            shutil.copyfile(pictures / name, picture)
            changed.append(picture)
    return changed
