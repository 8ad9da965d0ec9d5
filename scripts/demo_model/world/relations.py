"""The data of the world, from the TOML files beside this one: relations, their templates, names and values."""

from __future__ import annotations

import random
import re
import tomllib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

HELD_OUT_VERBS = 2  # so many of a relation's handwritten statements (the last ones) never occur in training

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
    """Fill a template. A filled slot takes the space in front of it along, so that equal values are equal tokens."""
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


FOLDER: Final = Path(__file__).parent
NAME: Final = "name"  # the value type of invented names; the others are closed lists
UNKNOWN = "unknown"  # said by an answer where a document does not hold the value


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text("utf-8"))


def _relation(table: Mapping[str, Any]) -> Relation:
    given: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in table.items()}
    return Relation(**given)


def _domain(table: dict[str, Any]) -> Domain:
    kinds, link = tuple(table.pop("kinds").split()), _relation(table.pop("link"))
    indirect, attributes = tuple(table.pop("indirect")), tuple(map(_relation, table.pop("attributes")))
    return Domain(kinds=kinds, link=link, indirect=indirect, attributes=attributes, **table)


_words = _read("words.toml")
PREFIXES: tuple[str, ...] = tuple(_words["names"]["prefixes"].split())
SUFFIXES: tuple[str, ...] = tuple(_words["names"]["suffixes"].split())
CLOSED: dict[str, tuple[str, ...]] = {kind: tuple(words.split()) for kind, words in _words["values"].items()}
PUBLIC_FRAMES, PUBLIC_FRAMES_HELD_OUT, PRIVATE_FRAMES, PRIVATE_FRAMES_HELD_OUT = (
    tuple(_words["frames"][key]) for key in ("public", "public_held_out", "private", "private_held_out")
)
FILLERS = tuple(_words["fillers"]["sentences"])
DOMAINS = tuple(map(_domain, _read("domains.toml")["domain"]))
TOPICS = tuple(
    PrivateTopic(_relation(each["relation"]), tuple(each["kinds"].split())) for each in _read("topics.toml")["topic"]
)
PRIVATE_RELATIONS = tuple(domain.link for domain in DOMAINS) + tuple(topic.relation for topic in TOPICS)
PUBLIC_RELATIONS = tuple(relation for domain in DOMAINS for relation in domain.attributes)


def held_out(name: str) -> bool:
    """Whether a name is kept for evaluation: one in ten, by a hash of the name."""
    return zlib.crc32(name.encode()) % 10 == 0


class Names:
    """Draws values; ``test`` draws held-out names only, otherwise they never occur.

    ``long_share`` is the share of names with a third piece: they teach copying of longer values.
    """

    def __init__(self, random_: random.Random, test: bool = False, long_share: float = 0.0) -> None:
        self._random = random_
        self._test = test
        self._long_share = long_share

    def name(self) -> str:
        """An invented name."""
        while True:
            name = self._random.choice(PREFIXES) + self._random.choice(SUFFIXES)
            if self._random.random() < self._long_share:
                name += self._random.choice(SUFFIXES)
            if held_out(name) == self._test:
                return name

    def value(self, kind: str) -> str:
        """A value of a type: ``name`` or one of the closed lists."""
        return self.name() if kind == NAME else self._random.choice(CLOSED[kind])


@cache
def statements(relation: Relation) -> tuple[str, ...]:
    """The statement templates of a relation, but for those that are held out."""
    frames = PUBLIC_FRAMES if "{s}" in relation.verbs[0] else PRIVATE_FRAMES
    framed = tuple(frame.replace("{n}", noun) for frame in frames for noun in relation.nouns)
    return relation.verbs[:-HELD_OUT_VERBS] + framed


def canonical(relation: Relation) -> str:
    """The statement in the words of the answer: "Your bike is made by" becomes "My bike is made by"."""
    first = {"Your": "My", "your": "my", "You": "I", "you": "I"}
    return " ".join(first.get(word, word) for word in relation.answer.split()) + "."
