"""The notes of a made-up person, and questions about them and the public texts: the TOML files beside this one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from proto.messages import Side
from scripts.bench.measuring import grouped

Kind = Literal["device", "cloud", "both", "nobody"]
ALTERNATIVE: Final = "|"
FOLDER: Final = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Question:
    """A question. A right answer has one of each part's alternatives and nothing that is `wrong`, which is said nowhere
    in the text that answers.
    """

    kind: Kind
    text: str
    parts: tuple[tuple[str, ...], ...] = ()
    wrong: tuple[str, ...] = ()
    note: str = ""  # name of the note that has the first part; empty: none
    pep: int = 0  # number of the proposal that has the last part; 0: none
    near: Side | None = None  # whose documents are close to it, where nobody answers it


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text("utf-8"))


def _questions() -> tuple[Question, ...]:
    read, found = _read("questions.toml"), list[Question]()
    for kind in get_args(Kind)[:3]:
        for each in read[kind]:
            parts = tuple(tuple(part.split(ALTERNATIVE)) for part in each.pop("parts"))
            wrong = tuple(each.pop("wrong").split(ALTERNATIVE)) if "wrong" in each else ()
            found.append(Question(kind, parts=parts, wrong=wrong, **each))
    nobody: dict[Side, list[str]] = read["nobody"]
    return (*found, *(Question("nobody", text, near=side) for side, texts in nobody.items() for text in texts))


QUESTIONS: Final = _questions()
NOTES: Final[Mapping[str, str]] = MappingProxyType(
    {
        name: "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
        for name, text in _read("notes.toml").items()
    }
)
"""Text of each note by its name."""


def first_of_each(count: int) -> tuple[Question, ...]:
    """The first `count` questions of each kind, and of those that nobody answers, of each side."""
    alike = grouped(QUESTIONS, lambda each: (each.kind, each.near))
    return tuple(each for same in alike.values() for each in same[:count])
