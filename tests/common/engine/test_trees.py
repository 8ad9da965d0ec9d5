"""Rows of answers by trees: what they hold, and every node's logits, are those of a fresh prefill."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from common.answer.values import ROOT, TreeWork
from common.engine.jobs import AnswerRows, Prompt
from common.engine.kv.memory import Rows
from common.engine.model.decoder import Decoder
from common.engine.model.packed import Feed
from tests.common.engine.test_worker import QUERY, documents, load

TOLERANCE = 2e-5  # of the largest number; other orders of summation
RESERVE = 200


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    decoder = load()
    yield decoder
    assert decoder.memory.used_bytes == 0


@dataclass
class Answer:
    """An answer whose trees and tokens are drawn at random."""

    decoder: Decoder
    seed: int
    path: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.documents = documents(self.seed)
        prompt = Prompt(tuple(map(tuple, self.documents)), tuple(QUERY), (0.0,) * len(self.documents))
        self.rows = AnswerRows(self.decoder, prompt, self.decoder.take_rows(prompt.parts, prompt.query, RESERVE))
        while self.rows.reading:
            for feed in self.rows.feeds(TreeWork(0, ())):
                self.decoder.forward([feed])
                self.rows.fed(feed)

    def grow(self, nodes: int) -> None:
        for _ in range(nodes):
            self.parents.append(self.random.randrange(-1, len(self.tokens)))
            self.tokens.append(self.random.randrange(3, 2000))

    def feed(self, count: int) -> Feed:
        """Tokens that are to be fed for the last `count` distributions."""
        self.wanted = TreeWork(0, tuple(self.path), tuple(self.tokens), tuple(self.parents), count)
        (self.fed,) = self.rows.feeds(self.wanted)
        return self.fed

    def take(self, logits: torch.Tensor) -> None:
        """Compare the logits `[rows * count, vocabulary]` of the feed, and what the rows hold on the last path."""
        self.rows.fed(self.fed)
        by_row = logits.unflatten(0, (len(self.documents), -1))
        for row, document in enumerate(self.documents):
            for place, path in enumerate(self.wanted.paths):
                near(by_row[row, place], self.decoder.fresh_logits([*document, *QUERY, *path]))

    def decide(self, token: int) -> None:
        """Walk down the tree some way, and then take `token`; what follows it is dropped, or kept if it is a node."""
        node = ROOT
        while (below := [place for place, parent in enumerate(self.parents) if parent == node]) and (
            self.random.random() < 0.8
        ):
            node = self.random.choice(below)
            self.path.append(self.tokens[node])
        kept = {node: ROOT}
        tokens: list[int] = []
        parents: list[int] = []
        if node != ROOT and self.random.random() < 0.5:
            for place, parent in enumerate(self.parents):
                if parent in kept:
                    kept[place] = len(tokens)
                    tokens.append(self.tokens[place])
                    parents.append(kept[parent])
        else:
            self.path.append(token)
        self.tokens, self.parents = tokens, parents

    def check_rows(self) -> None:
        """The rows hold of the decided tokens what a fresh prefill gives."""
        feed = self.feed(1)
        self.take(self.decoder.forward([feed]))
        for row, document in enumerate(self.documents):
            fresh = self.decoder.memory.take(1, RESERVE)
            self.decoder.forward([Feed(fresh, [*document, *QUERY, *self.path], 0)])
            length = len(document) + len(QUERY) + len(self.path)
            for mine, its in zip(self.rows.rows.states(row), fresh.states(0), strict=True):
                near(mine[0][:, :length], its[0])
                near(mine[1][:, :length], its[1])
            self.decoder.memory.give_back(fresh)


def near(one: torch.Tensor, other: torch.Tensor) -> None:
    assert float((one - other).abs().max()) <= TOLERANCE * float(other.abs().max())


def together(decoder: Decoder, answers: Sequence[Answer], counts: Sequence[int]) -> None:
    """One pass over what all answers lack."""
    feeds = [answer.feed(count) for answer, count in zip(answers, counts, strict=True)]
    logits = decoder.forward(feeds)
    start = 0
    for answer, feed in zip(answers, feeds, strict=True):
        stop = start + len(feed.rows) * feed.logits
        answer.take(logits[start:stop])
        start = stop


def rounds(decoder: Decoder, count: int, steps: int) -> None:
    answers = [Answer(decoder, seed) for seed in range(count)]
    try:
        for step in range(steps):
            for answer in answers:
                answer.grow(answer.random.randrange(6))
            if step % 3 == 2:  # node by node, as a draft model reads
                for answer in answers:
                    answer.grow(1)
                    together(decoder, [answer], [1])
            together(decoder, answers, [len(answer.tokens) + 1 for answer in answers])
            for answer in answers:
                answer.decide(answer.random.randrange(3, 2000))
        for answer in answers:
            answer.check_rows()
    finally:
        for answer in answers:
            decoder.memory.give_back(answer.rows.rows)


def test_rows_and_logits_of_several_answers(decoder: Decoder) -> None:
    rounds(decoder, 3, 7)


def test_a_tree_grows_node_by_node(decoder: Decoder) -> None:
    answer = Answer(decoder, 5)
    for _ in range(6):
        answer.grow(1)
        fed = len(answer.feed(1).tokens)
        together(decoder, [answer], [1])
        assert fed == (1 if len(answer.tokens) > 1 else len(QUERY) + 1)
    decoder.memory.give_back(answer.rows.rows)


def test_a_prompt_in_parts_ends_before_its_tree(decoder: Decoder) -> None:
    """As the batcher cuts it: what is cut off has no logits, and the rest is read behind it."""
    answer = Answer(decoder, 6)
    answer.grow(4)
    for tokens in (2, len(QUERY) + 2):
        feed = answer.feed(5)
        feed.cut(tokens)
        logits = decoder.forward([feed])
        if tokens == 2:
            answer.rows.fed(feed)
            assert len(logits) == 0
    answer.take(logits)
    decoder.memory.give_back(answer.rows.rows)


def test_nodes_that_are_wanted_in_another_order(decoder: Decoder) -> None:
    """Of a tree that the rows hold, what is kept moves together in the order in which it was read: where another tree
    has the same nodes the other way round, those that would have to pass each other are read again.
    """
    answer = Answer(decoder, 8)
    answer.tokens, answer.parents = [11, 12, 13], [ROOT, ROOT, 1]
    together(decoder, [answer], [4])
    answer.tokens, answer.parents = [12, 11, 13], [ROOT, ROOT, 0]
    together(decoder, [answer], [4])
    answer.path, answer.tokens, answer.parents = [12], [13], [ROOT]
    together(decoder, [answer], [2])
    answer.tokens, answer.parents = [], []
    answer.check_rows()
    decoder.memory.give_back(answer.rows.rows)


def test_a_chain_goes_on_as_a_tree_and_as_a_chain_again(decoder: Decoder) -> None:
    """As drafts do when a first branch is decoded, and when that becomes the answer: nothing is read twice."""
    answer = Answer(decoder, 9)
    answer.path = [11, 12, 13, 14]
    together(decoder, [answer], [1])
    answer.path = [11]
    answer.tokens, answer.parents = [12, 13, 14, 21], [ROOT, 0, 1, 0]  # beside 13
    fed = answer.feed(1)
    assert list(fed.tokens) == [21]
    together(decoder, [answer], [1])
    answer.tokens, answer.parents = [12, 13, 14, 21, 22, 15], [ROOT, 0, 1, 0, 3, 2]
    together(decoder, [answer], [2])
    answer.path, answer.tokens, answer.parents = [11, 12, 21, 22, 23], [], []
    assert list(answer.feed(1).tokens) == [23]
    answer.check_rows()
    decoder.memory.give_back(answer.rows.rows)


def _first_columns(rows: Rows, fed: int, path: Sequence[int]) -> None:
    rows.fed = fed + len(path)


@pytest.mark.parametrize("broken", [_first_columns])
def test_mutant_stale_keys(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch, broken: Callable[[Rows, int, Sequence[int]], None]
) -> None:
    monkeypatch.setattr(Rows, "keep", broken)
    with pytest.raises(AssertionError):
        rounds(decoder, 3, 7)


def test_mutant_places_for_positions(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes at the positions of a chain: logits are others."""
    monkeypatch.setattr(Feed, "tree", lambda feed: None)
    with pytest.raises(AssertionError):
        rounds(decoder, 3, 7)
