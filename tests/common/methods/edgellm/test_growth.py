"""Trees as they grow, when they are complete, and how far they hold."""

from __future__ import annotations

import pytest

from common.answer.values import ROOT
from common.methods.edgellm.growth import (
    LEAST,
    MOST,
    AdaptiveGrowth,
    Candidate,
    EvenGrowth,
    Growth,
    NoGrowth,
    Threshold,
    TokenTree,
    match,
)

EOS = frozenset({9})


def grown(growth: Growth, steps: list[list[tuple[int, float]]], limit: int = 20) -> tuple[TokenTree, list[int]]:
    """The tree after some steps of a draft model, and the nodes that they were taken behind."""
    tree, behind = TokenTree(limit), []
    for step in steps:
        node = growth.leaf(tree)
        assert node is not None
        behind.append(node)
        candidates = [Candidate(*each) for each in step]
        tree.grow(node, growth.chosen(tree, node, candidates), EOS)
    return tree, behind


class TestThreshold:
    def test_golden(self) -> None:
        threshold = Threshold(0.01)
        threshold.judged(5, 5, 0.2)
        assert threshold.value == 0.005
        threshold.judged(9, 12, 0.004)
        assert threshold.value == pytest.approx(0.019882, abs=1e-6)
        threshold.judged(0, 12, 0.004)
        assert threshold.value == MOST

    def test_it_stays_within_its_limits(self) -> None:
        threshold = Threshold()
        for _ in range(20):
            threshold.judged(3, 3, 0.5)
        assert threshold.value == LEAST
        threshold.judged(0, 0, 1.0)
        assert threshold.value == LEAST


class TestAdaptive:
    def test_the_branch_that_lacks_most_is_extended(self) -> None:
        # M C - length of the leaves: .2 and -.4 of 2 nodes; -.1 and -.38 of 3; -1.4 and .16 of 4.
        steps = [[(1, 0.6), (2, 0.3)], [(3, 0.9)], [(4, 0.5)], [(5, 0.5)]]
        tree, behind = grown(AdaptiveGrowth(10, Threshold(0.05)), steps)
        assert behind == [ROOT, 0, 1, 2]
        assert tree.parents == [ROOT, ROOT, 0, 1, 2]
        assert tree.confidences == pytest.approx([0.6, 0.3, 0.54, 0.15, 0.27])

    def test_tokens_as_probable_as_the_threshold_enter(self) -> None:
        steps = [[(1, 0.5), (2, 0.1), (3, 0.099)], [(4, 0.5), (5, 0.2), (6, 0.19)]]
        tree, _ = grown(AdaptiveGrowth(10, Threshold(0.1)), steps)
        assert tree.tokens == [1, 2, 4, 5]

    def test_the_likeliest_enters_however_improbable(self) -> None:
        growth = AdaptiveGrowth(10, Threshold(0.1))
        tree, _ = grown(growth, [[(1, 0.05), (2, 0.04)]])
        assert tree.tokens == [1]
        assert growth.leaf(tree) is None

    def test_it_is_complete_at_its_size(self) -> None:
        growth = AdaptiveGrowth(3, Threshold(0.001))
        tree, _ = grown(growth, [[(1, 0.5), (2, 0.2)], [(3, 0.5), (4, 0.3)]])
        assert tree.tokens == [1, 2, 3]
        assert growth.leaf(tree) is None

    def test_nothing_grows_behind_an_end(self) -> None:
        growth = AdaptiveGrowth(9, Threshold(0.01))
        tree, _ = grown(growth, [[(9, 0.9), (1, 0.05)], [(9, 0.5)]])
        assert tree.tokens == [9, 1, 9]
        assert growth.leaf(tree) is None

    @pytest.mark.parametrize("growth", [AdaptiveGrowth(9, Threshold(0.01)), EvenGrowth(9)])
    def test_nothing_grows_beyond_the_answer(self, growth: Growth) -> None:
        tree, _ = grown(growth, [[(1, 0.9)], [(2, 0.9)]], limit=2)
        assert growth.leaf(tree) is None
        assert growth.leaf(TokenTree(0)) is None


class TestBaselines:
    def test_a_chain(self) -> None:
        growth = EvenGrowth(3)
        tree, behind = grown(growth, [[(1, 0.1), (2, 0.1)]] * 3)
        assert (tree.parents, behind) == ([ROOT, 0, 1], [ROOT, 0, 1])
        assert growth.leaf(tree) is None

    def test_a_fixed_width(self) -> None:
        growth = EvenGrowth(2, width=3)
        tree, behind = grown(growth, [[(1, 0.5), (2, 0.3), (3, 0.1), (4, 0.1)]] * 4)
        assert (tree.parents, behind) == ([ROOT, ROOT, ROOT, 0, 1, 2], [ROOT, 0, 1, 2])
        assert growth.leaf(tree) is None

    def test_nothing(self) -> None:
        assert NoGrowth().leaf(TokenTree(9)) is None


class TestMatching:
    #       1    2
    #     3 4    9
    #     5
    @staticmethod
    def tree() -> TokenTree:
        tree = TokenTree(9)
        for node, tokens in ((ROOT, (1, 2)), (0, (3, 4)), (1, (9,)), (2, (5,))):
            tree.grow(node, [Candidate(token, 0.5) for token in tokens], EOS)
        return tree

    @pytest.mark.parametrize(
        ("drawn", "nodes", "token", "whole"),
        [
            ({ROOT: 7}, (), 7, 3),
            ({ROOT: 1, 0: 4, 3: 8}, (0, 3), 8, 2),
            ({ROOT: 1, 0: 6}, (0,), 6, 3),
            ({ROOT: 1, 0: 3, 2: 5, 5: 1}, (0, 2, 5), 1, 3),
            ({ROOT: 2, 1: 9}, (1, 4), None, 2),
        ],
    )
    def test_the_way_down(self, drawn: dict[int, int], nodes: tuple[int, ...], token: int | None, whole: int) -> None:
        found = match(self.tree(), drawn)
        assert (found.nodes, found.token, found.whole) == (nodes, token, whole)

    def test_what_follows_a_node(self) -> None:
        below = self.tree().below(0)
        assert (below.tokens, below.parents, below.lengths, below.limit) == ([3, 4, 5], [ROOT, ROOT, 0], [1, 1, 2], 8)
        assert below.confidences == [0.5, 0.5, 0.25]
        assert (below.root_read, below.read) == (True, [0])
