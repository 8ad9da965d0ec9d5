"""Token trees, with the rules that grow and complete them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from common.answer.values import ROOT

# --- tree


class Candidate(NamedTuple):
    """A possible next token with its share of the speeds in the verifier's race.

    At temperature 0 that is the draft model's probability before the temperature.
    """

    token: int
    probability: float


class TokenTree:
    """A draft model's tree after the decided tokens; parents come first.

    A branch is a leaf with its ancestors. Its probability C is the product of its tokens' probabilities, its length
    their number. Nothing follows an end of the sequence or `limit` tokens.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.confidences: list[float] = []  # C up to each node
        self.lengths: list[int] = []  # up to each node
        self.read: list[int] = []  # by the draft model, in order
        self.root_read = False
        self.offered: dict[int, Sequence[Candidate]] = {}  # candidates after each read node
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
        """Note that the draft model has read `node` (or the ROOT); add `candidates` of `offered`."""
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
        """Note that the draft model has read `node` (or the ROOT)."""
        if node == ROOT:
            self.root_read = True
        else:
            self.read.append(node)

    def ends(self, node: int) -> bool:
        """Whether `node` ends the sequence."""
        return node in self._ends

    @property
    def open(self) -> list[int]:
        """The extensible leaves."""
        read = set(self.read)
        return [
            node
            for node, length in enumerate(self.lengths)
            if length < self.limit and node not in read and node not in self._ends
        ]

    @property
    def leaves(self) -> list[int]:
        inner = set(self.parents)
        return [node for node in range(len(self)) if node not in inner]

    @property
    def best(self) -> int:
        """The most probable branch's leaf, first of equals; ROOT if empty."""
        return max(self.leaves, key=lambda leaf: (self.confidences[leaf], -leaf), default=ROOT)

    @property
    def confidence(self) -> float:
        """T_c: the largest C of a branch; 1 if empty."""
        return 1.0 if not self.tokens else self.confidences[self.best]

    def child(self, node: int, token: int) -> int | None:
        return next((each for each in self._children(node) if self.tokens[each] == token), None)

    def path(self, node: int) -> list[int]:
        """The nodes from the root to `node`; empty for the ROOT."""
        found: list[int] = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node]
        return found[::-1]

    def reach(self, node: int) -> int:
        """The length of the longest branch through `node`."""
        longest = 0 if node == ROOT else self.lengths[node]
        below = {node}
        for each in range(len(self)):  # parents first
            if self.parents[each] in below:
                below.add(each)
                longest = max(longest, self.lengths[each])
        return longest

    def below(self, node: int) -> TokenTree:
        """The subtree after `node`, with C divided by the node's."""
        below = {node}
        for each, parent in enumerate(self.parents):  # parents first
            if parent in below:
                below.add(each)
        return self._part(node, below - {node})

    def pruned(self, nodes: Collection[int]) -> TokenTree:
        """The tree of `nodes` only, which must contain their parents."""
        return self._part(ROOT, set(nodes))

    def _part(self, root: int, kept: Collection[int]) -> TokenTree:
        confidence, length = (1.0, 0) if root == ROOT else (self.confidences[root], self.lengths[root])
        found = TokenTree(self.limit - length)
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


# --- matching


@dataclass(frozen=True, slots=True)
class Match:
    """Outcome of a verification."""

    nodes: tuple[int, ...]  # from the root
    token: int | None  # the next one; None after a sequence end
    whole: int  # N_all: length of the longest branch through the match

    @property
    def correct(self) -> int:
        """N_correct: matching tokens."""
        return len(self.nodes)


def match(tree: TokenTree, drawn: Mapping[int, int]) -> Match:
    """Follow the drawn tokens from the root while the tree has them.

    `drawn` has a token for the ROOT and all nodes except sequence ends, each drawn independently of the tree. So the
    outcome follows the verifier's distribution for any drafts.
    """
    node, token = ROOT, drawn[ROOT]
    nodes: list[int] = []
    while (child := tree.child(node, token)) is not None:
        nodes.append(child)
        if tree.ends(child):
            return Match(tuple(nodes), None, tree.reach(child))
        node, token = child, drawn[child]
    return Match(tuple(nodes), token, tree.reach(node))


# --- threshold
# A tree is verified when no branch's probability reaches the threshold α (EdgeLLM §III-C).
#
# If all drafts were right, α is halved. Otherwise it is divided by T_c^(wrong share): Eq. 3 by its text (printed is the
# wrong share alone). T_c is usually below α, so an entirely wrong tree would lead to more than 1.

FIRST: Final = 0.01  # α of a new answer, §III-C
LEAST: Final = 1e-4
MOST: Final = 0.5
_ALL_RIGHT: Final = 0.5  # α's factor, §III-C


class Threshold:
    def __init__(self, first: float = FIRST) -> None:
        self.value = first

    def judged(self, correct: int, whole: int, confidence: float) -> None:
        """`correct` of `whole` tokens of the best match were right; `confidence` is T_c."""
        if not whole:
            return
        if correct == whole:
            changed = self.value * _ALL_RIGHT
        else:
            wrong = (whole - correct) / whole
            changed = self.value / max(confidence, LEAST) ** wrong
        self.value = min(max(changed, LEAST), MOST)


# --- growth


class Growth(Protocol):
    """A rule that never depends on the verifier's tokens."""

    def leaf(self, tree: TokenTree) -> int | None:
        """The node to decode after, ROOT if empty; None if the tree is complete."""
        ...

    def chosen(self, tree: TokenTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The `candidates` (most probable first) to add."""
        ...

    def verified(self, tree: TokenTree) -> Sequence[int]:
        """The nodes to verify, with their parents; the rest is dropped."""
        ...

    def judged(self, tree: TokenTree, found: Match) -> None:
        """Learn from a verification."""
        ...


class WholeTreeRule:
    """Verifies the whole tree and learns nothing."""

    def verified(self, tree: TokenTree) -> Sequence[int]:
        return range(len(tree))

    def judged(self, tree: TokenTree, found: Match) -> None:
        """Ignore it."""


class AdaptiveGrowth(WholeTreeRule):
    """Grows where it is worth most (EdgeLLM §III-B).

    Among M nodes a branch deserves M C. The leaf with the largest M C - length is extended. Candidates with C at the
    threshold join the likeliest (ours; the paper leaves it open). The tree is complete with `size` nodes, or when no
    extensible branch reaches the threshold.
    """

    def __init__(self, size: int, threshold: Threshold) -> None:
        self._size = size
        self._threshold = threshold

    def leaf(self, tree: TokenTree) -> int | None:
        if len(tree) >= self._size or tree.limit < 1:
            return None
        if not tree.root_read:
            return ROOT
        leaves, nodes, probable = tree.open, len(tree), tree.confidences
        if max((probable[leaf] for leaf in leaves), default=0.0) < self._threshold.value:
            return None
        return max(leaves, key=lambda leaf: (nodes * probable[leaf] - tree.lengths[leaf], -leaf))

    def chosen(self, tree: TokenTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        probable = 1.0 if node == ROOT else tree.confidences[node]
        entering = [each for each in candidates[1:] if probable * each.probability >= self._threshold.value]
        return [*candidates[:1], *entering][: self._size - len(tree)]

    def judged(self, tree: TokenTree, found: Match) -> None:
        self._threshold.judged(found.correct, found.whole, tree.confidence)


class EvenGrowth(WholeTreeRule):
    """`width` branches of equal `length` from the first token on."""

    def __init__(self, length: int, width: int = 1) -> None:
        self._length, self._width = length, width

    def leaf(self, tree: TokenTree) -> int | None:
        if tree.limit < 1:
            return None
        if not tree.root_read:
            return ROOT
        shorter = [leaf for leaf in tree.open if tree.lengths[leaf] < self._length]
        return min(shorter, key=lambda leaf: (tree.lengths[leaf], leaf), default=None)

    def chosen(self, tree: TokenTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return candidates[: self._width if node == ROOT else 1]


class NoGrowth(WholeTreeRule):
    """Drafts nothing: the verifier decodes token by token."""

    def leaf(self, tree: TokenTree) -> int | None:
        return None

    def chosen(self, tree: TokenTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return ()


# --- agreement
# Probability that the verifier draws a candidate, learned from its draws.
#
# The draft model gives each candidate's speed share s_i = (q_i / E_i^T) / Σ_j q_j / E_j^T. The verifier's race uses the
# same noise E with its distribution p. For p = q the first candidate wins. If ln p_i differs from ln q_i by Gumbel
# noise of scale 1/κ, candidate i wins with probability
#
#     s_i^κ / Σ_j s_j^κ
#
# At temperature 0, s = q, and κ = 1 trusts the draft model. The models' distance varies by position. So each of a few κ
# has a weight, the share of recent positions it explains (EM).

EXPONENTS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
PRIOR: Final = (0.5, 1.0, 2.0, 1.0, 1.0)  # positions credited in advance
MEMORY: Final = 128  # positions
_STEPS: Final = 4  # of EM per position, from nearly right weights
_LEAST: Final = 1e-12  # least probability


class Agreement:
    """A draft model's agreement with a verifier, across answers. One thread writes, any reads."""

    def __init__(self, prior: Sequence[float] = PRIOR) -> None:
        """`prior`: positions credited per exponent, not negative, some positive."""
        self._exponents = np.asarray(EXPONENTS)
        self._prior = np.asarray(prior, np.float64)
        self._weights = self._prior / self._prior.sum()
        self._seen: deque[NDArray[np.float64]] = deque(maxlen=MEMORY)  # likelihoods by exponent

    def of(self, shares: Sequence[float]) -> list[float]:
        """Each candidate's chance to be drawn, from positive `shares` with sum at most 1.

        Unlisted tokens have the rest.
        """
        return np.minimum(self._weights @ self._wins(shares), 1.0).tolist() if len(shares) else []

    def judged(self, shares: Sequence[float], drawn: int | None) -> None:
        """Note the drawn candidate's index; None: an unlisted token."""
        if not len(shares):
            return
        wins = self._wins(shares)
        likely = 1.0 - wins.sum(axis=1) if drawn is None else wins[:, drawn]
        self._seen.append(np.maximum(likely, _LEAST))  # improbable tokens occur, too
        seen, weights = np.stack(self._seen), self._weights
        for _ in range(_STEPS):
            explained = weights * seen
            counts = self._prior + (explained / explained.sum(axis=1, keepdims=True)).sum(axis=0)
            weights = counts / counts.sum()
        self._weights = weights  # one assignment, for concurrent readers

    def _wins(self, shares: Sequence[float]) -> NDArray[np.float64]:
        """`[exponents, candidates]`."""
        logs = np.log(np.asarray(shares, np.float64))
        # Prevents overflow.
        powers = np.exp(self._exponents[:, None] * (logs - logs.max()))
        # Unlisted tokens count as tokens of the last listed share.
        last, rest = float(logs.min()), max(0.0, 1.0 - math.fsum(shares))
        unlisted = np.exp(self._exponents * (last - logs.max())) * (rest / math.exp(last))
        return np.asarray(powers / (powers.sum(axis=1) + unlisted)[:, None])


# --- times

WINDOW: Final = 32  # steps, and passes
# The prior of a node's time weighs as a window of passes with this standard deviation of node counts. Passes of one
# size tell nothing, and other disk users look like it.
_SPREAD: Final = 16.0


class TreeTimes:
    """Seconds of a draft step, a verifying pass and each node, across answers.

    One thread reports draft steps, one passes; any may read. `verify` (positive) is a pass without nodes, `node` the
    time per node.
    """

    def __init__(self, draft: float, verify: float, node: float = 0.0) -> None:
        """Set the priors. Raises `ValueError` for impossible ones."""
        if not (0.0 <= draft < math.inf and 0.0 < verify < math.inf and 0.0 <= node < math.inf):
            raise ValueError(f"a draft step of {draft} s, a pass of {verify} s and {node} s a node are not possible")
        self.draft, self.verify, self.node = draft, verify, node
        self._believed = node
        self._drafts: deque[float] = deque(maxlen=WINDOW)
        self._passes: deque[tuple[int, float]] = deque(maxlen=WINDOW)  # nodes, seconds

    def drafted(self, seconds: float) -> None:
        self._drafts.append(max(0.0, seconds))
        self.draft = median(self._drafts)

    def verified(self, nodes: int, seconds: float) -> None:
        """Note a pass that read little besides `nodes` nodes."""
        self._passes.append((nodes, max(0.0, seconds)))
        self.node, self.verify = self._fitted()

    def _fitted(self) -> tuple[float, float]:
        """Seconds per node (least squares with the prior), and of an empty pass."""
        sure = WINDOW * _SPREAD**2
        nodes, seconds = (fmean(each) for each in zip(*self._passes, strict=True))
        both = sum((one - nodes) * (other - seconds) for one, other in self._passes)
        spread = sum((one - nodes) ** 2 for one, _ in self._passes)
        node = max(0.0, (sure * self._believed + both) / (sure + spread))
        least = min(taken for _, taken in self._passes) / 2  # if the slope is slightly wrong
        return node, max(median(taken - node * count for count, taken in self._passes), least, 1e-9)


# --- best_first
# Trees with the most expected tokens per second, grown best first.
#
# If nodes match with probabilities C_i (of their branches), a tree decides 1 + Σ C_i expected tokens. A round takes
#
#     T = draft steps · T_S + T_L + nodes · T_N
#
# A node is verified while C > (1 + Σ C) / T · T_N, which raises the tokens per second. Nodes enter by decreasing C, so
# parents come first, and one run finds the best trees of all sizes. A draft step is worthwhile while its expected
# tokens exceed (1 + Σ C) / T · T_S. The answer's end saves a pass: steps towards it may count that pass and the tokens
# on the way.


@dataclass(frozen=True, slots=True)
class ChosenNodes:
    """The nodes to verify, most probable first, and the round's result."""

    nodes: tuple[int, ...]
    expected: float  # tokens
    seconds: float

    @property
    def rate(self) -> float:
        return self.expected / self.seconds


class BestFirst:
    """Implements `Growth`. Keeps drafts that may still be among the `size` best."""

    def __init__(self, size: int, times: TreeTimes, agreement: Agreement) -> None:
        """`times` and `agreement` may come from earlier answers."""
        self._size, self._times, self._agreement = size, times, agreement

    def leaf(self, tree: TokenTree) -> int | None:
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

    def chosen(self, tree: TokenTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        branch = 1.0 if node == ROOT else tree.confidences[node]
        known = sorted(tree.confidences, reverse=True)
        least = known[self._size - 1] if len(known) >= self._size else 0.0
        probable = self._agreement.of([each.probability for each in candidates])
        entering = [Candidate(each.token, held) for each, held in zip(candidates, probable, strict=True)]
        return [each for each in entering if branch * each.probability > least][: self._size]

    def verified(self, tree: TokenTree) -> Sequence[int]:
        return self.choice(tree).nodes

    def judged(self, tree: TokenTree, found: Match) -> None:
        following = [*(tree.tokens[node] for node in found.nodes), found.token]
        for node, token in zip((ROOT, *found.nodes), following, strict=True):
            offered = tree.offered.get(node)
            if offered is None or token is None:
                continue
            place = next((place for place, each in enumerate(offered) if each.token == token), None)
            self._agreement.judged([each.probability for each in offered], place)

    def choice(self, tree: TokenTree) -> ChosenNodes:
        """The best nodes worth their time, at most `size`."""
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
        return ChosenNodes(tuple(nodes), expected, seconds)

    def _gain(self, tree: TokenTree, now: ChosenNodes, probable: float, shares: Sequence[float]) -> float:
        """Expected tokens of a draft step after a leaf of C `probable`."""
        least = self._least(tree, now)
        return sum(max(0.0, probable * share - least) for share in shares)

    def _least(self, tree: TokenTree, now: ChosenNodes) -> float:
        """A further node costs time, or displaces another."""
        least = now.rate * self._times.node
        return max(least, tree.confidences[now.nodes[-1]]) if len(now.nodes) == self._size else least


@dataclass(frozen=True, slots=True)
class End:
    """A possible end of the answer after a branch."""

    length: int
    probability: float


def _ends(tree: TokenTree) -> list[End]:
    """The limit and the likeliest end, with its probability given that length."""
    found = [End(tree.limit, 1.0)]
    probable, lengths = tree.confidences, tree.lengths
    if ends := [node for node in range(len(tree)) if tree.ends(node)]:
        length = lengths[max(ends, key=probable.__getitem__)] - 1
        ending = sum(probable[node] for node in ends if lengths[node] > length)
        reaching = (length == 0) + sum(probable[node] for node in tree.read if lengths[node] >= length)
        found.append(End(length, min(1.0, ending / reaching)))
    return found


def _finish(tree: TokenTree, leaf: int, end: End, share: float, least: float, further: float) -> float:
    """Expected tokens per draft step to an end; each step keeps `share` of C.

    A finished answer needs no further pass, so an end is worth its `further` tokens. Returns 0 if the end's C is not
    above `least`.
    """
    steps, probable = max(1, end.length - tree.lengths[leaf]), tree.confidences[leaf]
    reached = probable * share**steps
    if reached <= least:
        return 0.0
    tokens = probable * steps if share == 1.0 else (probable - reached) * share / (1.0 - share)
    return (tokens + end.probability * reached * further) / steps


def _shares(tree: TokenTree) -> list[float]:
    """Shares of the first, second and further candidates in the read nodes' C."""
    found: list[float] = []
    ranks: dict[int, int] = {}
    for node, parent in enumerate(tree.parents):
        rank = ranks[parent] = ranks.get(parent, -1) + 1
        if rank == len(found):
            found.append(0.0)
        found[rank] += tree.confidences[node]
    read = tree.root_read + sum(tree.confidences[node] for node in tree.read)
    return [share / read for share in found]
