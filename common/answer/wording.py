"""Words of an answer that stand in the documents which made them likelier.

A document that makes a word likelier need not have it: a question's number is filled in with a number, and the more
surely so behind any document with numbers. What a document is quoted for has to stand there.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Final, Literal

Standing = tuple[int, ...]  # documents that have a word, by their numbers

LEAST: Final = 0.1  # of a token: a document with less of all tokens of a word is not looked at
MOST_MARKS: Final = 30  # on a letter, as in Unicode's Stream-Safe Text Format (UAX #15); no language has as many

# Burmese, Thai, Lao, Khmer, Japanese and Chinese have no spaces between words: each token is a word. The page knows
# the same ranges.
_RANGES: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED: Final = re.compile(f"[{_RANGES}]")
_PARTS: Final = re.compile(rf"\d+(?:[.,:/-]\d+)+|[{_RANGES}]+|[^\W{_RANGES}]+")  # of a word; 1.6 and 12:30 are one

# English ones that texts spell out where answers have digits, or the other way about; "one" is most often no number.
_SPELLED: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBERS: Final = {word: str(number) for number, word in enumerate(_SPELLED, 2)}


def words(pieces: Sequence[str]) -> list[list[int]]:
    """The words of a text, each as the places of its tokens, of which `pieces` are the texts. Tokens without text (the
    first bytes of a character that the next one completes) belong to none.
    """
    found: list[list[int]] = []
    end = " "
    for place, piece in enumerate(pieces):
        if not piece:
            continue
        begins = end.isspace() or piece[0].isspace() or _UNSPACED.match(end) or _UNSPACED.match(piece)
        if begins or not found:
            found.append([])
        found[-1].append(place)
        end = piece[-1]
    return found


def standing(
    pieces: Sequence[str], shares: Sequence[Sequence[float]], texts: Sequence[Callable[[], str]]
) -> list[Standing]:
    """For each token the documents in which its word stands, of those that have a share in the word.

    `pieces` are the texts of the tokens, `shares` [tokens][documents or more] what each document has of a token, and
    `texts` give the documents, which are asked for once, where they are needed.
    """
    found: list[Standing] = [()] * len(pieces)
    read: dict[int, _Text] = {}
    for places in words(pieces):
        rows = [shares[place][: len(texts)] for place in places if place < len(shares)]
        likely = sorted({document for row in rows for document, share in enumerate(row) if share >= LEAST})
        parts = _parts(_comparable("".join(pieces[place] for place in places)))
        if not likely or not parts:
            continue
        for document in likely:
            if document not in read:
                read[document] = _Text(texts[document]())
        have = tuple(document for document in likely if read[document].has(parts))
        for place in places:
            found[place] = have
    return found


class _Text:
    """A document's text, and its words."""

    def __init__(self, text: str) -> None:
        self._text = _comparable(text)
        self._parts = frozenset(_parts(self._text))

    def has(self, parts: Sequence[str]) -> bool:
        return all(part in self._parts or (_UNSPACED.match(part) and part in self._text) for part in parts)


def is_mark(character: str) -> bool:
    """Whether a character is of a word as the letter before it is: accents and the vowels of many scripts, which for
    `re` are none. Variation selectors are not: they make pictures of numbers.
    """
    return unicodedata.category(character) in ("Mn", "Mc") and not "\ufe00" <= character <= "\ufe0f"


def in_normal_form(form: Literal["NFC", "NFKC"], text: str) -> str:
    """`text` in a normal form of Unicode, without the marks of a letter beyond `MOST_MARKS`: Python puts them in order
    in a time that grows with the square of their number, in which no other thread runs.
    """
    marks = "".join(sorted(filter(_is_put_in_order, set(text))))
    if marks:
        text = re.sub(f"([{marks}]{{{MOST_MARKS}}})[{marks}]+", r"\1", text)
    return unicodedata.normalize(form, text)


def _is_put_in_order(character: str) -> bool:
    """Whether normalising may move a character, or the first that it is made of, past others."""
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0


def _parts(comparable: str) -> list[str]:
    marks = {ord(each): "x" for each in set(comparable) if is_mark(each) and not _UNSPACED.match(each)}
    found = (comparable[slice(*part.span())] for part in _PARTS.finditer(comparable.translate(marks)))
    return [_NUMBERS.get(part, part) for part in found]


def _comparable(text: str) -> str:
    return in_normal_form("NFKC", text).casefold()
