"""Content of a document as a reader gives it: text in sections whose places a citation can name."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Unit = Literal["", "line", "row", "heading"]

# One way to match, so that the time is linear in the text.
HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(.+)$", re.MULTILINE)
_BARE = " \t#"  # what may follow a heading


NEEDS_PASSWORD = "it needs a password: save it without one"


class Unreadable(Exception):
    """A document whose text can't be had; `reason` continues the sentence «it was skipped: ...»."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Section:
    """Text with the place of all of it, and the unit by which places within it are told.

    With unit `heading` the text is Markdown.
    """

    text: str
    place: str = ""  # e.g. «page 3»
    unit: Unit = ""

    def places(self, offsets: Sequence[int]) -> list[str]:
        """The places of the characters at `offsets`, which increase, e.g. «sheet Prices, row 7»; empty where nothing
        is known.
        """
        if not self.unit:
            return [self.place] * len(offsets)
        within = self._headings(offsets) if self.unit == "heading" else self._numbers(offsets)
        return [", ".join(filter(None, (self.place, each))) for each in within]

    def _headings(self, offsets: Sequence[int]) -> Iterator[str]:
        """The last heading that begins at an offset or before."""
        found = list(HEADING.finditer(self.text))
        starts = [heading.start() for heading in found]
        for offset in offsets:
            count = bisect_right(starts, offset)
            yield heading_text(found[count - 1]) if count else ""

    def _numbers(self, offsets: Sequence[int]) -> Iterator[str]:
        """Lines are counted from 1, as editors do."""
        line, last = 1, 0
        for offset in offsets:
            line, last = line + self.text.count("\n", last, offset), offset
            yield f"{self.unit} {line}"


@dataclass(frozen=True, slots=True)
class Content:
    """A document's sections in order; `title` is empty where the document itself names none."""

    sections: tuple[Section, ...]
    title: str = ""


def heading_text(found: re.Match[str]) -> str:
    """The words of a match of `HEADING`."""
    return found.group(1).rstrip(_BARE).strip()


def storable(text: str) -> str:
    """`text` without what UTF-8 can't hold, which PDFs and names of files may have, and without NUL characters."""
    return text.encode("utf-8", "replace").decode().replace("\0", "")
