"""The tree of tokens that a draft model grows behind the decided part of an answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from common.answer.values import ROOT


class Candidate(NamedTuple):
    """A token that may follow, with its probability by the draft model: its share of the speeds in the verifier's race,
    which is its probability before the temperature where that is 0.
    """

    token: int
    probability: float


class DraftTree:
    """Nodes in the order in which they were added, parents first.

    A branch is a leaf with what leads to it. Its probability C is the product of those that its tokens were added with,
    its length the number of its tokens. Nothing is added behind an end of the sequence, or behind `limit` tokens.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.confidences: list[float] = []  # C of the branch up to each node
        self.lengths: list[int] = []  # of the branch up to each node
        self.read: list[int] = []  # nodes that the draft model has read, in that order; it knows what follows them
        self.root_read = False
        self.offered: dict[int, Sequence[Candidate]] = {}  # what the draft model told behind nodes that it has read
        self._ends: set[int] = set()

    def __len__(self) -> int:
        return len(self.tokens)

    def grow(
        self,
        node: int,
        candidates: Sequence[Candidate],
        eos: Collection[int],
        offered: Sequence[Candidate] = (),
    ) -> None:
        """Note that the draft model has read `node`, or the ROOT, and add `candidates` of those `offered` behind it."""
        self.note_read(node)
        if offered:
            self.offered[node] = offered
        confidence, length = (1.0, 0) if node == ROOT else (self.confidences[node], self.lengths[node])
        for token, probability in candidates:
            if token in eos:
                self._ends.add(len(self))
            self.tokens.append(token)
            self.parents.append(node)
            self.confidences.append(confidence * probability)
            self.lengths.append(length + 1)

    def note_read(self, node: int) -> None:
        """Note that the draft model has read `node`, or the ROOT."""
        if node == ROOT:
            self.root_read = True
        else:
            self.read.append(node)

    def ends(self, node: int) -> bool:
        """Whether `node` is an end of the sequence."""
        return node in self._ends

    @property
    def open(self) -> list[int]:
        """The leaves that may be extended."""
        read = set(self.read)
        return [
            node
            for node, length in enumerate(self.lengths)
            if length < self.limit and node not in read and node not in self._ends
        ]

    @property
    def leaves(self) -> list[int]:
        """The last nodes of all branches."""
        inner = set(self.parents)
        return [node for node in range(len(self)) if node not in inner]

    @property
    def best(self) -> int:
        """The leaf of the most probable branch, the first of equals; ROOT of an empty tree."""
        return max(self.leaves, key=lambda leaf: (self.confidences[leaf], -leaf), default=ROOT)

    @property
    def confidence(self) -> float:
        """T_c: the largest C of a branch; 1 of an empty tree."""
        return 1.0 if not self.tokens else self.confidences[self.best]

    def child(self, node: int, token: int) -> int | None:
        """The node of `token` behind `node`, if there is one."""
        return next((each for each in self._children(node) if self.tokens[each] == token), None)

    def path(self, node: int) -> list[int]:
        """The nodes that lead to `node`, that itself last; none for the ROOT."""
        found: list[int] = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        return found[::-1]

    def reach(self, node: int) -> int:
        """The length of the longest branch through `node`."""
        longest = 0 if node == ROOT else self.lengths[node]
        below = {node}
        for each in range(len(self)):  # parents come first
            if self.parents[each] in below:
                below.add(each)
                longest = max(longest, self.lengths[each])
        return longest

    def below(self, node: int) -> DraftTree:
        """The tree that follows `node`: there it has happened, so probabilities are divided by its C."""
        below = {node}
        for each, parent in enumerate(self.parents):  # parents come first
            if parent in below:
                below.add(each)
        return self._part(node, below - {node})

    def pruned(self, nodes: Collection[int]) -> DraftTree:
        """The tree with these `nodes` only. The parent of each must be one of them, or the ROOT."""
        return self._part(ROOT, set(nodes))

    def _part(self, root: int, kept: Collection[int]) -> DraftTree:
        confidence, length = (1.0, 0) if root == ROOT else (self.confidences[root], self.lengths[root])
        found = DraftTree(self.limit - length)
        places = {root: ROOT}
        for each in sorted(kept):
            places[each] = len(found)
            if each in self._ends:
                found._ends.add(len(found))
            found.tokens.append(self.tokens[each])
            found.parents.append(places[self.parents[each]])
            found.confidences.append(self.confidences[each] / confidence)
            found.lengths.append(self.lengths[each] - length)
        found.root_read = self.root_read if root == ROOT else root in self.read
        found.read = [places[each] for each in self.read if each in kept]
        found.offered = {places[each]: told for each, told in self.offered.items() if each in places}
        return found

    def _children(self, node: int) -> Iterator[int]:
        return (each for each, parent in enumerate(self.parents) if parent == node)
