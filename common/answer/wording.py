"""Comparable words of answers and documents, without case, accents and signs."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, Literal

from common.answer.languages import ALSO_ENGLISH, GRAMMAR_WORDS

MOST_MARKS: Final = 30  # per letter, as in Unicode's Stream-Safe Text Format (UAX #15); more than any language

# Scripts without spaces (Burmese, Thai, Lao, Khmer, Japanese, Chinese): each token is a word. The page has these
# ranges, too.
UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
SHORTEST_NAME: Final = 5  # characters of an identifying word with digits, above years and amounts
SHORTEST_WORD: Final = 4  # characters of other words
_UNSPACED: Final = re.compile(f"[{UNSPACED}]")
_PIECE: Final = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
_PARTS: Final = re.compile(rf"\d+(?:[.,:/-]\d+)+|[{UNSPACED}]+|[^\W{UNSPACED}]+")  # 1.6 and 12:30 are one

_ENGLISH: Final = "english"
_ALSO_ENGLISH: Final = frozenset(ALSO_ENGLISH.split())
# Combining classes: Hebrew, Arabic and Syriac; any letter.
_VOWEL_SIGNS: Final = range(10, 37)
_ABOVE: Final = 200
_MOST_FOLDED: Final = 2**15  # cached
_LETTERS: Final = {
    "æ": "ae",
    "đ": "d",
    "ð": "d",
    "ħ": "h",
    "\u0131": "i",
    "ł": "l",
    "ø": "o",
    "œ": "oe",
    "þ": "th",
    "ـ": "",
}

# Spelled or in digits; "one" is usually no number.
_SPELLED: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBERS: Final = {word: str(number) for number, word in enumerate(_SPELLED, 2)}


class _Folding(dict[int, str]):
    """Caches each character's folded form."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        digit = unicodedata.decimal(character, None)
        letters = unicodedata.normalize("NFKD", character.casefold()) if digit is None else str(digit)
        kept = "".join(each for each in letters if not _is_folded(each))
        found = unicodedata.normalize("NFC", _LETTERS.get(kept, kept))
        if len(self) < _MOST_FOLDED:
            self[code] = found
        return found


def _is_folded(character: str) -> bool:
    """Whether it is an accent, a Hebrew or Arabic vowel sign, or invisible."""
    combining = unicodedata.combining(character)
    unseen = unicodedata.category(character) == "Cf" or "\ufe00" <= character <= "\ufe0f"
    return combining >= _ABOVE or combining in _VOWEL_SIGNS or unseen


_FOLDING: Final = _Folding()


def words(pieces: Sequence[str]) -> list[list[int]]:
    """Token indices of each word; `pieces` are the tokens' texts.

    Tokens without text (first bytes of a character) are left out.
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


def pieces_of(text: str) -> Iterator[tuple[int, int]]:
    """Yields word spans with signs; signs of unspaced scripts are separate."""
    return (match.span() for match in _PIECE.finditer(text))


def atoms(text: str) -> list[str]:
    """Comparable parts, e.g. "6" and "gear" of "Six-gear,"; empty for signs."""
    comparable = in_normal_form("NFKC", text).casefold()
    marks = {ord(each): "x" for each in set(comparable) if is_mark(each) and not _UNSPACED.match(each)}
    found: list[str] = []
    for part in _PARTS.finditer(comparable.translate(marks)):
        piece = comparable[slice(*part.span())]
        found += piece if _UNSPACED.match(piece) else [_NUMBERS.get(piece, piece)]
    return found


def mark_named_texts(question: str, texts: Sequence[str]) -> list[bool]:
    """Whether each retrieved text has an identifying word of the question.

    Such a word has digits (a date, version, order number), or most texts lack it. Question and grammar words do not
    count.
    """
    found = [[atom for start, end in pieces_of(text) for atom in atoms(text[start:end])] for text in texts]
    have = [set(each) for each in found]
    marks = [False] * len(texts)
    grammar = grammar_of(atoms(question))
    for start, end in pieces_of(question):
        key = atoms(question[start:end])
        digits = any(map(str.isdecimal, "".join(key)))
        if digits and sum(map(len, key)) >= SHORTEST_NAME:
            stand = [_contains(each, key) for each in found]
            marks = [one or other for one, other in zip(marks, stand, strict=True)]
        for atom in key:
            stand = [atom in each for each in have]
            is_long = len(atom) >= SHORTEST_WORD or _UNSPACED.match(atom)
            tells = is_long and not digits and folded(atom) not in grammar
            if tells and 0 < sum(stand) <= max(1, len(texts) // 3):
                marks = [one or other for one, other in zip(marks, stand, strict=True)]
    return marks


def _contains(found: Sequence[str], key: Sequence[str]) -> bool:
    return any(found[place : place + len(key)] == key for place in range(len(found)))


def grammar_of(words: Iterable[str]) -> frozenset[str]:
    """Folded grammar words of the main language of `words`.

    Ties prefer English, else join. A single word with an English meaning identifies no other language.
    """
    parts, known = {folded(word) for word in words}, _grammar()
    found = {language: len(grammar & parts) for language, grammar in known.items()}
    for language, grammar in known.items():
        if found[language] == 1 and language != _ENGLISH and grammar & parts <= _ALSO_ENGLISH:
            found[language] = 0
    most = max(found.values())
    if found[_ENGLISH] == most:
        return known[_ENGLISH]
    return frozenset().union(*(grammar for language, grammar in known.items() if found[language] == most))


@cache
def _grammar() -> Mapping[str, frozenset[str]]:
    return {language: frozenset(map(folded, words.split())) for language, words in GRAMMAR_WORDS.items()}


def folded(text: str) -> str:
    """Lowercase in usual forms, without accents and invisible characters.

    Necessary vowel marks stay, and marks of other Japanese letters.
    """
    if text.isascii():
        return text.lower()
    return in_normal_form("NFKC", text).translate(_FOLDING)


def is_mark(character: str) -> bool:
    """Whether a character belongs to the word before it.

    Accents and many scripts' vowels do, unlike in `re`. Variation selectors make pictures of numbers, so they do not.
    """
    return unicodedata.category(character) in ("Mn", "Mc") and not "\ufe00" <= character <= "\ufe0f"


def in_normal_form(form: Literal["NFC", "NFKC"], text: str) -> str:
    """Normalize with at most `MOST_MARKS` marks per letter.

    Python sorts marks in quadratic time, blocking other threads.
    """
    marks = "".join(sorted(filter(_is_put_in_order, set(text))))
    if marks:
        text = re.sub(f"([{marks}]{{{MOST_MARKS}}})[{marks}]+", r"\1", text)
    return unicodedata.normalize(form, text)


def _is_put_in_order(character: str) -> bool:
    """Whether normalizing may reorder a character."""
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0
