"""Facts and the documents that state them."""

from __future__ import annotations

import random
from dataclasses import dataclass

from scripts.demo_model.world.relations import DOMAINS, FILLERS, TOPICS, Names, canonical, statements
from scripts.demo_model.world.schema import (
    Domain,
    PrivateTopic,
    Relation,
    Segment,
    Segments,
    render,
    sentence,
    text_of,
)

SHORT_MENTION_SHARE = 0.6
"""Of later sentences, that call an entity by its short name."""
FILLER_SHARE = 0.15
"""Of private notes, that hold a sentence without a fact."""
HEADING_SHARE = 0.75
"""Of documents of training rows, that begin with a heading. Documents of libraries always do: it names
what the document is about, which retrieval needs among many documents that are written alike."""


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
    """Draws facts and documents: ``test`` selects held-out names, ``held_out`` of a method held-out statements.

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

    def private_document(
        self, facts: tuple[Fact, ...], held_out: bool = False, heading_share: float = HEADING_SHARE
    ) -> Document:
        """A note that states private facts, in any order."""
        heading: Segments = ()
        if self.random.random() < heading_share:
            heading = (Segment(" About " + " and ".join(f"my {fact.kind}" for fact in facts) + "."),)
        parts = [self._private_sentence(fact, held_out) for fact in facts]
        if self.random.random() < FILLER_SHARE:
            parts.append((Segment(" " + self.random.choice(FILLERS)),))
        self.random.shuffle(parts)
        return Document(facts, (*heading, *(segment for part in parts for segment in part)))

    def public_document(
        self, facts: tuple[Fact, ...], held_out: bool = False, heading_share: float = HEADING_SHARE
    ) -> Document:
        """An entry that states public facts; each entity's first mention names its kind."""
        seen: set[str] = set()
        segments: list[Segment] = []
        if self.random.random() < heading_share:
            segments.extend(_public_heading(facts))
        for fact in facts:
            segments.extend(self._public_sentence(fact, fact.link not in seen, held_out))
            seen.add(fact.link)
        return Document(facts, tuple(segments))

    def mixed_document(self, private: Fact, public: tuple[Fact, ...]) -> Document:
        """A note that holds a private fact and what depends on it."""
        first = self._private_sentence(private, False)
        rest = self.public_document(public, heading_share=0.0)
        return Document((private, *public), (*first, *rest.segments))

    def _private_sentence(self, fact: Fact, held_out: bool) -> Segments:
        return sentence(render(self._template(fact.relation, held_out), {"k": fact.kind, "v": fact.value}))

    def _template(self, relation: Relation, held_out: bool) -> str:
        if self.canonical_share > 0 and self.random.random() < self.canonical_share:
            return canonical(relation)
        return self.random.choice(statements(relation, held_out))

    def _public_sentence(self, fact: Fact, first: bool, held_out: bool) -> Segments:
        assert fact.domain is not None
        short = not first and self.random.random() < SHORT_MENTION_SHARE
        mention = render(fact.domain.short if short else fact.domain.full, {"k": fact.kind, "l": fact.link})
        return sentence(render(self._template(fact.relation, held_out), {"s": mention, "v": fact.value}))


def _public_heading(facts: tuple[Fact, ...]) -> list[Segment]:
    entities = {fact.link: fact for fact in facts}
    segments: list[Segment] = []
    for fact in entities.values():
        assert fact.domain is not None
        name = render(fact.domain.full.removeprefix("the "), {"k": fact.kind, "l": fact.link})
        lead = Segment(f" {fact.kind.capitalize()} guide:")
        segments += [lead, Segment(" " + name[0].text, name[0].slot), *name[1:], Segment(".")]
    return segments


def holder_of(relation: Relation) -> Domain | PrivateTopic:
    """The domain or private topic that a private relation belongs to."""
    for domain in DOMAINS:
        if domain.link is relation:
            return domain
    for topic in TOPICS:
        if topic.relation is relation:
            return topic
    raise ValueError(f"{relation.name} is not a private relation")
