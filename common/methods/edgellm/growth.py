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
# The tree of tokens that a draft model grows after the decided tokens.


class Candidate(NamedTuple):
    """A possible next token with the draft model's probability.

    The probability is the token's share of the speeds in the verifier's race. At temperature 0 it is the probability
    before the temperature.
    """

    token: int
    probability: float


class TokenTree:
    """Nodes in order of addition, parents first.

    A branch is a leaf with its ancestors. Its probability C is the product of its tokens' probabilities, its length
    their number. Nothing is added after an end of the sequence or beyond `limit` tokens.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.confidences: list[float] = []  # C of the branch up to each node
        self.lengths: list[int] = []  # of the branch up to each node
        self.read: list[int] = []  # nodes that the draft model has read, in that order
        self.root_read = False
        self.offered: dict[int, Sequence[Candidate]] = {}  # the draft model's candidates after each read node
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
        """Note that the draft model has read `node` or the ROOT; add `candidates` after it.

        `candidates` are the chosen ones of those `offered`.
        """
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
        """Note that the draft model has read `node` or the ROOT."""
        if node == ROOT:
            self.root_read = True
        else:
            self.read.append(node)

    def ends(self, node: int) -> bool:
        """Whether `node` is an end of the sequence."""
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
        """The last nodes of all branches."""
        inner = set(self.parents)
        return [node for node in range(len(self)) if node not in inner]

    @property
    def best(self) -> int:
        """The first leaf with the most probable branch; ROOT if empty."""
        return max(self.leaves, key=lambda leaf: (self.confidences[leaf], -leaf), default=ROOT)

    @property
    def confidence(self) -> float:
        """T_c: the largest C of a branch; 1 if empty."""
        return 1.0 if not self.tokens else self.confidences[self.best]

    def child(self, node: int, token: int) -> int | None:
        """The child of `node` with `token`, or None."""
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
        for each in range(len(self)):  # parents come first
            if self.parents[each] in below:
                below.add(each)
                longest = max(longest, self.lengths[each])
        return longest

    def below(self, node: int) -> TokenTree:
        """The subtree after `node`, with probabilities divided by the node's C."""
        below = {node}
        for each, parent in enumerate(self.parents):  # parents come first
            if parent in below:
                below.add(each)
        return self._part(node, below - {node})

    def pruned(self, nodes: Collection[int]) -> TokenTree:
        """The tree restricted to `nodes`, whose parents must be among them or the ROOT."""
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
# The matching part of a tree, given the verifier's tokens after its nodes.


@dataclass(frozen=True, slots=True)
class Match:
    """Outcome of a verification."""

    nodes: tuple[int, ...]  # matching nodes, from the root
    token: int | None  # the next token; None after an end of the sequence
    whole: int  # N_all: the length of the best matching branch, the longest of several

    @property
    def correct(self) -> int:
        """N_correct: matching tokens of that branch."""
        return len(self.nodes)


def match(tree: TokenTree, drawn: Mapping[int, int]) -> Match:
    """Descend from the root while the drawn token is a child of the node.

    `drawn` has the token after the ROOT and after every node except sequence ends. Each token was drawn from the
    verifier's distribution without regard to the tree. So the outcome follows that distribution for any drafts.
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
# The threshold of branches' probabilities: a tree is verified when no branch reaches it (EdgeLLM §III-C).
#
# The threshold α follows the quality of the drafts. If all drafts were right, α is halved. Otherwise it is divided by
# T_c^(wrong share): Eq. 3 according to its text (the printed formula has the wrong share alone). T_c is usually below
# α, so an entirely wrong tree would lead to more than 1.

FIRST: Final = 0.01  # α of a new answer, §III-C
LEAST: Final = 1e-4
MOST: Final = 0.5
_ALL_RIGHT: Final = 0.5  # α's factor, §III-C


class Threshold:
    def __init__(self, first: float = FIRST) -> None:
        self.value = first

    def judged(self, correct: int, whole: int, confidence: float) -> None:
        """Update α: `correct` of `whole` tokens of the best matching branch were right.

        `confidence` is the tree's T_c.
        """
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
    """A growth rule. It never depends on the verifier's tokens."""

    def leaf(self, tree: TokenTree) -> int | None:
        """The node to decode after, ROOT for an empty tree; None if the tree is complete."""
        ...

    def chosen(self, tree: TokenTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The `candidates` (most probable first) to add after `node`."""
        ...

    def verified(self, tree: TokenTree) -> Sequence[int]:
        """The nodes to verify in a complete tree, with their parents; the others are dropped."""
        ...

    def judged(self, tree: TokenTree, found: Match) -> None:
        """Learn from a verification."""
        ...


class WholeTreeRule:
    """A rule that verifies the whole tree and learns nothing."""

    def verified(self, tree: TokenTree) -> Sequence[int]:
        return range(len(tree))

    def judged(self, tree: TokenTree, found: Match) -> None:
        """Ignore the outcome."""


class AdaptiveGrowth(WholeTreeRule):
    """Grows where it is worth most (EdgeLLM §III-B).

    Among M nodes, a branch of probability C deserves M C nodes. The leaf with the largest M C - length is extended.
    Candidates with a C of at least the threshold enter beside the likeliest (ours; the paper does not say how branches
    begin). The tree is complete with `size` nodes, or when no extensible branch reaches the threshold.
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
    """`width` branches of equal `length` that part at the first token; a chain for width 1."""

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
# The draft model gives each candidate's share of the speeds, s_i = (q_i / E_i^T) / Σ_j q_j / E_j^T, in the verifier's
# race. That race uses the same noise E with the verifier's distribution p. For p = q the first candidate wins. If ln
# p_i differs from ln q_i by Gumbel noise of scale 1/κ, candidate i wins with probability
#
#     s_i^κ / Σ_j s_j^κ
#
# At temperature 0, s = q, and κ = 1 trusts the draft model's probabilities. The distance of two models varies by
# position. So each of a few κ has a weight, the share of recent positions that it explains (EM).

EXPONENTS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
PRIOR: Final = (0.5, 1.0, 2.0, 1.0, 1.0)  # positions credited to each exponent in advance
MEMORY: Final = 128  # latest positions that count
_STEPS: Final = 4  # EM steps after each position; the weights were nearly right before
_LEAST: Final = 1e-12  # least probability


class Agreement:
    """The agreement of a draft model and a verifier, across answers. One thread reports draws; any may read."""

    def __init__(self, prior: Sequence[float] = PRIOR) -> None:
        """`prior`: positions credited to each exponent, not negative, some positive."""
        self._exponents = np.asarray(EXPONENTS)
        self._prior = np.asarray(prior, np.float64)
        self._weights = self._prior / self._prior.sum()
        self._seen: deque[NDArray[np.float64]] = deque(maxlen=MEMORY)  # likelihoods of the drawn tokens, by exponent

    def of(self, shares: Sequence[float]) -> list[float]:
        """The probability of each candidate to be drawn, from the positive `shares` of all.

        The shares sum to at most 1. Unlisted tokens have the rest.
        """
        return np.minimum(self._weights @ self._wins(shares), 1.0).tolist() if len(shares) else []

    def judged(self, shares: Sequence[float], drawn: int | None) -> None:
        """Note the drawn candidate among those with `shares`; None: an unlisted token."""
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
        """Probabilities of the candidates by exponent, `[exponents, candidates]`."""
        logs = np.log(np.asarray(shares, np.float64))
        # Dividing by the largest prevents overflow.
        powers = np.exp(self._exponents[:, None] * (logs - logs.max()))
        # Unlisted tokens are no more probable than the last listed one: they count as tokens of that share.
        last, rest = float(logs.min()), max(0.0, 1.0 - math.fsum(shares))
        unlisted = np.exp(self._exponents * (last - logs.max())) * (rest / math.exp(last))
        return np.asarray(powers / (powers.sum(axis=1) + unlisted)[:, None])


# --- times
# Measured times of growing and verifying trees. No clock is read.

WINDOW: Final = 32  # steps, and passes, that count
# Strength of the prior for a node's time: a window of passes with this standard deviation of their node counts. Passes
# of one size tell nothing about it, and other disk users look like it.
_SPREAD: Final = 16.0


class TreeTimes:
    """Seconds of a draft step, of a verifying pass, and of each node, across answers.

    One thread reports draft steps and one reports passes; any may read. `draft` is a draft step, `verify` (positive) a
    pass without nodes, and `node` the extra time per node.
    """

    def __init__(self, draft: float, verify: float, node: float = 0.0) -> None:
        """Set the priors, in seconds. Raises `ValueError` for impossible ones."""
        if not (0.0 <= draft < math.inf and 0.0 < verify < math.inf and 0.0 <= node < math.inf):
            raise ValueError(f"a draft step of {draft} s, a pass of {verify} s and {node} s a node are not possible")
        self.draft, self.verify, self.node = draft, verify, node
        self._believed = node
        self._drafts: deque[float] = deque(maxlen=WINDOW)
        self._passes: deque[tuple[int, float]] = deque(maxlen=WINDOW)  # nodes, seconds

    def drafted(self, seconds: float) -> None:
        """Note a draft step."""
        self._drafts.append(max(0.0, seconds))
        self.draft = median(self._drafts)

    def verified(self, nodes: int, seconds: float) -> None:
        """Note a pass that read `nodes` nodes and little else."""
        self._passes.append((nodes, max(0.0, seconds)))
        self.node, self.verify = self._fitted()

    def _fitted(self) -> tuple[float, float]:
        """Seconds per node (least squares with the prior), and of a pass without nodes."""
        sure = WINDOW * _SPREAD**2
        nodes, seconds = (fmean(each) for each in zip(*self._passes, strict=True))
        both = sum((one - nodes) * (other - seconds) for one, other in self._passes)
        spread = sum((one - nodes) ** 2 for one, _ in self._passes)
        node = max(0.0, (sure * self._believed + both) / (sure + spread))
        least = min(taken for _, taken in self._passes) / 2  # guards against a slightly wrong slope
        return node, max(median(taken - node * count for count, taken in self._passes), least, 1e-9)


# --- best_first
# Trees with the most expected tokens per second, grown best first while worthwhile.
#
# If nodes match with probabilities C_i (of their branches), a tree decides 1 + Σ C_i tokens in expectation. A round
# takes
#
#     T = draft steps · T_S + T_L + nodes · T_N
#
# A node is verified while C > (1 + Σ C) / T · T_N, because it increases the tokens per second. Nodes enter by
# decreasing C, so parents come first and one run finds the best trees of all sizes. A draft step is worthwhile while
# its expected tokens exceed (1 + Σ C) / T · T_S. A step towards the answer's end, which saves a pass, is worthwhile
# while that pass and the tokens before the end exceed it.


@dataclass(frozen=True, slots=True)
class ChosenNodes:
    """The nodes to verify, most probable first, and the result of a round with them."""

    nodes: tuple[int, ...]
    expected: float  # tokens
    seconds: float

    @property
    def rate(self) -> float:
        """Expected tokens per second."""
        return self.expected / self.seconds


class BestFirst:
    """Implements `Growth`. Keeps all drafts that may still be among the `size` best nodes."""

    def __init__(self, size: int, times: TreeTimes, agreement: Agreement) -> None:
        """`times` and `agreement` may come from earlier answers, and continue to learn."""
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
        """The best nodes, at most `size`, that are worth their time."""
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
        """The expected tokens of a draft step after a leaf with C `probable`; `shares`: of its candidates."""
        least = self._least(tree, now)
        return sum(max(0.0, probable * share - least) for share in shares)

    def _least(self, tree: TokenTree, now: ChosenNodes) -> float:
        """The least value of a further node, which costs time or displaces another."""
        least = now.rate * self._times.node
        return max(least, tree.confidences[now.nodes[-1]]) if len(now.nodes) == self._size else least


@dataclass(frozen=True, slots=True)
class End:
    """A possible end of the answer, after a branch of this length."""

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
    """The expected tokens per draft step on the way from a leaf to an end.

    Each step keeps this `share` of C. A finished answer needs no further pass, so an end is worth the `further` tokens
    of a pass. Returns 0 if the end's C would not exceed `least`.
    """
    steps, probable = max(1, end.length - tree.lengths[leaf]), tree.confidences[leaf]
    reached = probable * share**steps
    if reached <= least:
        return 0.0
    tokens = probable * steps if share == 1.0 else (probable - reached) * share / (1.0 - share)
    return (tokens + end.probability * reached * further) / steps


def _shares(tree: TokenTree) -> list[float]:
    """Mean shares of the first, second and further candidates in the C of read nodes."""
    found: list[float] = []
    ranks: dict[int, int] = {}
    for node, parent in enumerate(tree.parents):
        rank = ranks[parent] = ranks.get(parent, -1) + 1
        if rank == len(found):
            found.append(0.0)
        found[rank] += tree.confidences[node]
    read = tree.root_read + sum(tree.confidences[node] for node in tree.read)
    return [share / read for share in found]
