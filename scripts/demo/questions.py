"""Questions of the demonstration, and which answers to them are right."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Needs = Literal["private", "public", "both"]


@dataclass(frozen=True, slots=True)
class Question:
    """A sample question; `needs` says which library holds what it asks for."""

    text: str
    needs: Needs
    answer: str = ""  # the one that is right, word for word
    parts: tuple[str, ...] = ()  # or what every right answer contains

    def is_right(self, answer: str) -> bool:
        """Whether `answer` is the expected one, or contains all parts."""
        if self.parts:
            return all(part.lower() in answer.lower() for part in self.parts)
        return answer == self.answer


def read_questions(path: Path) -> list[Question]:
    """The sample questions. Raises `KeyError` or `ValueError` for a damaged file."""
    return [_question(item) for item in json.loads(path.read_text())]


def _question(item: dict[str, Any]) -> Question:
    if "parts" in item:
        return Question(item["question"], "both", parts=tuple(item["parts"]))
    return Question(item["question"], item["needs"], item["answer"])
