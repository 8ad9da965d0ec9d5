"""The demonstration's questions, and a judge of sentences.

It looks, as a person would, for the facts that were asked for and not for their words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from scripts.bench.questions.judge import find, with_digits

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
    parts = [
        part.removesuffix(":00").replace(",", "") for part in _WORD.findall(_SHORT_DENIAL.sub(" not", text.lower()))
    ]
    left_out = [part in _ARTICLES or (part == "one" and after in _PRONOUN) for part, after in pairwise([*parts, ""])]
    return with_digits([part for part, out in zip(parts, left_out, strict=True) if not out])


def _says(said: Sequence[str], phrase: Sequence[str]) -> bool:
    """Whether the words of `phrase` are said one after another, and not denied."""
    found = find(phrase, said)[:1]
    return any(not _DENIALS.intersection(said[max(0, start - _REACH) : start]) for start in found)


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
