"""Questions of the demonstration, and which answers to them are right."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scripts.demo.judge import Facts

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
