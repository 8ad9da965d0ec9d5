"""Facts of the world, the documents that state them, questions about them, and whole libraries."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from scripts.demo_model.world.relations import (
    CLOSED,
    DOMAINS,
    FILLERS,
    TOPICS,
    UNKNOWN,
    Domain,
    Names,
    PrivateTopic,
    Relation,
    Segment,
    Segments,
    canonical,
    render,
    sentence,
    statements,
    text_of,
)

SHORT_MENTION_SHARE = 0.6  # of later sentences, that call an entity by its short name
FILLER_SHARE = 0.15  # of private notes, that hold a sentence without a fact
# Share of the documents of training rows that begin with a heading. Documents of libraries always do: it names what the
# document is about, which retrieval needs among many documents that are written alike.
HEADING_SHARE = 0.75


@dataclass(frozen=True, slots=True)
class Fact:
    """A value of a relation. ``link`` is the entity's name for public facts and empty for private ones."""

    relation: Relation
    kind: str
    value: str
    link: str = ""
    domain: Domain | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Names that a question for this fact must hold."""
        return (self.relation.name, self.kind, self.link)


@dataclass(frozen=True, slots=True)
class Document:
    """A text and the facts it states."""

    facts: tuple[Fact, ...]
    segments: Segments

    @property
    def text(self) -> str:
        """The text without the leading space."""
        return text_of(self.segments).removeprefix(" ")


class World:
    """Draws facts and documents; ``test`` selects held-out names.

    ``canonical_share`` is how often a fact is stated in the words of its answer. Training begins with many such
    facts: copying after repeated words is learnt first, and what means the same later.
    """

    def __init__(self, seed: int, test: bool = False, long_share: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.canonical_share = 0.0
        self.names = Names(self.random, test, long_share)

    def private_fact(self, relation: Relation | None = None, kind: str | None = None) -> Fact:
        """A private fact, of any relation if none is given: links of domains two times out of three."""
        holder: Domain | PrivateTopic
        if relation is None:
            holder = self.random.choice(DOMAINS) if self.random.random() < 2 / 3 else self.random.choice(TOPICS)
        else:
            holder = holder_of(relation)
        relation = holder.link if isinstance(holder, Domain) else holder.relation
        domain = holder if isinstance(holder, Domain) else None
        return Fact(relation, kind or self.random.choice(holder.kinds), self.names.value(relation.value), "", domain)

    def entity(self, domain: Domain | None = None, kind: str | None = None) -> tuple[Domain, str, str]:
        """A domain, a kind and a link: what public facts are about."""
        domain = domain or self.random.choice(DOMAINS)
        return domain, kind or self.random.choice(domain.kinds), self.names.value(domain.link.value)

    def public_facts(self, domain: Domain, kind: str, link: str, count: int) -> tuple[Fact, ...]:
        """Facts of different relations about one entity."""
        chosen = self.random.sample(domain.attributes, count)
        return tuple(Fact(r, kind, self.names.value(r.value), link, domain) for r in chosen)

    def private_document(self, facts: tuple[Fact, ...], heading_share: float = HEADING_SHARE) -> Document:
        """A note that states private facts, in any order."""
        heading: Segments = ()
        if self.random.random() < heading_share:
            heading = (Segment(" About " + " and ".join(f"my {fact.kind}" for fact in facts) + "."),)
        parts = [self._private_sentence(fact) for fact in facts]
        if self.random.random() < FILLER_SHARE:
            parts.append((Segment(" " + self.random.choice(FILLERS)),))
        self.random.shuffle(parts)
        return Document(facts, (*heading, *(segment for part in parts for segment in part)))

    def public_document(self, facts: tuple[Fact, ...], heading_share: float = HEADING_SHARE) -> Document:
        """An entry that states public facts; each entity's first mention names its kind."""
        seen: set[str] = set()
        segments: list[Segment] = []
        if self.random.random() < heading_share:
            segments.extend(_public_heading(facts))
        for fact in facts:
            segments.extend(self._public_sentence(fact, fact.link not in seen))
            seen.add(fact.link)
        return Document(facts, tuple(segments))

    def mixed_document(self, private: Fact, public: tuple[Fact, ...]) -> Document:
        """A note that holds a private fact and what depends on it."""
        first = self._private_sentence(private)
        rest = self.public_document(public, heading_share=0.0)
        return Document((private, *public), (*first, *rest.segments))

    def _private_sentence(self, fact: Fact) -> Segments:
        return sentence(render(self._template(fact.relation), {"k": fact.kind, "v": fact.value}))

    def _template(self, relation: Relation) -> str:
        if self.canonical_share > 0 and self.random.random() < self.canonical_share:
            return canonical(relation)
        return self.random.choice(statements(relation))

    def _public_sentence(self, fact: Fact, first: bool) -> Segments:
        domain, short = _domain(fact), not first and self.random.random() < SHORT_MENTION_SHARE
        mention = render(domain.short if short else domain.full, {"k": fact.kind, "l": fact.link})
        return sentence(render(self._template(fact.relation), {"s": mention, "v": fact.value}))


def _public_heading(facts: tuple[Fact, ...]) -> list[Segment]:
    entities = {fact.link: fact for fact in facts}
    segments: list[Segment] = []
    for fact in entities.values():
        name = render(_domain(fact).full.removeprefix("the "), {"k": fact.kind, "l": fact.link})
        lead = Segment(f" {fact.kind.capitalize()} guide:")
        segments += [lead, Segment(" " + name[0].text, name[0].slot), *name[1:], Segment(".")]
    return segments


def holder_of(relation: Relation) -> Domain | PrivateTopic:
    """The domain or private topic that a private relation belongs to."""
    holders: dict[Relation, Domain | PrivateTopic] = {domain.link: domain for domain in DOMAINS}
    return (holders | {topic.relation: topic for topic in TOPICS})[relation]


Known = Mapping[tuple[str, str, str], str]  # the values that a document states, by fact key


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
    return Exchange(_text(question, {"k": fact.kind}), (*pieces, _END), fact.relation.name)


def ask_public(random_: random.Random, fact: Fact, known: Known) -> Exchange:
    """A question for one public fact that names its entity."""
    domain = _domain(fact)
    slots = {"k": fact.kind, "l": fact.link}
    question = random_.choice(fact.relation.questions)
    pieces = _clause(_public_clause(domain, fact), fact, known, first=True)
    return Exchange(_text(question, {"s": render(domain.full, slots)}), (*pieces, _END), fact.relation.name)


def ask_both(random_: random.Random, private: Fact, public: Fact, known: Known) -> Exchange:
    """A question for a public fact about what a private fact names: the answer restates the private fact first."""
    domain = _domain(public)
    question = random_.choice(public.relation.questions)
    subject = render(random_.choice(domain.indirect), {"k": private.kind})
    first = render(domain.link.answer, {"k": private.kind, "v": private.value})
    pieces = (
        *_clause(first, private, known, first=True),
        AnswerPiece(", and", Part.TEMPLATE),
        *_clause(_public_clause(domain, public), public, known, first=False),
        _END,
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


def _domain(fact: Fact) -> Domain:
    assert fact.domain is not None, "it is not a public fact"
    return fact.domain


_END = AnswerPiece(".", Part.TEMPLATE)


# Question types: one private fact, one public fact, and a public fact about what a private fact names.
PRIVATE, PUBLIC, BOTH = "a", "b", "c"
FACT_COUNTS = (1, 1, 2, 2, 3)  # per public entry
PAIR_SHARE = 0.4  # of the notes, that hold two facts


@dataclass(frozen=True, slots=True)
class LibraryPlan:
    """Size of a library."""

    kinds: int = 80
    entities_per_kind: int = 3
    private_facts: int = 64


@dataclass(frozen=True, slots=True)
class Library:
    """The documents of both sides."""

    private: tuple[Document, ...]
    public: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class LibraryQuestion:
    """A question about a library with its one right answer. ``values`` are the values in it, in order."""

    type: str
    question: str
    answer: str
    relation: str
    values: tuple[str, ...]


def make_library(world: World, plan: LibraryPlan) -> Library:
    """A library in which every key occurs once, and every link of a note leads to one of the entries."""
    every_kind = [(domain, kind) for domain in DOMAINS for kind in domain.kinds]
    kinds = world.random.sample(every_kind, plan.kinds)
    links = {(d.name, kind): _links(world, d, plan.entities_per_kind) for d, kind in kinds}
    entries = [
        world.public_facts(d, k, link, world.random.choice(FACT_COUNTS)) for d, k in kinds for link in links[d.name, k]
    ]
    public = [world.public_document(facts, heading_share=1.0) for facts in entries]
    notes = _note_facts(world, plan, kinds, links)
    private = [world.private_document(facts, heading_share=1.0) for facts in notes]
    world.random.shuffle(private)
    world.random.shuffle(public)
    return Library(tuple(private), tuple(public))


def _links(world: World, domain: Domain, count: int) -> list[str]:
    if domain.link.value != "name":
        return world.random.sample(CLOSED[domain.link.value], count)
    return [world.names.name() for _ in range(count)]


def _note_facts(
    world: World, plan: LibraryPlan, kinds: list[tuple[Domain, str]], links: dict[tuple[str, str], list[str]]
) -> list[tuple[Fact, ...]]:
    facts: dict[tuple[str, str, str], Fact] = {}
    for domain, kind in kinds[: plan.private_facts * 2 // 3]:
        fact = Fact(domain.link, kind, world.random.choice(links[domain.name, kind]), "", domain)
        facts[fact.key] = fact
    topics = [(topic, kind) for topic in TOPICS for kind in topic.kinds]
    for topic, kind in world.random.sample(topics, plan.private_facts - len(facts)):
        fact = world.private_fact(topic.relation, kind)
        facts[fact.key] = fact
    waiting = list(facts.values())
    world.random.shuffle(waiting)
    notes: list[tuple[Fact, ...]] = []
    while waiting:
        fact = waiting.pop()
        other = waiting[-1] if waiting and world.random.random() < PAIR_SHARE else None
        if other is None or other.relation is fact.relation:
            notes.append((fact,))
        else:
            notes.append((fact, waiting.pop()))
    return notes


def draw_questions(world: World, library: Library, count: int) -> list[LibraryQuestion]:
    """``count`` questions of each type."""
    private, public = (
        [fact for document in side for fact in document.facts] for side in (library.private, library.public)
    )
    by_entity: dict[tuple[str, str, str], list[Fact]] = {}
    for fact in public:
        by_entity.setdefault((_domain(fact).name, fact.kind, fact.link), []).append(fact)
    pairs = [
        (note, fact)
        for note in private
        if note.domain is not None
        for fact in by_entity.get((note.domain.name, note.kind, note.value), [])
    ]
    draw = world.random
    return [
        *(_question(PRIVATE, ask_private(draw, fact, {}), (fact.value,)) for fact in draw.sample(private, count)),
        *(_question(PUBLIC, ask_public(draw, fact, {}), (fact.value,)) for fact in draw.sample(public, count)),
        *(
            _question(BOTH, ask_both(draw, note, fact, {}), (note.value, fact.value))
            for note, fact in draw.sample(pairs, count)
        ),
    ]


def _question(type_: str, exchange: Exchange, values: tuple[str, ...]) -> LibraryQuestion:
    return LibraryQuestion(type_, exchange.question, exchange.answer_text, exchange.relation, values)
