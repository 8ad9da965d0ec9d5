"""Tables that the documents have between marks."""

from __future__ import annotations

from collections.abc import Iterator

from scripts.bench.publish import BEGIN
from scripts.daemons import ROOT


def marked() -> Iterator[tuple[str, str, list[str]]]:
    """Suite, beginning of the title, and heads of every one."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text("utf-8")
        for mark in BEGIN.finditer(text):
            line = next(line for line in text[mark.end() :].splitlines() if line.startswith("|"))
            yield mark["suite"], mark["title"], [head.strip() for head in line[1:-1].split("|")]


def heads(suite: str, title: str) -> list[str]:
    """Heads of the table of `suite` under this title, which several documents may have."""
    (found,) = {tuple(heads) for name, begins, heads in marked() if (name, begins) == (suite, title)}
    return list(found)
