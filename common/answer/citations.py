"""Citations of an answer: verbatim spans of passages with the answer's words.

A cited passage contains the word and made it likelier. The second alone is not enough: after "the price is" any
document with numbers makes the model surer of some number.
"""

from __future__ import annotations

import heapq
import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Final

from common.answer.wording import atoms, pieces_of, words

TOLD_FROM: Final = 1.0  # nats: e times as likely
LEAST_REST: Final = 1e-4  # shares have four digits
ENDS: Final = (".", "!", "?", "…")
CITED_FROM: Final = 0.75  # of a word's share: the document makes it four times as likely

MOST_ATOMS: Final = 2**12  # quotable, per passage
MOST_PLACES: Final = 64  # compared, per word and passage
MOST_WORDS: Final = 128  # compared with a passage at a time
SHORTEST_QUOTE: Final = 4  # shorter ones include the next sentence
LONGEST_QUOTE: Final = 200  # characters, unless the words need more
MOST_ALIKE: Final = 32  # words per answer compared by spelling
LEAST_ALIKE: Final = 4  # characters of a name or number compared by spelling
_SENTENCE: Final = re.compile(
    "(?<=\\w\\w\\w[.!?\u2026])[\"')\\]\u00bb\u201d\u2019]*\\s+|(?<=[\u3002\uff01\uff1f])|\\s*\n\\s*"
)
_POSSESSIVE: Final = re.compile("['\u2019]s\\W*$", re.IGNORECASE)
_SIGNS: Final = ".,;:!?()[]\"'\u00ab\u00bb\u201c\u201d\u201e"
# English words of any text, no reason for a quote.
_ANYWHERE: Final = (
    "a an the of in on at to is are was were be been has have had and or by for with from it its as that this"
)
_COMMON: Final = frozenset(_ANYWHERE.split())


@dataclass(frozen=True, slots=True)
class AttributedText:
    """Consecutive words with one main source (None: no document made them likelier)."""

    source: int | None
    share: float  # mean over the words
    text: str


@dataclass(frozen=True, slots=True)
class Quote:
    """A verbatim span of a passage."""

    text: str
    tokens: tuple[tuple[int, int], ...]  # [first, end) of the answer's tokens with words in the span
    differs: tuple[str, ...] = ()  # names and numbers with another spelling in the answer


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage with words of the answer."""

    source: int  # index among the report's sources
    quotes: tuple[Quote, ...]  # in the answer's order


@dataclass(frozen=True, slots=True)
class Influence:
    """A document made a sentence likelier by so many nats."""

    source: int  # index among the report's sources
    nats: float


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with its influential documents, largest first."""

    text: str
    documents: tuple[Influence, ...]


@dataclass(frozen=True, slots=True)
class _Word:
    """A word with its share of each source.

    The model completes a name after its first token. So a word's share of no document is the product of its tokens'
    shares; documents divide the rest.
    """

    text: str
    tokens: tuple[int, int]  # first token, and end
    source: int | None  # of the largest share; None: no document
    share: float  # of the source
    begins: bool = False  # starts a sentence, so a capital is uninformative

    @classmethod
    def of(cls, places: Sequence[int], text: str, rows: Sequence[Sequence[float]], begins: bool) -> _Word:
        sums = [sum(shares) for shares in zip(*rows, strict=True)]
        total, nobody = sum(sums), math.prod(_rest(row) for row in rows)
        tokens = places[0], places[-1] + 1
        if total <= 0:
            return cls(text, tokens, None, 1.0, begins)
        shares = [*((1.0 - nobody) * share / total for share in sums), nobody]
        top = max(range(len(shares)), key=shares.__getitem__)
        return cls(text, tokens, None if top == len(sums) else top, shares[top], begins)


def cited_sources(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> set[int]:
    """The sources with a share large enough to cite."""
    found = _words(attribution, pieces)
    return {word.source for word in found if word.source is not None and word.share >= CITED_FROM}


def citations(
    attribution: Sequence[Sequence[float]], pieces: Sequence[str], passages: Sequence[str | None]
) -> list[Citation] | None:
    """An answer's citations in word order; None without attribution.

    Args:
        attribution: share of each source in each token, [tokens][sources].
        pieces: texts of the tokens.
        passages: texts of the sources; None if unknown.
    """
    if not attribution:
        return None
    read: dict[int, _Passage] = {}
    found: dict[int, list[_Span]] = {}
    for source, same in groupby(_words(attribution, pieces), key=lambda word: word.source):
        text = None if source is None or source >= len(passages) else passages[source]
        if source is None or text is None:
            continue
        if source not in read:
            read[source] = _Passage(text)
        passage, run = read[source], list(same)
        for start in range(0, len(run), MOST_WORDS):
            for span in passage.spans(run[start : start + MOST_WORDS]):
                found.setdefault(source, []).append(span)
    return [Citation(source, read[source].quotes(spans)) for source, spans in found.items()]


@dataclass(slots=True)
class _Span:
    """Characters of a passage with the answer's words, or similar spellings."""

    start: int
    end: int
    words: list[_Word]
    differs: list[str]


class _Passage:
    """A text prepared for comparison."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._borders = sorted({0, len(text), *(match.end() for match in _SENTENCE.finditer(text))})
        self._atoms: list[str] = []
        self._pieces: list[tuple[int, int]] = []  # piece of each atom
        self._places: dict[str, list[int]] = {}  # of each atom
        for start, end in pieces_of(text):
            for atom in atoms(text[start:end]):
                self._places.setdefault(atom, []).append(len(self._atoms))
                self._atoms.append(atom)
                self._pieces.append((start, end))
            if len(self._atoms) >= MOST_ATOMS:
                break

    def spans(self, run: Sequence[_Word]) -> Iterator[_Span]:
        """Yields spans of consecutive words, longest first, then of similar spellings."""
        keys = [_atoms_of(word) for word in run]
        covered = [not key for key in keys]
        taken: list[int] = []  # of earlier matches
        matches = self._matches(run, keys)
        heap = [(-length, first, place) for (first, place), length in matches.items()]
        heapq.heapify(heap)
        while heap:
            negative, first, _ = heap[0]
            same = []
            while heap and heap[0][:2] == (negative, first):
                same.append(heapq.heappop(heap)[2])
            place = min(same, key=lambda each: (min((abs(each - other) for other in taken), default=0), each))
            end = first - negative
            while first < end and covered[first]:
                place, first = place + len(keys[first]), first + 1
            while end > first and covered[end - 1]:
                end -= 1
            end = next((number for number in range(first, end) if covered[number] and keys[number]), end)
            if first == end:
                continue
            if first - end > negative:  # shortened: longer ones come first
                heapq.heappush(heap, (first - end, first, place))
                continue
            covered[first:end] = [True] * (end - first)
            taken.append(place)
            span = self._span(run[first:end], keys[first:end], place)
            if span is not None:
                yield span
        yield from self._differing([word for word, known in zip(run, covered, strict=True) if not known])

    def quotes(self, spans: Sequence[_Span]) -> tuple[Quote, ...]:
        """The sentences around `spans`, merged if overlapping."""
        merged: list[_Span] = []
        for span in sorted(spans, key=lambda each: (each.start, each.end)):
            start, end = self._around(span.start, span.end)
            if merged and start < merged[-1].end:
                last = merged[-1]
                last.end = max(last.end, end)
                last.words += span.words
                last.differs += span.differs
            else:
                merged.append(_Span(start, end, list(span.words), list(span.differs)))
        first = {id(span): min((word.tokens[0] for word in span.words), default=math.inf) for span in merged}
        ordered = sorted(merged, key=lambda span: first[id(span)])
        return tuple(
            Quote(self._text[span.start : span.end].strip(), _ranges(span.words), tuple(dict.fromkeys(span.differs)))
            for span in ordered
        )

    def _matches(self, run: Sequence[_Word], keys: Sequence[Sequence[str]]) -> dict[tuple[int, int], int]:
        """Words of the longest match, by (first word, place of its first atom)."""
        following: dict[int, int] = {}  # matched words from each place on
        longest: dict[tuple[int, int], int] = {}
        for number in range(len(run) - 1, -1, -1):
            key = keys[number]
            if not key:  # signs alone do not interrupt
                continue
            size, lengths = len(key), dict[int, int]()
            for place in self._places.get(key[0], ())[:MOST_PLACES]:
                if self._atoms[place : place + size] == key and self._is_name_too(run[number], place):
                    lengths[place] = self._beyond(number, keys, following.get(place + size, 0))
                    longest[number, place] = lengths[place]
            following = lengths
        return longest

    @staticmethod
    def _beyond(number: int, keys: Sequence[Sequence[str]], matched: int) -> int:
        """Length of a match, including signs before the next `matched` words."""
        if not matched:
            return 1
        return next(place for place in range(number + 1, len(keys)) if keys[place]) - number + matched

    def _is_name_too(self, word: _Word, place: int) -> bool:
        """Whether a capital within a sentence is one in the passage, too."""
        start, end = self._pieces[place]
        return word.begins or not _is_capital(word.text) or _is_capital(self._text[start:end])

    def _span(self, run: Sequence[_Word], keys: Sequence[Sequence[str]], place: int) -> _Span | None:
        """From the first to the last likely word; None if none is worth a quote."""
        likely = [number for number, word in enumerate(run) if keys[number] and word.share >= CITED_FROM]
        if all(_COMMON.issuperset(keys[number]) for number in likely):
            return None
        first, last = likely[0], likely[-1]
        begin = place + sum(map(len, keys[:first]))
        end = begin + sum(map(len, keys[first : last + 1])) - 1
        return _Span(self._pieces[begin][0], self._pieces[end][1], list(run[first : last + 1]), [])

    def _differing(self, run: Iterable[_Word]) -> Iterator[_Span]:
        """Yields names and numbers that differ from `run` by a letter."""
        for word in islice(run, MOST_ALIKE):
            key = "".join(_atoms_of(word))
            number = any(map(str.isdecimal, key))
            if len(key) < LEAST_ALIKE or key in self._places or not (number or _is_capital(word.text)):
                continue
            for atom, places in self._places.items():
                start, end = self._pieces[places[0]]
                named = _is_capital(self._text[start:end]) and not (word.begins and start in self._borders)
                alike = number == any(map(str.isdecimal, atom)) and (number or named)
                if alike and _differ_by_letters(key, atom):
                    text = self._text[start:end].strip(_SIGNS)
                    yield _Span(start, end, [], [text])
                    break

    def _around(self, start: int, end: int) -> tuple[int, int]:
        """The sentence around a span, or whole words within a quote's limit."""
        begin = self._borders[bisect_right(self._borders, start) - 1]
        stop = next(border for border in self._borders if border >= end)
        while stop < len(self._text) and len([*pieces_of(self._text[begin:stop])]) < SHORTEST_QUOTE:  # a heading
            stop = self._borders[bisect_right(self._borders, stop)]
        spare = max(0, LONGEST_QUOTE - (end - start))
        if start - begin > spare // 2:
            begin = _whole_word(self._text, start - spare // 2, start)
        if stop - end > spare - (start - begin):
            stop = max(end, self._text.rfind(" ", end, end + spare - (start - begin)))
        return begin, stop


def _whole_word(text: str, start: int, end: int) -> int:
    space = text.find(" ", start, end)
    return end if space < 0 else space + 1


def _ranges(found: Iterable[_Word]) -> tuple[tuple[int, int], ...]:
    ranges: list[tuple[int, int]] = []
    for first, end in sorted({word.tokens for word in found}):
        if ranges and first <= ranges[-1][1]:
            ranges[-1] = ranges[-1][0], max(end, ranges[-1][1])
        else:
            ranges.append((first, end))
    return tuple(ranges)


def _atoms_of(word: _Word) -> list[str]:
    return atoms(_POSSESSIVE.sub("", word.text))


def _is_capital(text: str) -> bool:
    first = next(filter(str.isalnum, text), "")
    return first.isupper()


def _differ_by_letters(one: str, other: str) -> bool:
    """Whether spellings differ by one character, or long names by two letters."""
    most = 2 if min(len(one), len(other)) >= 2 * LEAST_ALIKE and one.isalpha() else 1
    return 0 < _distance(one, other, most) <= most


def _distance(one: str, other: str, most: int) -> int:
    """Edit distance; `most` + 1 if larger."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        before, row[0] = row[0], number
        for place, theirs in enumerate(other, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (letter != theirs))
        if min(row) > most:
            return most + 1
    return row[-1]


def parts(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> list[AttributedText]:
    """Split the answer where its main source changes; `attribution` is [tokens][sources]."""
    found: list[AttributedText] = []
    for source, same in groupby(_words(attribution, pieces), key=lambda word: word.source):
        these = list(same)
        mean = sum(word.share for word in these) / len(these)
        found.append(AttributedText(source, mean, "".join(word.text for word in these)))
    return found


def sentences(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> list[Sentence]:
    """The answer's sentences; `attribution` [tokens][sources] is empty if unknown.

    A token with share n of no document became 1 / n times as likely; documents divide the logarithm. Those below
    `TOLD_FROM` do not count.
    """
    text, sums = "", list[float]()
    found: list[Sentence] = []
    for row, piece in zip(attribution, pieces, strict=False):
        if text and piece[:1].isspace() and (text.endswith(ENDS) or "\n" in piece):
            found.append(_sentence(text, sums))
            text, sums = "", []
        told = sum(row)
        gained = -math.log(max(_rest(row), LEAST_REST))
        shares = [gained * share / told if told > 0 else 0.0 for share in row]
        text, sums = text + piece, [mine + share for mine, share in zip(sums or [0.0] * len(row), shares, strict=True)]
    if text.strip():
        found.append(_sentence(text, sums))
    return found


def _sentence(text: str, sums: Sequence[float]) -> Sentence:
    told = [Influence(source, round(nats, 2)) for source, nats in enumerate(sums) if nats >= TOLD_FROM]
    return Sentence(text.strip(), tuple(sorted(told, key=lambda each: -each.nats)))


def _words(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> Iterator[_Word]:
    begins = True
    for places in words(pieces[: len(attribution)]):
        text = "".join(pieces[place] for place in places)
        spelled = [place for place in places if any(map(str.isalnum, pieces[place]))]  # not commas
        yield _Word.of(places, text, [attribution[place] for place in spelled or places], begins)
        begins = text.rstrip().endswith((*ENDS, ":")) or "\n" in text or (begins and not atoms(text))


def _rest(row: Sequence[float]) -> float:
    return max(0.0, 1.0 - sum(row))
