"""Training rows, and batches of them: a document once, and several exchanges that each see the document only."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import numpy as np
import torch
from transformers import PreTrainedTokenizerFast

from scripts.demo_model.tokenizer import EOS_ID, VOCABULARY
from scripts.demo_model.world.library import (
    Document,
    Exchange,
    Fact,
    Known,
    Part,
    World,
    ask_both,
    ask_private,
    ask_public,
)
from scripts.demo_model.world.relations import CLOSED, DOMAINS, PREFIXES, SUFFIXES, UNKNOWN

# Kinds of tokens to the loss. RANDOM: the second half of a repeated random sequence.
IGNORED, DOCUMENT, TEMPLATE, VALUE, RESTATED, RANDOM = range(6)
ABSENT = 10  # + index of the value type: the first token of a value that the document does not hold
VALUE_TYPES = ("name", *CLOSED)
NAME_END = ABSENT + len(VALUE_TYPES)  # the second token of an absent name
STATED = {Part.TEMPLATE: TEMPLATE, Part.KNOWN: VALUE, Part.RESTATED: RESTATED}
# Probability of "unknown" for an absent value: little for one document, but all agree on it, so that a side without the
# fact says so instead of following the small leanings of its documents.
UNKNOWN_SHARE = 0.05
LONG_NAME_SHARE = 0.06
POOL = 256  # rows that are drawn and sorted by length at a time


@dataclass(frozen=True, slots=True)
class Row:
    """Token ids, loss codes and parts (0: document, n: the n-th exchange) of one training row."""

    ids: list[int]
    codes: list[int]
    parts: list[int]


class Encoder:
    """Encodes text pieces, remembering them: pieces begin where the tokenizer splits anyway."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.piece: Callable[[str], list[int]] = cache(partial(tokenizer.encode, add_special_tokens=False))

    def document(self, document: Document) -> list[int]:
        """A document with its start token, as the engine gives it to the model."""
        return [EOS_ID, *(token for segment in document.segments for token in self.piece(segment.text))]

    def exchange(self, exchange: Exchange) -> tuple[list[int], list[int]]:
        """Token ids and loss codes of a question and its answer."""
        words = [f" {word}" for word in exchange.question.split(" ")]
        ids = [token for piece in ("\nQuestion:", *words, "\nAnswer:") for token in self.piece(piece)]
        codes = [IGNORED] * len(ids)
        for piece in exchange.answer:
            tokens = self.piece(piece.text)
            ids += tokens
            codes += _codes(piece.part, piece.value, piece.text, len(tokens))
        return [*ids, EOS_ID], [*codes, TEMPLATE]


def _codes(part: Part, value: str, text: str, count: int) -> list[int]:
    if part in STATED:
        return [STATED[part]] * count
    rest = [NAME_END] if value == "name" and text != " " + UNKNOWN else []
    return ([ABSENT + VALUE_TYPES.index(value), *rest] + [IGNORED] * count)[:count]


def _completed_names(ids: list[int], codes: list[int], stated: set[tuple[int, int]]) -> list[int]:
    """A name begun by another document is completed by one that states it too, though not as this value."""
    pairs = pairwise([EOS_ID, *ids])
    return [RESTATED if c == NAME_END and pair in stated else c for c, pair in zip(codes, pairs, strict=True)]


def priors(tokenizer: PreTrainedTokenizerFast) -> np.ndarray:
    """Float32 ``[types + 1, vocab]``: what to expect of an absent value's first token, and of a name's second."""
    encode = Encoder(tokenizer).piece
    table = np.zeros((len(VALUE_TYPES) + 1, VOCABULARY), dtype=np.float32)
    for index, kind in enumerate(VALUE_TYPES):
        words = PREFIXES if kind == "name" else CLOSED[kind]
        for word in words:
            table[index, encode(" " + word)[0]] += (1 - UNKNOWN_SHARE) / len(words)
        table[index, encode(" " + UNKNOWN)[0]] = UNKNOWN_SHARE
    for suffix in SUFFIXES:
        table[-1, tokenizer.convert_tokens_to_ids(suffix)] = 1 / len(SUFFIXES)
    return table


class RowMaker:
    """Draws training rows from a world."""

    def __init__(self, world: World, encoder: Encoder) -> None:
        self._world = world
        self._random = world.random
        self._encode = encoder

    def random_copy(self) -> Row:
        """A random sequence, twice."""
        body = [self._random.randrange(2, VOCABULARY) for _ in range(self._random.randint(8, 40))]
        codes = [IGNORED] * (len(body) + 2) + [RANDOM] * (len(body) - 1)
        return Row([EOS_ID, *body, *body], codes, [0] * len(codes))

    def draw(self, easy: bool) -> Row:
        """A document with questions; ``easy`` ones hold one fact, and are asked for it."""
        share = self._random.random()
        if share < 0.05 and not easy:
            return self._mixed_row()
        return self._private_row(easy) if share < 0.45 else self._public_row(easy)

    def row(self, document: Document, exchanges: list[Exchange]) -> Row:
        """The row of a document and exchanges about it."""
        ids = self._encode.document(document)
        codes = [IGNORED, *[DOCUMENT] * (len(ids) - 1)]
        parts = [0] * len(ids)
        stated = set(pairwise(ids))
        for number, exchange in enumerate(exchanges, start=1):
            more, loss = self._encode.exchange(exchange)
            loss = _completed_names(more, loss, stated)
            ids, codes, parts = ids + more, codes + loss, parts + [number] * len(more)
        return Row(ids, codes, parts)

    def _private_row(self, easy: bool) -> Row:
        facts: dict[tuple[str, str, str], Fact] = {}
        count = 1 if easy else self._random.choice((1, 2, 3))
        relations: set[str] = set()
        while len(facts) < count:
            fact = self._world.private_fact()
            if fact.relation.name not in relations:
                relations.add(fact.relation.name)
                facts[fact.key] = fact
        if not easy and self._random.random() < 0.2:
            first = next(iter(facts.values()))
            twin = self._world.private_fact(first.relation)
            facts.setdefault(twin.key, twin)
        known = {key: fact.value for key, fact in facts.items()}
        document = self._world.private_document(tuple(facts.values()))
        ask = self._ask_easy_private if easy else self._ask_private_document
        return self.row(document, [ask(list(facts.values()), known) for _ in range(2 if easy else 5)])

    def _public_row(self, easy: bool) -> Row:
        domain, kind, link = self._world.entity()
        count = 1 if easy else self._random.choice((1, 2, 3))
        facts = list(self._world.public_facts(domain, kind, link, count))
        if not easy and self._random.random() < 0.15:
            other = self._world.entity(domain, kind if self._random.random() < 0.7 else None)
            if other[1:] != (kind, link):
                facts.extend(self._world.public_facts(*other, 1 if count > 1 else 2))
        known = {fact.key: fact.value for fact in facts}
        document = self._world.public_document(tuple(facts))
        ask = self._ask_easy_public if easy else self._ask_public_document
        return self.row(document, [ask(facts, known) for _ in range(2 if easy else 5)])

    def _mixed_row(self) -> Row:
        domain, kind, link = self._world.entity()
        private = Fact(domain.link, kind, link, "", domain)
        public = self._world.public_facts(domain, kind, link, self._random.choice((1, 2)))
        known = {fact.key: fact.value for fact in (private, *public)}
        asked = [ask_both(self._random, private, fact, known) for fact in public]
        asked.append(ask_private(self._random, private, known))
        asked.append(ask_public(self._random, self._random.choice(public), known))
        return self.row(self._world.mixed_document(private, public), asked)

    def _ask_easy_private(self, facts: list[Fact], known: Known) -> Exchange:
        return ask_private(self._random, facts[0], known)

    def _ask_easy_public(self, facts: list[Fact], known: Known) -> Exchange:
        fact = facts[0]
        if self._random.random() < 0.5:
            return ask_public(self._random, fact, known)
        return ask_both(self._random, self._link_fact(fact, fact.link), fact, known)

    def _ask_private_document(self, facts: list[Fact], known: Known) -> Exchange:
        share = self._random.random()
        fact = self._random.choice(facts)
        if share < 0.4:
            return ask_private(self._random, fact, known)
        if share < 0.6:
            relation = fact.relation if self._random.random() < 0.6 else None
            return ask_private(self._random, self._absent(self._world.private_fact(relation), known), known)
        if share < 0.7:
            domain, kind, link = self._world.entity(fact.domain if self._random.random() < 0.5 else None)
            (asked,) = self._world.public_facts(domain, kind, link, 1)
            return ask_public(self._random, self._absent(asked, known), known)
        links = [f for f in facts if f.domain is not None]
        if links and self._random.random() < 0.8:
            private = self._random.choice(links)
        else:
            domain = self._random.choice(DOMAINS)
            private = self._absent(self._world.private_fact(domain.link), known)
        return self._both_without_public(private, known)

    def _ask_public_document(self, facts: list[Fact], known: Known) -> Exchange:
        share = self._random.random()
        fact = self._random.choice(facts)
        if share < 0.28:
            return ask_public(self._random, fact, known)
        if share < 0.58:
            return ask_both(self._random, self._link_fact(fact, fact.link), fact, known)
        if share < 0.64:
            domain = fact.domain if self._random.random() < 0.5 else None
            private = self._world.private_fact(domain.link if domain else None)
            return ask_private(self._random, self._absent(private, known), known)
        other = self._other_question(fact)
        if share < 0.8:
            return ask_public(self._random, self._absent(other, known), known)
        private = self._link_fact(other, UNKNOWN if self._random.random() < 0.1 else other.link)
        other = dataclasses.replace(other, link=private.value)
        return ask_both(self._random, private, self._absent(other, known), known)

    def _other_question(self, fact: Fact) -> Fact:
        """A fact near one of the document: another entity (and often kind), or another relation."""
        assert fact.domain is not None
        if self._random.random() < 0.35:
            relation = self._random.choice(fact.domain.attributes)
            return dataclasses.replace(fact, relation=relation, value=self._world.names.value(relation.value))
        domain, kind, link = self._world.entity(
            fact.domain if self._random.random() < 0.85 else None,
            fact.kind if fact.domain and self._random.random() < 0.7 else None,
        )
        relation = fact.relation if domain is fact.domain else self._random.choice(domain.attributes)
        if kind not in domain.kinds:
            kind = self._random.choice(domain.kinds)
        return Fact(relation, kind, self._world.names.value(relation.value), link, domain)

    def _both_without_public(self, private: Fact, known: Known) -> Exchange:
        assert private.domain is not None
        relation = self._random.choice(private.domain.attributes)
        value = self._world.names.value(relation.value)
        public = Fact(relation, private.kind, value, private.value, private.domain)
        return ask_both(self._random, private, self._absent(public, known), known)

    def _link_fact(self, public: Fact, link: str) -> Fact:
        assert public.domain is not None
        return Fact(public.domain.link, public.kind, link, "", public.domain)

    def _absent(self, fact: Fact, known: Known) -> Fact:
        """The fact, with the document's value where the document holds it, else now and then "unknown"."""
        if fact.key in known:
            return dataclasses.replace(fact, value=known[fact.key])
        return dataclasses.replace(fact, value=UNKNOWN) if self._random.random() < UNKNOWN_SHARE else fact


@dataclass(frozen=True, slots=True)
class Batch:
    """``ids``, ``codes`` and ``positions`` are ``[rows, tokens]``, ``visible`` is ``[rows, 1, tokens, tokens]``."""

    ids: torch.Tensor
    codes: torch.Tensor
    positions: torch.Tensor
    visible: torch.Tensor
    tokens: int


def collate(rows: list[Row]) -> Batch:
    """Pad rows. An exchange sees the document and itself, and its positions continue the document's."""
    width = max(len(row.ids) for row in rows)
    ids, codes, parts, positions = (np.zeros((len(rows), width), dtype=np.int64) for _ in range(4))
    for index, row in enumerate(rows):
        length = len(row.ids)
        ids[index, :length] = row.ids
        codes[index, :length] = row.codes
        part = np.asarray(row.parts)
        parts[index, :length] = part
        document = int((part == 0).sum())
        starts = np.searchsorted(part, part)
        positions[index, :length] = np.arange(length) - starts + np.where(part > 0, document, 0)
    part_of = torch.from_numpy(parts)
    visible = (part_of[:, None, :] == 0) | (part_of[:, None, :] == part_of[:, :, None])
    visible &= torch.ones(width, width, dtype=torch.bool).tril()
    tokens = sum(len(row.ids) for row in rows)
    return Batch(torch.from_numpy(ids), torch.from_numpy(codes), torch.from_numpy(positions), visible[:, None], tokens)


def batches(maker: RowMaker, random_: random.Random, budget: int, easy: bool, copies: float) -> Iterator[Batch]:
    """Endless batches of at most ``budget`` padded tokens, or one row; ``copies`` of the rows random repeats."""
    while True:
        rows = [maker.random_copy() if random_.random() < copies else maker.draw(easy) for _ in range(POOL)]
        rows.sort(key=lambda row: len(row.ids))
        groups: list[list[Row]] = [[]]
        for row in rows:
            if groups[-1] and (len(groups[-1]) + 1) * len(row.ids) > budget:
                groups.append([])
            groups[-1].append(row)
        random_.shuffle(groups)
        yield from (collate(group) for group in groups)
