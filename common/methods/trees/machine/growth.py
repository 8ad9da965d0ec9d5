"""Rules by which a tree grows, one token of the draft model per step, and by which it is complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from common.answer.values import ROOT
from common.methods.trees.machine.matching import Match
from common.methods.trees.machine.threshold import Threshold
from common.methods.trees.machine.tree import Candidate, DraftTree


class Growth(Protocol):
    """A rule of growth. It never depends on what the verifier draws."""

    def leaf(self, tree: DraftTree) -> int | None:
        """The node behind which the draft model decodes next, ROOT where nothing is drafted yet; None: the tree is
        complete.
        """
        ...

    def chosen(self, tree: DraftTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The tokens that are added behind `node`, of `candidates`, the most probable first."""
        ...

    def verified(self, tree: DraftTree) -> Sequence[int]:
        """The nodes of a complete tree that the verifier reads, each with its parent; the others are dropped."""
        ...

    def judged(self, tree: DraftTree, found: Match) -> None:
        """Take in how far a tree held."""
        ...


class Whole:
    """The part of a rule that has the whole tree verified, and learns nothing."""

    def verified(self, tree: DraftTree) -> Sequence[int]:
        return range(len(tree))

    def judged(self, tree: DraftTree, found: Match) -> None:
        """Nothing depends on it."""


class Adaptive(Whole):
    """Grows where it is worth most (EdgeLLM §III-B): of M nodes, a branch of probability C should have M C.

    The leaf with the largest M C - length is extended. What is nearly as probable as the likeliest token enters beside
    it: all with C of at least the threshold (ours; the paper leaves open how branches begin). Complete with `size`
    nodes, or when no branch that may be extended is as probable as the threshold.
    """

    def __init__(self, size: int, threshold: Threshold) -> None:
        self._size = size
        self._threshold = threshold

    def leaf(self, tree: DraftTree) -> int | None:
        if len(tree) >= self._size or tree.limit < 1:
            return None
        if not tree.root_read:
            return ROOT
        leaves, nodes, probable = tree.open, len(tree), tree.confidences
        if max((probable[leaf] for leaf in leaves), default=0.0) < self._threshold.value:
            return None
        return max(leaves, key=lambda leaf: (nodes * probable[leaf] - tree.lengths[leaf], -leaf))

    def chosen(self, tree: DraftTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        probable = 1.0 if node == ROOT else tree.confidences[node]
        entering = [each for each in candidates[1:] if probable * each.probability >= self._threshold.value]
        return [*candidates[:1], *entering][: self._size - len(tree)]

    def judged(self, tree: DraftTree, found: Match) -> None:
        self._threshold.judged(found.correct, found.whole, tree.confidence)


class Even(Whole):
    """`width` branches of the same `length`, which part at the first token: a chain where the width is 1."""

    def __init__(self, length: int, width: int = 1) -> None:
        self._length, self._width = length, width

    def leaf(self, tree: DraftTree) -> int | None:
        if tree.limit < 1:
            return None
        if not tree.root_read:
            return ROOT
        shorter = [leaf for leaf in tree.open if tree.lengths[leaf] < self._length]
        return min(shorter, key=lambda leaf: (tree.lengths[leaf], leaf), default=None)

    def chosen(self, tree: DraftTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return candidates[: self._width if node == ROOT else 1]


class Nothing(Whole):
    """Drafts nothing: the verifier decodes token by token."""

    def leaf(self, tree: DraftTree) -> int | None:
        return None

    def chosen(self, tree: DraftTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return ()
