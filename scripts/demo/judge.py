"""The demonstration's questions, and a judge of sentences.

It looks, as a person would, for the facts that were asked for and not for their words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

_SMALL = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_HUNDRED = 100
_VALUES = {
    **{word: value for value, word in enumerate(_SMALL)},
    **{word: 10 * value for value, word in enumerate(_TENS, start=2)},
    "hundred": _HUNDRED,
}
_ARTICLES = {"a", "an", "the"}
_DENIALS = {"not", "no", "never", "cannot", "without"}
_PRONOUN = {"of", "who", "that", "which"}  # what follows a "one" that counts nothing
_REACH = 3  # words that a denial may stand before what it denies: "does not have the six gears"
_SHORT_DENIAL = re.compile(r"n['\N{RIGHT SINGLE QUOTATION MARK}]t\b")
_WORD = re.compile(r"[0-9]+(?:,[0-9]{3})+(?![0-9])|[0-9]+(?::00)?|[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Facts:
    """The parts of a right answer: of each of `wanted` one of the alternatives, and nothing that contradicts it.

    A number that is neither wanted, nor in the question, nor one of `true` ones contradicts, and so does what is in
    `false`.
    """

    wanted: tuple[tuple[str, ...], ...]
    true: tuple[str, ...] = ()
    false: tuple[str, ...] = ()

    def are_in(self, answer: str, question: str) -> bool:
        """Whether `answer` is right."""
        said = words(answer)
        if not all(any(_says(said, words(each)) for each in alternatives) for alternatives in self.wanted):
            return False
        if any(_says(said, words(each)) for each in self.false):
            return False
        known = [question, *self.true, *(each for alternatives in self.wanted for each in alternatives)]
        allowed = {word for each in known for word in words(each) if word.isdecimal()}
        return all(word in allowed for word in said if word.isdecimal())


def words(text: str) -> list[str]:
    """The words of a text in lower case: numbers in digits, no articles, no hyphens, no punctuation."""
    parts = _WORD.findall(_SHORT_DENIAL.sub(" not", text.lower()))
    return [word for word in _with_digits(parts) if word not in _ARTICLES]


def _with_digits(parts: Sequence[str]) -> Iterator[str]:
    """Numbers in words as digits: twenty-one, forty seven, two hundred and five."""
    total: int | None = None
    for word, following in pairwise([*parts, ""]):
        value = None if word == "one" and following in _PRONOUN else _VALUES.get(word)
        if total is not None and total >= _HUNDRED and word == "and" and following in _VALUES:
            continue
        if total is not None and _continues(total, word):
            total = total * _HUNDRED if word == "hundred" else total + _VALUES[word]
            continue
        if total is not None:
            yield str(total)
        total = value
        if value is None:
            yield word.removesuffix(":00").replace(",", "") if word[0].isdecimal() else word
    if total is not None:
        yield str(total)


def _continues(total: int, word: str) -> bool:
    """Whether `word` goes on with a number that is `total` so far."""
    if word == "hundred":
        return 0 < total < _HUNDRED
    value = _VALUES.get(word)
    if value is None:
        return False
    if total >= _HUNDRED:
        return total % _HUNDRED == 0 or (total % 10 == 0 and total % _HUNDRED >= 20 and 0 < value < 10)
    return total >= 20 and total % 10 == 0 and 0 < value < 10


def _says(said: Sequence[str], phrase: Sequence[str]) -> bool:
    """Whether the words of `phrase` are said one after another, and not denied."""
    for start in range(len(said) - len(phrase) + 1):
        if [*said[start : start + len(phrase)]] == [*phrase]:
            return not _DENIALS.intersection(said[max(0, start - _REACH) : start])
    return False


Needs = Literal["private", "public", "both"]


@dataclass(frozen=True, slots=True)
class Question:
    """A sample question; `needs` says which library holds what it asks for."""

    text: str
    needs: Needs
    right: str | Facts  # the answer, word for word, or what every right one says

    def is_right(self, answer: str) -> bool:
        """Whether `answer` is the expected one, or says what is asked for."""
        return self.right.are_in(answer, self.text) if isinstance(self.right, Facts) else answer == self.right


def read_questions(path: Path) -> list[Question]:
    """The sample questions. Raises `KeyError` or `ValueError` for a damaged file."""
    return [_question(item) for item in json.loads(path.read_text())]


def _question(item: dict[str, Any]) -> Question:
    if "facts" in item:
        wanted = tuple(tuple(alternatives) for alternatives in item["facts"])
        facts = Facts(wanted, tuple(item.get("true", ())), tuple(item.get("false", ())))
        return Question(item["question"], "both", facts)
    return Question(item["question"], item["needs"], item["answer"])
