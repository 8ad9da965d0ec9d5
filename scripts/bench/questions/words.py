"""Text as words that are compared: numbers, dates, plurals and negations in one spelling each."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

_UNITS: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS: Final = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL: Final = {word: value for value, word in enumerate(_UNITS.split())} | {
    word: 10 * value for value, word in enumerate(_TENS.split(), 2)
}
_LARGE: Final = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_ENGLISH: Final = "January February March April May June July August September October November December"
_MONTHS: Final = tuple(_ENGLISH.split())
_MONTH: Final = rf"(?P<month>{'|'.join(f'{name}|{name[:3]}' for name in _MONTHS)}|Sept)\b\.?"
_DAY: Final = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b"
# The name of a month is a capital's, or "it may 5 times" would be a date.
_DATES: Final = (
    re.compile(rf"\b{_DAY}[\s-]+(?:of\s+)?{_MONTH}"),
    re.compile(rf"\b{_MONTH}\s+(?:the\s+)?{_DAY}(?!\.\d)"),
)
_ISO: Final = re.compile(r"\b(?P<year>\d{4})-(?P<month>[01]\d)-(?P<day>[0-3]\d)\b")
_THOUSANDS: Final = re.compile(r"(?<=\d)[,'\N{THIN SPACE}\N{NARROW NO-BREAK SPACE}\N{NO-BREAK SPACE}](?=\d{3}(?!\d))")
_SHORTENED: Final = (
    (r"\bcan(?:no|')t\b", "can not"),
    (r"\bwon't\b", "will not"),
    (r"n't\b", " not"),
    (r"\b(it|that|he|she|there|here|what|who|where)'s\b", r"\1 is"),
    (r"'s\b", ""),  # the possessive
)
_WORD: Final = re.compile(r"\d+/\d+|\d+(?:\.\d+)*|[^\W\d_]+")
_LEFT_OUT: Final = frozenset(("a", "an", "the"))
_ORDINALS: Final = frozenset(("st", "nd", "rd", "th"))
_LEAST_PLURAL: Final = 4  # letters; "gas" and "bus" are none


def words(text: str) -> list[str]:
    """Words of `text` in lower case and the singular, numbers as digits, a day of a year as `month/day`.

    Articles, punctuation and the possessive are left out. A year follows its day.
    """
    return _numbers([_singular(word) for word in plain(_dates(text)) if word not in _LEFT_OUT])


def plain(text: str) -> list[str]:
    """Words of `text` in lower case as they stand there, but for shortened negations, which are whole."""
    text = unicodedata.normalize("NFC", text).replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").lower()
    for short, whole in _SHORTENED:
        text = re.sub(short, whole, text)
    found: list[str] = []
    for match in _WORD.finditer(_THOUSANDS.sub("", text)):
        if not (match[0] in _ORDINALS and found and found[-1].isdigit()):
            found.append(match[0])
    return found


def find(phrase: Sequence[str], among: Sequence[str]) -> list[int]:
    """Places at which `phrase` begins in `among`."""
    size = len(phrase)
    return [place for place in range(len(among) - size + 1) if list(among[place : place + size]) == list(phrase)]


def _dates(text: str) -> str:
    def told(match: re.Match[str]) -> str:
        month = next(number for number, name in enumerate(_MONTHS, 1) if name.startswith(match["month"][:3]))
        return f"{month}/{int(match['day'])}"

    text = _ISO.sub(lambda match: f"{int(match['month'])}/{int(match['day'])} {match['year']}", text)
    for form in _DATES:
        text = form.sub(told, text)
    return text


def _numbers(found: Sequence[str]) -> list[str]:
    """`found` with numbers in words as digits; "twenty-one" and "two hundred and forty" are one number."""
    result: list[str] = []
    place = 0
    while place < len(found):
        end, value = _number(found, place)
        result.append(found[place] if end == place else str(value))
        place = max(end, place + 1)
    return result


def _number(found: Sequence[str], start: int) -> tuple[int, int]:
    """Place behind the number in words, or digits with "thousand", that begins at `start`, and its value."""
    total, part, last = 0, 0, 0
    place = start
    while place < len(found):
        word = found[place]
        value = int(word) if word.isdigit() and place == start else _SMALL.get(word)
        if value is not None and (place == start or last >= 100 or (last in range(20, 100, 10) and 0 < value < 10)):
            part, last = part + value, value
        elif word in _LARGE and place > start:
            scale = _LARGE[word]
            total, part = (total, part * scale) if scale == 100 else (total + part * scale, 0)
            last = scale
        elif not (word == "and" and last >= 100 and found[place + 1 : place + 2] and found[place + 1] in _SMALL):
            break
        place += 1
    return place, total + part


def _singular(word: str) -> str:
    if len(word) < _LEAST_PLURAL or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies") and len(word) > _LEAST_PLURAL:
        return f"{word[:-3]}y"
    return word[:-2] if word.endswith(("xes", "ches", "shes", "sses")) else word[:-1]
