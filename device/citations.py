"""Citations of an answer: its words that a document made likelier, by document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

CITED_FROM: Final = 0.6  # of a part's share: a document that makes it 2.5 times as likely


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive words whose largest share comes from the same source (None: what no document made likelier)."""

    source: int | None
    share: float  # mean of that source's share over the part's tokens
    text: str


@dataclass(frozen=True, slots=True)
class Citation:
    """A document's words in an answer."""

    source: int  # its place among the report's sources
    quotes: tuple[str, ...]  # from the answer, in its order


@dataclass(slots=True)
class _Word:
    """Tokens up to the next space, and the sum of their shares, [sources] and last that of no document."""

    text: str
    shares: list[float]
    tokens: int = 1

    def take(self, piece: str, shares: Sequence[float]) -> None:
        self.text += piece
        self.tokens += 1
        self.shares = [mine + each for mine, each in zip(self.shares, shares, strict=True)]


def citations(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> list[Citation] | None:
    """What documents said of an answer, in its order; None where nothing is known of single tokens.

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
    found: list[tuple[int | None, list[_Word]]] = []
    for word in _words(attribution, pieces):
        top = max(range(len(word.shares)), key=word.shares.__getitem__)
        source = None if top == len(word.shares) - 1 else top
        if not found or found[-1][0] != source:
            found.append((source, []))
        found[-1][1].append(word)
    return [
        Part(
            source,
            sum(word.shares[-1 if source is None else source] for word in words) / sum(word.tokens for word in words),
            "".join(word.text for word in words),
        )
        for source, words in found
    ]


def _words(attribution: Sequence[Sequence[float]], pieces: Sequence[str]) -> list[_Word]:
    words: list[_Word] = []
    for row, piece in zip(attribution, pieces, strict=False):
        if not piece:  # the first bytes of a character that the next token completes
            continue
        shares = [*row, max(0.0, 1.0 - sum(row))]
        if words and not piece[0].isspace() and not words[-1].text[-1].isspace():
            words[-1].take(piece, shares)
        else:
            words.append(_Word(piece, shares))
    return words
