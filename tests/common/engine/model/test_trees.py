"""Trees of tokens: the logits of every token are those of a fresh pass over its path, and so are later ones of a path
that was kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from common.answer.values import ROOT
from common.engine.kv.memory import KvMemory, Rows
from common.engine.model import packed
from common.engine.model.exact import KeyWindow, Sight, Tree, tree_of, tree_sight
from common.engine.model.packed import Feed, PackedPass
from tests.common.engine.model.driving import unequal_documents
from tests.common.engine.model.tiny_models import FEW, Pair, some_tokens

#        0
#      1   2 3
#    4 5   6
#    7     8
BRANCHED = [ROOT, 0, 0, ROOT, 1, 1, 2, 4, 6]
# Three tokens in a row, and then a tree whose paths outgrow the windows of the tests.
AFTER_A_CHAIN = [ROOT, 0, 1, 2, 2, 3, 5, 6, 7, 4, 8, 10, 1]

few_pairs = pytest.mark.parametrize("pair", FEW, indirect=True)


def path_to(parents: Sequence[int], node: int) -> list[int]:
    path: list[int] = []
    while node != ROOT:
        path.append(node)
        node = parents[node]
    return path[::-1]


@dataclass
class Growing:
    """Rows of unequal documents that read trees, compared with fresh passes."""

    pair: Pair
    seed: int = 0
    texts: list[list[int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        decoder = self.pair.decoder
        self.texts = [[*document, 7] for document in unequal_documents(decoder)]
        self.rows = decoder.take_rows([text[:-1] for text in self.texts], [7], 100)
        for row, text in enumerate(self.texts):
            if text[:-1]:
                self.rows.fill(row, decoder.document_states(text[:-1], None))
        decoder.forward([Feed(self.rows, [7])])

    def read(self, parents: Sequence[int], sizes: Sequence[int] = (), others: Sequence[Growing] = ()) -> list[int]:
        """Feed a tree, its first tokens in passes of `sizes`, while `others` take steps. Gives its tokens."""
        self.seed += 1
        tokens, start = some_tokens(self.pair.decoder, len(parents), self.seed), 0
        for size in (*sizes, len(parents)):
            stop = min(start + size, len(parents))
            if stop == start:
                continue
            items = [Feed(other.rows, [9, 8]) for other in others]
            items.insert(len(items) // 2, Feed(self.rows, tokens[start:stop], stop - start, parents[:stop]))
            logits = self.pair.decoder.forward(items)
            before = sum(len(other.rows) for other in others[: len(others) // 2])
            count = len(self.rows) * (stop - start)
            self.check(logits[before : before + count], tokens, parents, range(start, stop))
            rest = torch.cat([logits[:before], logits[before + count :]])
            for other in others:
                other.texts = [[*text, 9, 8] for text in other.texts]
                self.pair.check(rest[: len(other.rows)], other.texts)
                rest = rest[len(other.rows) :]
            start = stop
        return tokens

    def check(self, logits: torch.Tensor, tokens: Sequence[int], parents: Sequence[int], nodes: range) -> None:
        paths = [[tokens[step] for step in path_to(parents, node)] for node in nodes]
        self.pair.check(logits, [text + path for text in self.texts for path in paths])

    def keep(self, fed: int, tokens: Sequence[int], path: Sequence[int]) -> None:
        self.rows.keep(fed, path)
        self.texts = [text + [tokens[node] for node in path] for text in self.texts]
        assert self.rows.fed == fed + len(path)

    def step(self) -> None:
        logits = self.pair.decoder.step(self.rows, [5, 6])
        self.texts = [[*text, 5, 6] for text in self.texts]
        self.pair.check(logits, self.texts)

    def close(self) -> None:
        self.pair.decoder.memory.give_back(self.rows)


def read_keep_step(pair: Pair) -> None:
    growing = Growing(pair)
    for parents, path in ((BRANCHED, [0, 2, 6]), (AFTER_A_CHAIN, [0, 1, 2, 3, 5, 6, 7, 8]), (BRANCHED, [3])):
        fed = growing.rows.fed
        growing.keep(fed, growing.read(parents), path)
        growing.step()
    growing.close()


@st.composite
def tree_parents(draw: st.DrawFn) -> list[int]:
    """A chain of some tokens with any tree behind it."""
    chain = draw(st.integers(0, 4))
    behind = [draw(st.integers(chain - 1, chain - 1 + size)) for size in range(draw(st.integers(1, 9)))]
    return [*range(-1, chain - 1), *behind]


class TestTrees:
    def test_every_token_and_what_follows_a_kept_path(self, pair: Pair) -> None:
        read_keep_step(pair)

    @few_pairs
    @settings(max_examples=6, deadline=None, derandomize=True)
    @given(rounds=st.lists(st.tuples(tree_parents(), st.lists(st.integers(1, 4), max_size=3), st.integers(0, 20))))
    def test_any_trees_read_in_any_parts_beside_other_answers(
        self, pair: Pair, rounds: list[tuple[list[int], list[int], int]]
    ) -> None:
        growing, others = Growing(pair), [Growing(pair), Growing(pair)]
        for parents, sizes, end in rounds[:3]:
            fed = growing.rows.fed
            tokens = growing.read(parents, sizes, others)
            growing.keep(fed, tokens, path_to(parents, end % len(parents)))
            growing.step()
        for each in (growing, *others):
            each.close()

    def test_several_trees_in_a_pass(self, llama: Pair) -> None:
        one, two = Growing(llama), Growing(llama)
        tokens = some_tokens(llama.decoder, 9, seed=4)
        logits = llama.decoder.forward(
            [Feed(one.rows, tokens, 9, BRANCHED), Feed(two.rows, tokens[:3], 3, [ROOT, ROOT, 1])]
        )
        one.check(logits[:36], tokens, BRANCHED, range(9))
        two.check(logits[36:], tokens, [ROOT, ROOT, 1], range(3))
        one.close()
        two.close()

    def test_a_tree_that_is_dropped_leaves_no_trace(self, llama: Pair) -> None:
        growing = Growing(llama)
        fed = growing.rows.fed
        growing.read(BRANCHED)
        growing.keep(fed, [], [])
        growing.step()
        growing.close()

    def test_a_chain_is_no_tree(self, llama: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        assert tree_of([ROOT, 0, 1]) is None
        # Of its own, in which rows that are taken one after the other lie side by side.
        monkeypatch.setattr(llama.decoder, "memory", KvMemory(llama.decoder.layout, llama.decoder.max_context))
        rows = [llama.decoder.open([[5] * 20] * 2, [6], 4)[0] for _ in range(2)]
        one, two = rows
        step = PackedPass([Feed(one, [7], 1, [ROOT]), Feed(two, [7])], llama.decoder.layout)
        assert len(step.groups) == 1
        assert step.view(step.groups[0], None, False) == KeyWindow(0)


class TestMutants:
    """Faults on purpose, which the comparisons above notice."""

    @few_pairs
    def test_places_instead_of_depths_as_positions(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        start = PackedPass.__init__

        def by_column(packed: PackedPass, *arguments: Any) -> None:
            start(packed, *arguments)
            packed.positions = packed._columns[None]

        monkeypatch.setattr(PackedPass, "__init__", by_column)
        with pytest.raises(AssertionError):
            read_keep_step(pair)

    @few_pairs
    def test_siblings_that_see_each_other(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        def later_only(tree: Tree, *arguments: Any) -> Sight:
            return tree_sight(Tree(tree.depths, np.tril(np.ones_like(tree.seen))), *arguments)

        monkeypatch.setattr(packed, "tree_sight", later_only)
        with pytest.raises(AssertionError):
            read_keep_step(pair)

    @pytest.mark.parametrize("pair", ["mistral", "gemma2"], indirect=True)
    def test_windows_by_place_instead_of_depth(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        def by_column(tree: Tree, *arguments: Any) -> Sight:
            return tree_sight(Tree(np.arange(len(tree)), tree.seen), *arguments)

        monkeypatch.setattr(packed, "tree_sight", by_column)
        with pytest.raises(AssertionError):
            read_keep_step(pair)

    @few_pairs
    def test_columns_that_stay_where_they_were(self, pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
        def only_counts(rows: Rows, fed: int, path: Sequence[int]) -> None:
            rows.fed = fed + len(path)

        monkeypatch.setattr(Rows, "keep", only_counts)
        with pytest.raises(AssertionError):
            read_keep_step(pair)


class TestInput:
    @pytest.mark.parametrize("parents", [[0, 0], [ROOT, 2, 1], [ROOT, -2], [ROOT, ROOT, 2]])
    def test_parents_after_children(self, llama: Pair, parents: list[int]) -> None:
        rows, _ = llama.decoder.open([[5]], [6], 8)
        with pytest.raises(ValueError, match="parents come before children"):
            llama.decoder.forward([Feed(rows, [7] * len(parents), 1, parents)])
        assert rows.answer == 0

    @pytest.mark.parametrize("count", [1, 4])
    def test_parents_that_do_not_fit_the_tokens(self, llama: Pair, count: int) -> None:
        rows, _ = llama.decoder.open([[5]], [6], 8)
        with pytest.raises(ValueError, match=f"{count} parents don't fit 2 tokens after 1"):
            llama.decoder.forward([Feed(rows, [7, 8], 1, [ROOT] * count)])

    @pytest.mark.parametrize(("fed", "path"), [(1, [0, 0]), (1, [1, 0]), (1, [3]), (1, [-1]), (-1, [0]), (5, [0])])
    def test_places_that_can_not_be_kept(self, llama: Pair, fed: int, path: list[int]) -> None:
        rows, _ = llama.decoder.open([[5]], [6], 8)
        llama.decoder.forward([Feed(rows, [7, 8, 9], 1, [ROOT, ROOT, 1])])
        with pytest.raises(ValueError, match="places must increase"):
            rows.keep(fed, path)
        assert rows.answer == 3
