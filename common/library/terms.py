"""Texts as terms of the keyword index, and questions as its search terms.

Both go through the same steps. The index has a text's folded words in order; scripts without spaces have pairs of
characters. Terms for identifying combinations follow:

* a number or a code: `kx.88123` for "KX-88123" and "KX88123"
* a name with signs: `c#`, `c++`, `.net`
* a date, in figures or words: `2026-03-14`, its month `2026-03` and its day `--03-14`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from common.answer.languages import MONTH_NAMES, UNSPACED_GRAMMAR
from common.answer.wording import UNSPACED, folded, grammar_of, is_mark

SIGNS: Final = "-.+#"  # in terms beside letters and digits
_SHORT: Final = 2  # letters before an apostrophe, as in "l'homme"
_LONGEST: Final = 64  # characters of a number or code
_MOST_JOINED: Final = 16  # words of a phrase
_YEARS: Final = range(1000, 3000)
_THIS_CENTURY: Final = 70  # two-digit years below belong to this century

_LETTER: Final = rf"[^\W_{UNSPACED}]"  # or a digit
_ASCII_WORD: Final = re.compile("[a-z0-9]+")  # quicker
_WORD_OR_UNSPACED: Final = re.compile(f"([{UNSPACED}]+)|{_LETTER}+")
_UNSPACED: Final = re.compile(f"[{UNSPACED}]+")
# Words joined by signs; between digits a comma is one too.
_RUN: Final = re.compile(rf"[{UNSPACED}]+|{_LETTER}+(?:(?:[-._/:@&'\u2019\\]{{1,3}}|(?<=\d),(?=\d)){_LETTER}+)*")
_DIGIT: Final = re.compile(r"\d")
_SEGMENT: Final = re.compile(r"\d+|\D+")
_OF_VERSION: Final = re.compile(rf"v(?<!{_LETTER}v)(?=\d)")
_POSSESSIVE: Final = re.compile(rf"['\u2019]s(?!{_LETTER})")
_NEGATION: Final = re.compile(r"n['\u2019]t$")
# A number with signs between groups of three digits. A point or a blank counts only before decimals.
_GROUPED: Final = re.compile(
    r"\d(?<![\w.,'\u2019]\d)\d{0,2}(?:(?:,\d{3})+(?![\d,])|(?:['\u2019]\d{3})+(?!\d)|(?:[. ]\d{3})+(?=,\d\d(?!\d)))"
)
_SHARP: Final = re.compile(rf"(?<!{_LETTER})[^\W\d_]+(?:\+\+|#)(?!{_LETTER})")
_DOTTED: Final = re.compile(rf"\.(?<![^\s(\"']\.)[^\W\d_]{_LETTER}*")

_PARTED: Final = re.compile(r"\d[-./]\d")
_YEAR_FIRST: Final = re.compile(r"(?<!\d)(?<!\d[-./])(\d{4})([-./])(\d{1,2})\2(\d{1,2})(?!\d)")
_YEAR_LAST: Final = re.compile(r"(?<!\d)(?<!\d[-./])(\d{1,2})([-./])(\d{1,2})\2(\d{4}|\d\d)(?![-./]?\d)")
_TOGETHER: Final = re.compile(r"((?:19|20)(?<![^\W_]..)\d\d)(\d\d)(\d\d)(?![^\W_])")
_EAST_ASIAN: Final = re.compile(r"(?:(?<!\d)(\d{4}) ?[年년] ?)?(?<!\d)(\d{1,2}) ?[月월](?: ?(\d{1,2}) ?[日号號일])?")
_DAY: Final = re.compile(r"(\d{1,2})(?:st|nd|rd|th|er|re|de|te|a|e|o)?")
_YEAR: Final = re.compile(r"\d{4}")
_IN_DATES: Final = frozenset({"a", "d", "de", "del", "den", "der", "di", "do", "of", "the"})


def indexed(text: str) -> str:
    """The terms of a text, separated by blanks."""
    prepared = _prepared(text)
    words = _words(prepared)
    numbers = _numbers(prepared)
    codes = (run.code for piece in numbers if not piece.isdecimal() for run in _runs(piece))
    return " ".join([*words, *dict.fromkeys([*filter(None, codes), *_signed(prepared), *_dates(numbers, words)])])


def sought(question: str) -> list[str]:
    """A question's search terms, as FTS5 writes them.

    Names and dates come first, then words, phrases and codes in order. Grammatical words count only alone.
    """
    prepared = _prepared(question)
    runs = list(_runs(prepared))
    words = [word for run in runs for word in run.words]
    grammar = grammar_of(word for run in runs if not run.unspaced for word in run.whole_words)
    found: list[str] = []
    before = ""  # a word that the next number may belong to
    for run in runs:
        telling = run.telling(grammar)
        found += [*telling, *run.phrases()] if telling else ()
        if before and run.words[0].isdecimal():
            found += (" ".join((before, *run.words)), ".".join((before, *run.segments)))
        before = run.words[-1] if telling and not run.unspaced and run.words[-1].isalpha() else ""
    terms = [*_signed(prepared), *_dates(_numbers(prepared), words), *(found or words)]
    # A single character begins a pair, or is the last one.
    return [f'"{term}"*' if len(term) == 1 and _UNSPACED.match(term) else f'"{term}"' for term in dict.fromkeys(terms)]


@dataclass(frozen=True, slots=True)
class _Run:
    """Words joined by signs, or text of a script without spaces."""

    text: str
    words: Sequence[str]
    unspaced: bool

    @property
    def segments(self) -> list[str]:
        return [segment for word in self.words for segment in _SEGMENT.findall(word)]

    @property
    def code(self) -> str:
        """Term for the whole code or divided number; empty for others."""
        if self.unspaced or len(self.text) > _LONGEST or not _DIGIT.search(self.text):
            return ""
        segments = self.segments
        return ".".join(segments) if len(segments) > 1 else ""

    @property
    def whole_words(self) -> list[str]:
        if "'" not in self.text and "\u2019" not in self.text:
            return list(self.words)
        return [word for word in self.words if len(word) > _SHORT]

    def telling(self, grammar: frozenset[str]) -> list[str]:
        if self.unspaced:
            return [
                pair for part in _unspaced_grammar().split(self.text) for pair in _pairs(part)[: max(1, len(part) - 1)]
            ]
        return [] if _NEGATION.search(self.text) else [word for word in self.whole_words if word not in grammar]

    def phrases(self) -> list[str]:
        if self.unspaced:
            telling = _telling(self.text)
            starts = [at for at in range(len(self.text) - 2) if telling[at] and telling[at + 2]]
            return [f"{self.words[at]} {self.words[at + 1]}" for at in starts]
        found = [" ".join(self.words)] if 1 < len(self.words) <= _MOST_JOINED else []
        return [*found, " ".join(self.segments), self.code] if self.code else found


_MOST_SHAPES: Final = 2**14  # kept


class _Shape(dict[int, str]):
    """Maps combining marks to letters, since regular expressions do not count them as letters."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        shape = "x" if is_mark(character) and not _UNSPACED.match(character) else character
        if len(self) < _MOST_SHAPES:
            self[code] = shape
        return shape


_SHAPE: Final = _Shape()


def _prepared(text: str) -> str:
    found = _POSSESSIVE.sub("", folded(text))
    if not _DIGIT.search(found):
        return found
    return _GROUPED.sub(lambda number: "".join(_DIGIT.findall(number[0])), _OF_VERSION.sub("v ", found))


def _words(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_WORD.findall(text)
    found: list[str] = []
    for word in _WORD_OR_UNSPACED.finditer(text.translate(_SHAPE)):
        whole = text[slice(*word.span())]
        found += _pairs(whole) if word[1] else [whole]
    return found


def _pairs(text: str) -> list[str]:
    """Pairs of neighbours, and the last character alone."""
    return [text[at : at + 2] for at in range(len(text))]


def _runs(text: str) -> Iterator[_Run]:
    shape = text if text.isascii() else text.translate(_SHAPE)
    for found in _RUN.finditer(shape):
        run = text[slice(*found.span())]
        unspaced = bool(_UNSPACED.match(run))
        yield _Run(run, _words(run), unspaced)


def _numbers(text: str) -> list[str]:
    return [piece.strip("()[]{}<>,;:.\"'*`") for piece in text.split() if not piece.isalpha() and _DIGIT.search(piece)]


def _signed(text: str) -> list[str]:
    sharp = _SHARP.findall(text) if "#" in text or "++" in text else []
    return sharp + _DOTTED.findall(text)


def _telling(text: str) -> list[bool]:
    telling = [True] * len(text)
    for word in _unspaced_grammar().finditer(text):
        telling[slice(*word.span())] = [False] * len(word[0])
    return telling


@cache
def _unspaced_grammar() -> re.Pattern[str]:
    words = sorted(map(folded, UNSPACED_GRAMMAR.split()), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, words)))


# --- dates


def _dates(numbers: Iterable[str], words: Sequence[str]) -> Iterator[str]:
    figures = " ".join(numbers)
    if not figures:
        return
    if _PARTED.search(figures):
        for found in _YEAR_FIRST.finditer(figures):
            yield from _date(found[1], found[3], found[4])
        for found in _YEAR_LAST.finditer(figures):
            first, sign, second, year = found.groups()
            yield from _date(year, second, first)
            if sign != ".":  # the American order
                yield from _date(year, first, second)
    for found in _TOGETHER.finditer(figures):
        yield from _date(*found.groups())
    for found in () if figures.isascii() else _EAST_ASIAN.finditer(figures):
        yield from _date(*found.groups())
    months = _months()
    if not months.keys().isdisjoint(words):
        for at, word in enumerate(words):
            for month in months.get(word, ()):
                yield from _date_around(words, at, month)


def _date_around(words: Sequence[str], at: int, month: str) -> Iterator[str]:
    *_, before = ["", *(word for word in words[max(0, at - 2) : at] if word not in _IN_DATES)]
    first, second, *_ = [*(word for word in words[at + 1 : at + 5] if word not in _IN_DATES), "", ""]
    if _YEAR.fullmatch(before):  # the Hungarian order
        before, first, second = "", first, before
    day = _DAY.fullmatch(before)
    year = first if day else second
    day = day or _DAY.fullmatch(first)
    year = year if day else first
    yield from _date(year if _YEAR.fullmatch(year) else None, month, day[1] if day else None)


def _date(year: str | None, month: str, day: str | None) -> Iterator[str]:
    if not 1 <= int(month) <= 12 or (day and not 1 <= int(day) <= 31):
        return
    if year:
        century = 0 if len(year) > 2 else 2000 if int(year) < _THIS_CENTURY else 1900
        if int(year) + century not in _YEARS:
            return
        if day:
            yield f"{int(year) + century}-{int(month):02}-{int(day):02}"
        yield f"{int(year) + century}-{int(month):02}"
    if day:
        yield f"--{int(month):02}-{int(day):02}"


@cache
def _months() -> Mapping[str, tuple[str, ...]]:
    """Month numbers by folded name; November differs between Croatian and Polish."""
    found: dict[str, tuple[str, ...]] = {}
    for number, names in enumerate(MONTH_NAMES, 1):
        for name in dict.fromkeys(map(folded, names.split())):
            found[name] = (*found.get(name, ()), str(number))
    return found
