"""Libraries: some dozens of private notes and a few hundred public entries, and questions about them."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.demo_model.world.facts import Document, Fact, World
from scripts.demo_model.world.questions import Exchange, ask_both, ask_private, ask_public
from scripts.demo_model.world.relations import CLOSED, DOMAINS, TOPICS
from scripts.demo_model.world.schema import Domain

PRIVATE, PUBLIC, BOTH = "a", "b", "c"
"""Question types: one private fact, one public fact, and a public fact about what a private fact names."""
FACT_COUNTS = (1, 1, 2, 2, 3)
"""Facts per public entry."""
PAIR_SHARE = 0.4
"""Of the notes, that hold two facts."""


@dataclass(frozen=True, slots=True)
class LibraryPlan:
    """Size of a library, and the manner of its documents.

    ``crowded`` documents hold several facts of the same relations (the stress set).
    ``unseen`` documents are written with statement templates that never occur in training.
    """

    kinds: int = 80
    entities_per_kind: int = 3
    private_facts: int = 64
    crowded: bool = False
    unseen: bool = False


@dataclass(frozen=True, slots=True)
class Library:
    """The documents of both sides and the facts in them."""

    private: tuple[Document, ...]
    public: tuple[Document, ...]

    @property
    def private_facts(self) -> tuple[Fact, ...]:
        """All facts of the notes."""
        return tuple(fact for document in self.private for fact in document.facts)

    @property
    def public_facts(self) -> tuple[Fact, ...]:
        """All facts of the entries."""
        return tuple(fact for document in self.public for fact in document.facts)


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
    entries = [world.public_facts(d, k, link, _fact_count(world)) for d, k in kinds for link in links[d.name, k]]
    public = [
        world.public_document(facts, plan.unseen, heading_share=1.0)
        for facts in _grouped(entries, 3 if plan.crowded else 1)
    ]
    notes = _note_facts(world, plan, kinds, links)
    private = [world.private_document(facts, plan.unseen, heading_share=1.0) for facts in notes]
    world.random.shuffle(private)
    world.random.shuffle(public)
    return Library(tuple(private), tuple(public))


def _links(world: World, domain: Domain, count: int) -> list[str]:
    if domain.link.value != "name":
        return world.random.sample(CLOSED[domain.link.value], count)
    return [world.names.name() for _ in range(count)]


def _fact_count(world: World) -> int:
    return world.random.choice(FACT_COUNTS)


def _grouped(entries: list[tuple[Fact, ...]], size: int) -> list[tuple[Fact, ...]]:
    """Facts of ``size`` neighbouring entities (of one kind, mostly) per document."""
    groups = [entries[start : start + size] for start in range(0, len(entries), size)]
    return [tuple(fact for entry in group for fact in entry) for group in groups]


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
    if plan.crowded:
        waiting.sort(key=lambda fact: fact.relation.name)
        return [tuple(waiting[start : start + 4]) for start in range(0, len(waiting), 4)]
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
    private, public = library.private_facts, library.public_facts
    by_entity: dict[tuple[str, str, str], list[Fact]] = {}
    for fact in public:
        assert fact.domain is not None
        by_entity.setdefault((fact.domain.name, fact.kind, fact.link), []).append(fact)
    pairs = [
        (note, fact)
        for note in private
        if note.domain is not None
        for fact in by_entity.get((note.domain.name, note.kind, note.value), [])
    ]
    found = []
    for fact in world.random.sample(private, count):
        found.append(_question(PRIVATE, ask_private(world.random, fact, {}), (fact.value,)))
    for fact in world.random.sample(public, count):
        found.append(_question(PUBLIC, ask_public(world.random, fact, {}), (fact.value,)))
    for note, fact in world.random.sample(pairs, count):
        found.append(_question(BOTH, ask_both(world.random, note, fact, {}), (note.value, fact.value)))
    return found


def _question(type_: str, exchange: Exchange, values: tuple[str, ...]) -> LibraryQuestion:
    return LibraryQuestion(type_, exchange.question, exchange.answer_text, exchange.relation, values)
