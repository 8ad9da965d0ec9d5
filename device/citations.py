"""Citations of an answer: its words that a document made likelier and that stand there, by document."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from common.answer.wording import Standing, words

TOLD_FROM: Final = 1.0  # nats: e times as likely
LEAST_REST: Final = 1e-4  # of a share, which is told with four digits
ENDS: Final = (".", "!", "?", "…")
CITED_FROM: Final = 0.75  # of a word's share: a document that makes it four times as likely


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive words whose largest share comes from the same source (None: what no document made likelier)."""

    source: int | None
    share: float  # mean of that source's share over the part's words
    text: str


@dataclass(frozen=True, slots=True)
class Citation:
    """A document's words in an answer."""

    source: int  # its place among the report's sources
    quotes: tuple[str, ...]  # from the answer, in its order


@dataclass(frozen=True, slots=True)
class Told:
    """Influence of a document on a sentence: by how many nats it made it likelier."""

    source: int  # its place among the report's sources
    nats: float


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of an answer, with the documents that made a difference to it, the largest first."""

    text: str
    documents: tuple[Told, ...]


@dataclass(slots=True)
class _Word:
    """A word with its share of each source.

    Behind a name's first token the model knows the rest by itself. So a word is no document's as far as all of its
    tokens are: that share is the product of theirs, and documents share what is left.
    """

    text: str
    source: int | None  # which has the largest share; None: no document has
    share: float  # of it
    stands: bool = False  # in that source

    @classmethod
    def of(cls, pieces: Sequence[str], rows: Sequence[Sequence[float]], standing: Standing) -> _Word:
        sums = [sum(shares) for shares in zip(*rows, strict=True)]
        total, nobody = sum(sums), math.prod(_rest(row) for row in rows)
        if total <= 0:
            return cls("".join(pieces), None, 1.0)
        shares = [*((1.0 - nobody) * share / total for share in sums), nobody]
        top = max(range(len(shares)), key=shares.__getitem__)
        source = None if top == len(sums) else top
        return cls("".join(pieces), source, shares[top], source in standing)


def citations(
    attribution: Sequence[Sequence[float]], pieces: Sequence[str], standing: Sequence[Standing]
) -> list[Citation] | None:
    """Citations of an answer, in its order; None where nothing is known of single tokens.

    A quote begins and ends with a word that its document made likelier and has. Between them may be others, but no
    number that the document lacks. Where a document made words likelier and has none of them, nothing is said: a number
    that is invented in the place of the document's is the model's own.
    """
    if not attribution:
        return None
    quotes: dict[int, list[str]] = {}
    for source, same in groupby(_words(attribution, pieces, standing), key=lambda word: word.source):
        if source is not None:
            for quote in _quotes(list(same)):
                quotes.setdefault(source, []).append(quote)
    return [Citation(source, tuple(texts)) for source, texts in quotes.items()]


def _quotes(same: Sequence[_Word]) -> Iterator[str]:
    """The quotes in consecutive words of one source."""
    for invented, run in groupby(same, key=lambda word: not word.stands and any(map(str.isdecimal, word.text))):
        these = list(run)
        ends = [place for place, word in enumerate(these) if word.stands and word.share >= CITED_FROM]
        if ends and not invented:
            yield "".join(word.text for word in these[ends[0] : ends[-1] + 1]).strip()


def parts(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> list[Part]:
    """The answer of these `pieces` [tokens] cut between words where its main source changes; `attribution`
    [tokens][sources] is the report's.
    """
    found: list[Part] = []
    for source, same in groupby(_words(attribution, pieces), key=lambda word: word.source):
        these = list(same)
        mean = sum(word.share for word in these) / len(these)
        found.append(Part(source, mean, "".join(word.text for word in these)))
    return found


def sentences(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> list[Sentence]:
    """The answer's sentences; `attribution` [tokens][sources] is the report's, empty where nothing is known.

    A token of which the share n is no document's was made 1 / n times as likely by all of them, and its logarithm is
    shared out as the rest is. Documents below `TOLD_FROM` made no difference.
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
    told = [Told(source, round(nats, 2)) for source, nats in enumerate(sums) if nats >= TOLD_FROM]
    return Sentence(text.strip(), tuple(sorted(told, key=lambda each: -each.nats)))


def _words(
    attribution: Sequence[Sequence[float]], pieces: Sequence[str], standing: Sequence[Standing] = ()
) -> Iterator[_Word]:
    for places in words(pieces[: len(attribution)]):
        have = {source for place in places if place < len(standing) for source in standing[place]}
        texts, rows = [pieces[place] for place in places], [attribution[place] for place in places]
        yield _Word.of(texts, rows, tuple(have))


def _rest(row: Sequence[float]) -> float:
    """The share of no document."""
    return max(0.0, 1.0 - sum(row))
