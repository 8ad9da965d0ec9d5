"""Document content from a reader: sections of text with citable places."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Final, Literal

from common.answer.wording import in_normal_form

Unit = Literal["", "line", "row", "heading"]

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.+)")
_UNDERLINE = re.compile(r" {0,3}(={3,}|-{3,})[ \t]*")
_NO_HEADING = re.compile(r"[ \t]*([>|#\-*+=]|\d+[.)]|$)| {4}|\t")  # a line that an underline does not make a heading
# Code is between fences. List markers may precede the first fence.
_BEGINS_CODE = re.compile(r" {0,3}(?:(?:[-*+]|\d{1,9}[.)])[ \t]{1,4})*(`{3,}(?=[^`]*$)|~{3,}(?=[^~]*$))")
_ENDS_CODE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*")
_DEEPER = 3  # columns that the closing fence may be indented further
_FRONT = re.compile(r"---[ \t]*\n(?=\S)(?:.*\n){1,256}?(?:---|\.\.\.)[ \t]*(?:\n|$)")
_FRONT_KEY = re.compile(r"^[\w-]+[ \t]*:", re.MULTILINE)


_LIGATURES = {
    "\ufb00": "ff",
    "\ufb01": "fi",
    "\ufb02": "fl",
    "\ufb03": "ffi",
    "\ufb04": "ffl",
    "\ufb05": "st",
    "\ufb06": "st",
}
_UNSEEN = "\u00ad\u200b\u2060\ufeff"  # soft hyphen, zero-width space, word joiner, byte order mark
# Typographic hyphens and spaces: non-breaking or narrow.
_ALIKE = {"\u2010": "-", "\u2011": "-", "\u00a0": " ", "\u2007": " ", "\u202f": " "}
_TYPESET = str.maketrans(_LIGATURES | _ALIKE | dict.fromkeys(_UNSEEN, ""))

_UNTITLED = (
    r"\(?(?:anonymous|unspecified|untitled|unnamed|no title|title|unbenannt|ohne titel|sans titre|sin t[ií]tulo"
    r"|senza titolo|sem t[ií]tulo|naamloos|bez tytułu|bez názvu|无标题|無題)\)?"
)
# Titles set by programs: placeholders, default names, file names and program names.
_UNCHOSEN = re.compile(
    rf"(?:{_UNTITLED}(?: (?:document|dokument|page|presentation|spreadsheet))?"
    r"|(?:document|dokument|presentation|präsentation|présentation|book|mappe|workbook|binder|scan|img)"
    r")[ _-]?\d*(?:\.\w{1,5})?"
    r"|microsoft (?:word|excel|powerpoint)\b.*|(?:file|https?)://\S*|about:blank|"
    r".*\.(?:docx?|xlsx?|pptx?|od[tsp]|rtf|pdf|tex|dvi|indd|qxp|qxd|pages|pub|pmd|html?|md|txt|ps|ai|cdr|wpd|fm|mif)",
    re.IGNORECASE,
)
_MOST_DIGITS = 10  # of a number that is parsed

MOST_TEXT: Final = 20_000_000  # characters of a document
MOST_REMARKS: Final = 20  # of a document
LONGEST_REMARK: Final = 300  # characters

NEEDS_PASSWORD = "it needs a password: save it without one"
TOO_MUCH_TEXT = f"it has too much text: at most {MOST_TEXT:,} characters are read"


class Unreadable(Exception):
    """A document without readable text; `reason` continues the sentence «it was skipped: ...»."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class TooMuchText(Unreadable):
    """A document with more than `MOST_TEXT` characters."""

    def __init__(self) -> None:
        super().__init__(TOO_MUCH_TEXT)


def margin_lines(lines: Iterable[str]) -> list[str]:
    """Distinct header or footer lines with a letter."""
    stripped = (line.strip() for line in lines)
    return list(dict.fromkeys(line for line in stripped if any(map(str.isalpha, line))))


def parse_whole_number(said: str, default: int) -> int:
    """Parses a whole number; `default` if there is none or it is too long."""
    return int(said) if said.isdecimal() and len(said) < _MOST_DIGITS else default


@dataclass(frozen=True, slots=True)
class Section:
    """Text with its place, and the unit of places within it.

    With unit `heading` the text is Markdown.
    """

    text: str
    place: str = ""  # e.g. «page 3»
    unit: Unit = ""

    def places(self, offsets: Sequence[int]) -> list[str]:
        """Places of the characters at increasing `offsets`, e.g. «sheet Prices, row 7».

        Empty where unknown.
        """
        if not self.unit:
            return [self.place] * len(offsets)
        within = self._headings(offsets) if self.unit == "heading" else self._numbers(offsets)
        return [", ".join(filter(None, (self.place, each))) for each in within]

    def _headings(self, offsets: Sequence[int]) -> Iterator[str]:
        found = list(headings(self.text))
        for offset in offsets:
            count = bisect_right(found, offset, key=itemgetter(0))
            yield found[count - 1][1] if count else ""

    def _numbers(self, offsets: Sequence[int]) -> Iterator[str]:
        """Counts lines from 1, as editors do."""
        line, last = 1, 0
        for offset in offsets:
            line, last = line + self.text.count("\n", last, offset), offset
            yield f"{self.unit} {line}"


@dataclass(frozen=True, slots=True)
class Content:
    """A document's sections in order; `title` is empty if the document has none.

    `remarks` are short sentences for the user about omitted content and guesses.
    """

    sections: tuple[Section, ...]
    title: str = ""
    remarks: tuple[str, ...] = ()


def unread(count: int, thing: str) -> tuple[str, ...]:
    """Remark on `count` unread things; empty for 0."""
    if not count:
        return ()
    return (f"1 {thing} is not read" if count == 1 else f"{count} {thing}s are not read",)


def headings(markdown: str) -> Iterator[tuple[int, str]]:
    """Offsets and words of Markdown headings, `#` or underlined.

    Code and front matter have none.
    """
    front = front_matter(markdown)
    start, above = len(front), ""
    lines = markdown[start:].split("\n")
    bare = True  # whether the line two above is blank
    for line, is_text in zip(lines, outside_code(lines), strict=True):
        found = _HEADING.fullmatch(line) if is_text else None
        if found:
            yield start, _words_of_heading(found[1].rstrip())
        underlined = is_text and bare and bool(_UNDERLINE.fullmatch(line)) and not _NO_HEADING.match(above)
        if underlined:
            yield start - len(above) - 1, above.strip()
        bare = not above.strip()
        above = line if is_text and not found and not underlined else ""
        start += len(line) + 1


def _words_of_heading(text: str) -> str:
    words = text.rstrip("#")
    return text.strip() if words and words[-1] not in " \t" else words.strip()


def outside_code(lines: Iterable[str]) -> Iterator[bool]:
    """For each line of Markdown, whether it is outside fenced code.

    A list item's code also ends at a line left of the item after a blank one.
    """
    fence, deepest, item, above = "", 0, 0, ""
    for line in lines:
        ends = _ENDS_CODE.fullmatch(line) if fence else None
        if fence and not ends and line.strip() and _column(line, len(line) - len(line.lstrip(" \t"))) < item:
            fence, item = fence if above.strip() else "", 0
        begins = None if fence else _BEGINS_CODE.match(line)
        yield not fence and not begins
        if begins:
            column = _column(line, begins.start(1))
            fence, deepest, item = begins[1], column + _DEEPER, column if line[: begins.start(1)].strip() else 0
        elif ends and ends[1].startswith(fence) and _column(line, ends.start(1)) <= deepest:
            fence = ""
        above = line


def _column(line: str, at: int) -> int:
    return len(line[:at].expandtabs(4))


def front_matter(markdown: str) -> str:
    """Front matter of a text, between lines of dashes; empty if there is none."""
    found = _FRONT.match(markdown)
    return found[0] if found and _FRONT_KEY.search(found[0]) else ""


def front_title(markdown: str) -> str:
    """Title in the front matter; empty if there is none."""
    lines = front_matter(markdown).split("\n")
    for line, below in pairwise(lines):
        key, _, value = line.partition(":")
        if key.rstrip().lower() == "title":
            stated = below if value.strip().startswith(("|", ">")) else value  # the value may begin on the next line
            return stated.strip().strip("\"'").strip()
    return ""


def as_typed(text: str) -> str:
    """Text as people type it: plain hyphens and spaces, composed accents, no ligatures.

    Invisible characters such as soft hyphens are removed. Each of these would change a word for search and models.
    """
    return text if text.isascii() else in_normal_form("NFC", text.translate(_TYPESET))


def in_lines(text: str) -> str:
    """Text with Unix line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def storable(text: str) -> str:
    """Text without NUL and characters invalid in UTF-8.

    PDFs and file names may have these.
    """
    return text.encode("utf-8", "replace").decode().replace("\0", "")


def is_chosen(title: str) -> bool:
    """Whether a person chose the title, not a program."""
    return bool(title) and not _UNCHOSEN.fullmatch(title.strip())
