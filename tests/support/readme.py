"""Commands that README.md tells its readers to run, by the heading that they stand under."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import cache

from scripts.daemons import ROOT

# First words by which an indented block is one of commands, and not of what something prints.
PROGRAMS = re.compile(
    r"(apt-get|brew|cd|chmod|cp|curl|docker|dragon|export|git|make|mkdir|npm|pip|pipx|podman|python3?|source|ssh|sudo"
    r"|systemctl|uvx?)\b"
)
# How the block begins that is none: what the demonstration prints.
SHOWN = ("1. How many gears",)
ELSEWHERE = "Without a checkout"  # the section that tests/daemons/test_wheel.py runs


@cache
def text() -> str:
    return (ROOT / "README.md").read_text("utf-8")


@cache
def commands() -> dict[str, list[str]]:
    """Lines of every section's blocks of commands, comments included. Raises `ValueError` for what is neither."""
    found: dict[str, list[str]] = defaultdict(list)
    for heading, body in _sections(re.sub(r"^```.*?^```", "", text(), flags=re.M | re.S)):
        for block in re.findall(r"(?:^ {4}.*\n)+", body, re.M):
            lines = [line.strip() for line in block.splitlines()]
            known = [PROGRAMS.match(line) is not None for line in lines]
            if not all(known) and (any(known) or not lines[0].startswith(SHOWN)):
                raise ValueError(f"nothing runs some of these lines:\n{block}")
            found[heading] += lines if all(known) else []
    return {heading: lines for heading, lines in found.items() if lines}


@cache
def programs() -> dict[str, str]:
    """The Python of every section that has some. Raises `ValueError` for other languages, which nothing runs."""
    found: dict[str, str] = {}
    for heading, body in _sections(text()):
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```", body, re.M | re.S):
            if language != "python" or heading in found:
                raise ValueError(f"nothing runs this block of {heading!r}:\n{block}")
            found[heading] = block
    return found


def bare(line: str) -> str:
    """A line without its comment."""
    return re.sub(r"\s+# .*", "", line)


def _sections(document: str) -> list[tuple[str, str]]:
    parts = re.split(r"^#+ (.+)\n", document, flags=re.M)
    return list(zip(parts[1::2], parts[2::2], strict=True))
