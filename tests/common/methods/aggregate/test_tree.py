"""Random walks of the tree of drafts beside a plain model: each prefix that was decoded, and what is possible yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.answer.values import SideDraft
from common.estimates.estimators import FAINT, SpeculationLimits
from common.methods.aggregate.drafts import (
    BRANCHES,
    MOST,
    MOST_BRANCHES,
    MOST_BYTES,
    MOST_CANDIDATES,
    DraftWork,
    Node,
    PrefixTree,
    RemoteDrafts,
)
from proto.codes import digest

VOCABULARY, EOS, TOKENS, RETAIN, ROOM = 6, 5, 14, 3, 20
AHEAD = SpeculationLimits(max_drafts=5, max_rows=4, min_chance=FAINT, free_branches=4, spare_tokens=ROOM)


@dataclass(frozen=True, slots=True)
class Race:
    """A draft's fastest tokens with the logarithms of their speeds."""

    fastest: tuple[tuple[int, float], ...]

    @property
    def token(self) -> int:
        return self.fastest[0][0]


def race_behind(path: tuple[int, ...], seed: int) -> Race:
    """The race behind a prefix is a function of it."""
    random = Random(f"{seed} {path}")
    tokens = random.sample(range(VOCABULARY), 4)
    return Race(tuple((token, -0.4 * place * random.random()) for place, token in enumerate(tokens)))


@dataclass
class Walk:
    """A tree of drafts, and what it must hold."""

    seed: int
    ahead: SpeculationLimits = AHEAD
    committed: tuple[int, ...] = ()
    decoded: set[tuple[int, ...]] = field(default_factory=set)  # prefixes behind which a draft was taken in
    work: DraftWork | None = None
    asked: set[tuple[int, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.tree = self.new_tree()

    def new_tree(self) -> PrefixTree:
        return PrefixTree(RETAIN, frozenset({EOS}), TOKENS, lambda view: view.fastest)  # type: ignore[attr-defined]

    def ask(self) -> None:
        self.work = self.tree.ask(0, self.committed, self.ahead)
        paths = [] if self.work is None else [tuple(path) for path in self.work.paths]
        if self.work is not None:
            assert self.work.prefixes == tuple((len(path), digest(path)) for path in paths)
            assert len(paths) <= self.ahead.max_rows
        self.asked = set(paths)
        assert len(self.asked) == len(paths), "nothing is asked for twice"
        for path in paths:
            assert path[: len(self.committed)] == self.committed
            assert EOS not in path[len(self.committed) :] and len(path) < TOKENS
            assert len(path) - len(self.committed) < self.ahead.max_drafts
            assert path not in self.decoded, "nothing is decoded twice"
        held = [path for path in self.live if len(path) > len(self.committed)]
        assert (
            len(held) + len(paths) <= min(TOKENS + self.ahead.spare_tokens, self.ahead.max_drafts + MOST_BRANCHES) + 1
        )

    def draft(self) -> None:
        """Deliver some of what was asked for, in any order, and something that nobody asked for."""
        some = self.random.sample(sorted(self.asked), self.random.randint(0, len(self.asked)))
        for path in some:
            assert self.tree.drafted(self.draft_behind(path), True)
            self.asked.discard(path)
            self.decoded.add(path)
            assert not self.tree.drafted(self.draft_behind(path), True), "each is taken once"

    def draft_behind(self, path: tuple[int, ...]) -> SideDraft:
        view, footprint = race_behind(path, self.seed), 2 + sum(path)
        return SideDraft(view, 0.0, position=len(path), digest=digest(path), footprint=footprint)

    def commit(self) -> None:
        chosen = race_behind(self.committed, self.seed).fastest[self.random.choice((0, 0, 1, 2))][0]
        token = self.random.choice((chosen, chosen, self.random.randrange(EOS)))
        if token == EOS or len(self.committed) >= TOKENS - 1:
            return
        drafted = race_behind(self.committed, self.seed).token if self.committed in self.decoded else None
        there = (*self.committed, token) in self.decoded
        used, before = self.tree.used, self.asked
        useless = self.tree.commit(token)
        late = {self.committed} & before  # its step reads tokens that are wanted all the same
        self.committed = (*self.committed, token)
        self.asked = {path for path in self.asked if path[: len(self.committed)] == self.committed}
        assert self.tree.used - used == (drafted not in (None, token) and there)
        if before:
            assert useless == (not self.asked and not late)

    def clear(self) -> None:
        length = self.random.randint(0, len(self.committed))
        self.committed = self.committed[:length]
        self.tree.clear(length, digest(self.committed))
        self.decoded.clear()
        self.asked.clear()

    @property
    def live(self) -> set[tuple[int, ...]]:
        """Decoded prefixes that the answer may have."""
        return {path for path in self.decoded if path[: len(self.committed)] == self.committed}

    def check(self) -> None:
        for path in self.decoded:
            found = self.tree.find(len(path), digest(path))
            if path in self.live:
                assert found == self.draft_behind(path)
            elif path != self.committed[: len(path)]:
                assert found is None, "a rejected prefix is forgotten"
        first = self.tree.first()
        assert (first is not None) == (self.committed in self.decoded)
        assert first is None or first == self.draft_behind(self.committed)
        told = [(draft.position, draft.digest) for draft in self.tree.since(len(self.committed))]
        assert sorted(told) == sorted((len(path), digest(path)) for path in self.live)
        assert len(self.tree._candidates) <= MOST_CANDIDATES + 1
        assert set(self.tree._decoded) == {digest(path) for path in self.live}
        assert self.tree.footprint == sum(2 + sum(path) for path in self.live)

    def run(self, events: Iterator[str]) -> None:
        for event in events:
            getattr(self, event)()
            self.check()


EVENTS = ("ask", "draft", "ask", "draft", "ask", "draft", "commit", "clear")
walks = given(
    seed=st.integers(0, 2**32),
    events=st.lists(st.sampled_from(EVENTS), max_size=120),
    rows=st.integers(1, 6),
    drafts=st.integers(1, 7),
)


@walks
@settings(max_examples=150)
def test_it_holds_what_was_decoded_and_is_possible(seed: int, events: list[str], rows: int, drafts: int) -> None:
    Walk(seed, SpeculationLimits(drafts, rows, FAINT, rows, ROOM)).run(iter(events))


def test_branches_are_used() -> None:
    """The walks would say nothing of branches if none were ever decoded."""
    used = 0
    for seed in range(20):
        walk = Walk(seed)
        walk.run(iter(("ask", "draft") * 4 + ("commit",)) if seed < 0 else iter((*("ask", "draft") * 6, "commit") * 10))
        used += walk.tree.used
        assert walk.tree.branches >= walk.tree.used
    assert used > 20


def test_the_chain_comes_first_and_is_decoded_whatever_the_branches() -> None:
    walk = Walk(3)
    for depth in range(AHEAD.max_drafts):
        walk.ask()
        assert walk.work is not None and walk.work.chained
        chain = tuple(walk.work.paths[0])
        assert len(chain) == depth
        assert all(race_behind(chain[:place], 3).token == chain[place] for place in range(depth))
        assert walk.tree.drafted(walk.draft_behind(chain), True)
        walk.decoded.add(chain)
    walk.ask()
    assert walk.work is None or not walk.work.chained


class Undropped(PrefixTree):
    """Rejected prefixes are not forgotten."""

    def _drop(self, node: Node) -> None:
        node.parent = None


class Detached(PrefixTree):
    """A prefix that becomes the answer's is known by its place in the tree of before."""

    def commit(self, token: int) -> bool:
        before = self.root
        useless = super().commit(token)
        self.root.digest = before.digest
        return useless


class Repeating(PrefixTree):
    """Drafts may be delivered twice."""

    def drafted(self, draft: SideDraft, branching: bool) -> bool:
        asked = list(self._asked)
        taken = super().drafted(draft, branching)
        self._asked = asked
        return taken


class Uncounted(PrefixTree):
    """Rejected drafts count for ever as those that the other side keeps."""

    def _drop(self, node: Node) -> None:
        held = self.footprint
        super()._drop(node)
        self.footprint = held


class BehindTheEnd(PrefixTree):
    """Prefixes behind an end of the sequence are decoded."""

    def _allowed(self, node: Node, ahead: SpeculationLimits) -> bool:
        return node.position - self.root.position < ahead.max_drafts and node.position < self._max_tokens


@pytest.mark.parametrize("mutant", [Undropped, Detached, Repeating, Uncounted, BehindTheEnd])
def test_mutants_are_caught(mutant: type[PrefixTree], monkeypatch: pytest.MonkeyPatch) -> None:
    def new_tree(_: Walk) -> PrefixTree:
        return mutant(RETAIN, frozenset({EOS}), TOKENS, lambda view: view.fastest)  # type: ignore[attr-defined]

    monkeypatch.setattr(Walk, "new_tree", new_tree)
    caught = 0
    for seed in range(30):
        random = Random(seed)
        try:
            Walk(seed).run(random.choice(EVENTS) for _ in range(100))
        except (AssertionError, IndexError, KeyError):
            caught += 1
    assert caught > 0


class TestRemote:
    """Drafts of a peer are kept within bounds, and found under their own prefix only."""

    @staticmethod
    def draft(number: int, footprint: int = 1) -> Any:
        return SideDraft(Race(((number, 0.0),)), 0.0, footprint=footprint)

    @given(
        puts=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 200)), max_size=400),
        decided=st.lists(st.integers(0, 40), max_size=20),
    )
    def test_counts_and_bounds(self, puts: list[tuple[int, int]], decided: list[int]) -> None:
        drafts = RemoteDrafts()
        for place, (position, prefix) in enumerate(puts):
            drafts.put(position, prefix, self.draft(place, 1 + place % 7))
            assert drafts.get(position, prefix) == self.draft(place, 1 + place % 7)
            assert drafts.get(position, prefix + 1000) is None
        for position in decided:
            held = dict(drafts._drafts.get(position, {}))
            found, others = drafts.decide(position, 7)
            assert (found is not None) == (7 in held) and others == len(held) - (7 in held)
            assert drafts.get(position, 7) is None
        kept = [draft for each in drafts._drafts.values() for draft in each.values()]
        assert (drafts._count, drafts._bytes) == (len(kept), sum(draft.footprint for draft in kept))

    def test_a_flood_is_bounded_and_keeps_what_is_decided_next(self) -> None:
        drafts = RemoteDrafts()
        drafts.put(0, 1, self.draft(0))
        for number in range(20 * MOST):
            drafts.put(1 + number % 200, number, self.draft(number))
            assert drafts._count <= MOST
        assert all(len(each) <= BRANCHES for each in drafts._drafts.values())
        assert drafts.get(0, 1) == self.draft(0)

    def test_large_ones_are_bounded_by_their_bytes(self) -> None:
        """Those that are decided last go first; one alone may be of any size."""
        drafts, large = RemoteDrafts(), MOST_BYTES // 10 + 1
        for number in range(100):
            drafts.put(number, 1, self.draft(number, large))
            assert drafts._bytes <= MOST_BYTES
        assert drafts.get(0, 1) is not None
        drafts.clear()
        drafts.put(0, 1, self.draft(0, 2 * MOST_BYTES))
        assert drafts.get(0, 1) is not None
        drafts.put(0, 1, self.draft(0))
        assert drafts._bytes == 1
