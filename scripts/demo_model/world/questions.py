"""Questions and their answers, with what a document can be expected to know of each part."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from scripts.demo_model.world.facts import Fact
from scripts.demo_model.world.relations import UNKNOWN
from scripts.demo_model.world.schema import Domain, Relation, Segments, render, sentence, text_of

Known = Mapping[tuple[str, str, str], str]
"""The values that a document states, by fact key."""


class Part(Enum):
    """The role of a piece of an answer, seen from one document."""

    TEMPLATE = "template"
    KNOWN = "known"
    ABSENT = "absent"
    RESTATED = "restated"


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """A piece of an answer; ``value`` is the value type of an absent piece."""

    text: str
    part: Part
    value: str = ""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question and its answer. ``relation`` is the one whose value comes last."""

    question: str
    answer: tuple[AnswerPiece, ...]
    relation: str

    @property
    def answer_text(self) -> str:
        """The answer without the leading space."""
        return "".join(piece.text for piece in self.answer).removeprefix(" ")


def ask_private(random_: random.Random, fact: Fact, known: Known) -> Exchange:
    """A question for one private fact, and its answer as a document with ``known`` facts sees it."""
    question = random_.choice(fact.relation.questions)
    pieces = _clause(render(fact.relation.answer, {"k": fact.kind, "v": fact.value}), fact, known, first=True)
    return Exchange(_text(question, {"k": fact.kind}), (*pieces, _end()), fact.relation.name)


def ask_public(random_: random.Random, fact: Fact, known: Known) -> Exchange:
    """A question for one public fact that names its entity."""
    domain = _domain(fact)
    slots = {"k": fact.kind, "l": fact.link}
    question = random_.choice(fact.relation.questions)
    pieces = _clause(_public_clause(domain, fact), fact, known, first=True)
    return Exchange(_text(question, {"s": render(domain.full, slots)}), (*pieces, _end()), fact.relation.name)


def ask_both(random_: random.Random, private: Fact, public: Fact, known: Known) -> Exchange:
    """A question for a public fact about what a private fact names: the answer restates the private fact
    first."""
    domain = _domain(public)
    slots = {"k": private.kind}
    question = random_.choice(public.relation.questions)
    subject = render(random_.choice(domain.indirect), slots)
    first = render(domain.link.answer, {"k": private.kind, "v": private.value})
    pieces = (
        *_clause(first, private, known, first=True),
        AnswerPiece(", and", Part.TEMPLATE),
        *_clause(_public_clause(domain, public), public, known, first=False),
        _end(),
    )
    return Exchange(_text(question, {"s": subject}), pieces, public.relation.name)


def _public_clause(domain: Domain, fact: Fact) -> Segments:
    subject = render(domain.subject, {"k": fact.kind, "l": fact.link})
    return render(fact.relation.answer, {"s": subject, "v": fact.value})


def _clause(segments: Segments, fact: Fact, known: Known, first: bool) -> tuple[AnswerPiece, ...]:
    if first:
        segments = sentence(segments)
    pieces = []
    for index, segment in enumerate(segments):
        text = segment.text if index or first else " " + segment.text
        if segment.slot == "v":
            part = Part.KNOWN if fact.value != UNKNOWN and known.get(fact.key) == fact.value else Part.ABSENT
        else:
            part = Part.RESTATED if segment.slot == "l" else Part.TEMPLATE
        pieces.append(AnswerPiece(text, part, fact.relation.value if part is Part.ABSENT else ""))
    return tuple(pieces)


def _text(template: str, slots: Mapping[str, str | Segments]) -> str:
    return text_of(sentence(render(template, slots))).removeprefix(" ")


def _end() -> AnswerPiece:
    return AnswerPiece(".", Part.TEMPLATE)


def _domain(fact: Fact) -> Domain:
    if fact.domain is None:
        raise ValueError(f"{fact.relation.name} is not a public relation")
    return fact.domain


def attribute_of(domain: Domain, random_: random.Random) -> Relation:
    """Any public relation of a domain."""
    return random_.choice(domain.attributes)
