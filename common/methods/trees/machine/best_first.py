"""Trees that give the most expected tokens per second: best first, for as long as it is worth the time.

A tree whose nodes hold with probabilities C_i (of the branches up to them) decides 1 + Σ C_i tokens in expectation, and
a round takes

    T = draft steps · T_S + T_L + nodes · T_N

A node is verified while C > (1 + Σ C) / T · T_N: it gives more tokens per second than the round without it. Nodes enter
in the order of C, so each comes after its parent, and the best trees of all sizes are found in one go. A draft step is
worth it while what it is expected to add is more than (1 + Σ C) / T · T_S; and where it leads to the end of the answer,
which needs no further pass, while that and the tokens on the way to it are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.answer.values import ROOT
from common.methods.trees.machine.agreement import Agreement
from common.methods.trees.machine.matching import Match
from common.methods.trees.machine.times import TreeTimes
from common.methods.trees.machine.tree import Candidate, DraftTree


@dataclass(frozen=True, slots=True)
class Chosen:
    """The nodes that are to be verified, the most probable first, and what a round with them gives."""

    nodes: tuple[int, ...]
    expected: float  # tokens
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.expected / self.seconds


class BestFirst:
    """Implements `Growth`. The tree holds all that was drafted and may yet be among its `size` best nodes."""

    def __init__(self, size: int, times: TreeTimes, agreement: Agreement) -> None:
        """`times` and `agreement` may have learnt from earlier answers, and go on learning."""
        self._size, self._times, self._agreement = size, times, agreement

    def leaf(self, tree: DraftTree) -> int | None:
        if tree.limit < 1:
            return None
        if not tree.root_read:
            return ROOT
        leaves, shares = tree.open, _shares(tree)
        if not leaves or not shares or len(tree.read) >= self._size:
            return None
        now = self.choice(tree)
        worth = now.rate * self._times.draft
        best = max(leaves, key=lambda leaf: (tree.confidences[leaf], -leaf))
        if self._gain(tree, now, tree.confidences[best], shares) > worth:
            return best
        ends, least, further = _ends(tree), self._least(tree, now), now.expected - 1.0
        gains = {leaf: max(_finish(tree, leaf, end, shares[0], least, further) for end in ends) for leaf in leaves}
        best = max(leaves, key=lambda leaf: (gains[leaf], -leaf))
        return best if gains[best] > worth else None

    def chosen(self, tree: DraftTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        branch = 1.0 if node == ROOT else tree.confidences[node]
        known = sorted(tree.confidences, reverse=True)
        least = known[self._size - 1] if len(known) >= self._size else 0.0
        probable = self._agreement.of([each.probability for each in candidates])
        entering = [Candidate(each.token, held) for each, held in zip(candidates, probable, strict=True)]
        return [each for each in entering if branch * each.probability > least][: self._size]

    def verified(self, tree: DraftTree) -> Sequence[int]:
        return self.choice(tree).nodes

    def judged(self, tree: DraftTree, found: Match) -> None:
        following = [*(tree.tokens[node] for node in found.nodes), found.token]
        for node, token in zip((ROOT, *found.nodes), following, strict=True):
            offered = tree.offered.get(node)
            if offered is None or token is None:
                continue
            place = next((place for place, each in enumerate(offered) if each.token == token), None)
            self._agreement.judged([each.probability for each in offered], place)

    def choice(self, tree: DraftTree) -> Chosen:
        """The best `size` nodes at most, as far as each is worth its time."""
        probable, each = tree.confidences, self._times.node
        expected, seconds = 1.0, self._times.verify + self._times.draft * (len(tree.read) + tree.root_read)
        nodes: list[int] = []
        drafts = (node for node in range(len(tree)) if not tree.ends(node))  # the verifier draws an end by itself
        for node in sorted(drafts, key=lambda node: (-probable[node], node))[: self._size]:
            if probable[node] * seconds <= expected * each:
                break
            nodes.append(node)
            expected += probable[node]
            seconds += each
        return Chosen(tuple(nodes), expected, seconds)

    def _gain(self, tree: DraftTree, now: Chosen, probable: float, shares: Sequence[float]) -> float:
        """Expected tokens that a draft step behind a leaf of this C adds, if candidates have these shares of it."""
        least = self._least(tree, now)
        return sum(max(0.0, probable * share - least) for share in shares)

    def _least(self, tree: DraftTree, now: Chosen) -> float:
        """The least value of a further node: it costs time, or the place of another."""
        least = now.rate * self._times.node
        return max(least, tree.confidences[now.nodes[-1]]) if len(now.nodes) == self._size else least


@dataclass(frozen=True, slots=True)
class End:
    """A possible end of the answer: behind a branch of this length, with this probability."""

    length: int
    probability: float


def _ends(tree: DraftTree) -> list[End]:
    """The limit, and where a branch is most probable to end, with the probability that those which got so far do."""
    found = [End(tree.limit, 1.0)]
    probable, lengths = tree.confidences, tree.lengths
    if ends := [node for node in range(len(tree)) if tree.ends(node)]:
        length = lengths[max(ends, key=probable.__getitem__)] - 1
        ending = sum(probable[node] for node in ends if lengths[node] > length)
        reaching = (length == 0) + sum(probable[node] for node in tree.read if lengths[node] >= length)
        found.append(End(length, min(1.0, ending / reaching)))
    return found


def _finish(tree: DraftTree, leaf: int, end: End, share: float, least: float, further: float) -> float:
    """Expected tokens per draft step, if steps behind a leaf go on to an end, each with this share of the C before.

    An answer that is over needs no further pass: an end is worth the `further` tokens that a pass would give. Nothing,
    where its node would have less than the `least` C.
    """
    steps, probable = max(1, end.length - tree.lengths[leaf]), tree.confidences[leaf]
    reached = probable * share**steps
    if reached <= least:
        return 0.0
    tokens = probable * steps if share == 1.0 else (probable - reached) * share / (1.0 - share)
    return (tokens + end.probability * reached * further) / steps


def _shares(tree: DraftTree) -> list[float]:
    """Shares of the likeliest, second and further candidates behind the nodes that were read in these nodes' C."""
    found: list[float] = []
    ranks: dict[int, int] = {}
    for node, parent in enumerate(tree.parents):
        rank = ranks[parent] = ranks.get(parent, -1) + 1
        if rank == len(found):
            found.append(0.0)
        found[rank] += tree.confidences[node]
    read = tree.root_read + sum(tree.confidences[node] for node in tree.read)
    return [share / read for share in found]
