"""Citations of an answer: its words that a document made likelier, by document."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

TOLD_FROM: Final = 1.0  # nats: e times as likely
LEAST_REST: Final = 1e-4  # of a share, which is told with four digits
ENDS: Final = (".", "!", "?", "…")
CITED_FROM: Final = 0.6  # of a part's share: a document that makes it 2.5 times as likely


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
    """Tokens up to the next space.

    Behind a name's first token the model knows the rest by itself. So a word is no document's as far as all of its
    tokens are: that share is the product of theirs, and documents share what is left.
    """

    text: str
    sums: list[float]  # of the tokens' shares, by source
    nobody: float

    def take(self, piece: str, row: Sequence[float]) -> None:
        self.text += piece
        self.nobody *= _rest(row)
        self.sums = [mine + share for mine, share in zip(self.sums, row, strict=True)]

    def shares(self) -> list[float]:
        """Of each source, and last of no document: sum 1."""
        total = sum(self.sums)
        if total <= 0:
            return [*self.sums, 1.0]
        return [*((1.0 - self.nobody) * share / total for share in self.sums), self.nobody]


def citations(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> list[Citation] | None:
    """Citations of an answer, in its order; None where nothing is known of single tokens.

    Of parts that would nearly as likely have been there without the document, nothing is said.
    """
    if not attribution:
        return None
    quotes: dict[int, list[str]] = {}
    for part in parts(attribution, pieces):
        if part.source is not None and part.text.strip() and part.share >= CITED_FROM:
            quotes.setdefault(part.source, []).append(part.text.strip())
    return [Citation(source, tuple(texts)) for source, texts in quotes.items()]


def parts(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> list[Part]:
    """The answer of these `pieces` [tokens] cut between words where its main source changes; `attribution`
    [tokens][sources] is the report's.
    """
    found: list[tuple[int | None, list[tuple[str, float]]]] = []
    for word in _words(attribution, pieces):
        shares = word.shares()
        top = max(range(len(shares)), key=shares.__getitem__)
        source = None if top == len(shares) - 1 else top
        if not found or found[-1][0] != source:
            found.append((source, []))
        found[-1][1].append((word.text, shares[top]))
    return [
        Part(source, sum(share for _, share in words) / len(words), "".join(text for text, _ in words))
        for source, words in found
    ]


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


def _words(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> list[_Word]:
    words: list[_Word] = []
    for row, piece in zip(attribution, pieces, strict=False):
        if not piece:  # the first bytes of a character that the next token completes
            continue
        if words and not piece[0].isspace() and not words[-1].text[-1].isspace():
            words[-1].take(piece, row)
        else:
            words.append(_Word(piece, list(row), _rest(row)))
    return words


def _rest(row: Sequence[float]) -> float:
    """The share of no document."""
    return max(0.0, 1.0 - sum(row))
