"""The shapes of the world's data: relations, domains, and text as segments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

HELD_OUT_VERBS = 2
"""So many of a relation's handwritten statements (the last ones) never occur in training."""

_SLOT = re.compile(r"\{(\w)\}")


@dataclass(frozen=True, slots=True)
class Relation:
    """One kind of fact. Templates put the key before the value: such facts bind best in a small model.

    ``nouns`` name the value and are put into the frames; ``verbs`` are whole statements.
    Slots: ``{k}`` kind (``bike``), ``{s}`` subject of a public fact, ``{v}`` value.
    """

    name: str
    value: str
    nouns: tuple[str, ...]
    verbs: tuple[str, ...]
    questions: tuple[str, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class PrivateTopic:
    """A private relation that nothing public depends on, with the keys it is asked for."""

    relation: Relation
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Domain:
    """A private relation whose value (the link) is the key of public facts.

    ``full`` and ``short`` are how public text calls an entity, ``indirect`` how a question that needs both
    sides does, ``subject`` how an answer does. Slots: ``{k}`` kind, ``{l}`` link.
    """

    name: str
    kinds: tuple[str, ...]
    link: Relation
    full: str
    short: str
    subject: str
    indirect: tuple[str, ...]
    attributes: tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of text; ``slot`` says which value it is, empty for words of a template."""

    text: str
    slot: str = ""


Segments = tuple[Segment, ...]


def render(template: str, slots: Mapping[str, str | Segments]) -> Segments:
    """Fill a template. A filled slot takes the space in front of it along, so that equal values are equal
    tokens."""
    pieces: list[Segment] = []
    position = 0
    for match in _SLOT.finditer(template):
        literal = template[position : match.start()]
        position = match.end()
        value = slots[match.group(1)]
        space = " " if literal.endswith(" ") else ""
        literal = literal.removesuffix(" ") if space else literal
        if literal:
            pieces.append(Segment(literal))
        if isinstance(value, str):
            pieces.append(Segment(space + value, match.group(1)))
        else:
            pieces.append(Segment(space + value[0].text, value[0].slot))
            pieces.extend(value[1:])
    if position < len(template):
        pieces.append(Segment(template[position:]))
    return tuple(pieces)


def sentence(segments: Segments) -> Segments:
    """The segments with a leading space and a capital letter."""
    text = segments[0].text.lstrip(" ")
    return (Segment(" " + text[0].upper() + text[1:], segments[0].slot), *segments[1:])


def text_of(segments: Segments) -> str:
    """The text of segments."""
    return "".join(segment.text for segment in segments)
