"""Articles of WikiText, by title."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_TITLE = re.compile(r"^ = ([^=\n]+) = $", re.MULTILINE)


def articles(folder: Path) -> Iterator[tuple[str, str]]:
    """(title, text) of every article in the text files of `folder`."""
    for path in sorted(folder.glob("*.txt")):
        parts = _TITLE.split(path.read_text("utf-8"))
        yield from zip(parts[1::2], parts[2::2], strict=True)
