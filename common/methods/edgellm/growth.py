"""Token trees, and rules by which a tree grows, one token of the draft model per step, and by which it is complete."""

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
# The tree of tokens that a draft model grows behind the decided part of an answer.


class Candidate(NamedTuple):
    """A token that may follow, with its probability by the draft model: its share of the speeds in the verifier's race,
    which is its probability before the temperature where that is 0.
    """

    token: int
    probability: float


class TokenTree:
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

    def below(self, node: int) -> TokenTree:
        """The tree that follows `node`: there it has happened, so probabilities are divided by its C."""
        below = {node}
        for each, parent in enumerate(self.parents):  # parents come first
            if parent in below:
                below.add(each)
        return self._part(node, below - {node})

    def pruned(self, nodes: Collection[int]) -> TokenTree:
        """The tree with these `nodes` only. The parent of each must be one of them, or the ROOT."""
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
# The part of a tree that holds, given the tokens that the verifier drew behind its nodes.


@dataclass(frozen=True, slots=True)
class Match:
    """Outcome of a verification."""

    nodes: tuple[int, ...]  # that hold, from the root
    token: int | None  # that follows them; None behind an end of the sequence
    whole: int  # N_all: the length of the branch that matched longest, the longest of several

    @property
    def correct(self) -> int:
        """N_correct: tokens of that branch that hold."""
        return len(self.nodes)


def match(tree: TokenTree, drawn: Mapping[int, int]) -> Match:
    """Descend from the root while the token that was drawn behind a node is one of its children.

    `drawn` has the token behind the ROOT and behind every node but ends of the sequence. Each was drawn from the
    verifier's distribution there, without regard to the tree: so the outcome follows it, whatever was drafted.
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
# The threshold of branches' probabilities: a tree is verified when none of its branches reaches it (EdgeLLM §III-C).
#
# The probability α that is enough follows how good the drafts were: where all of them were right it is halved,
# otherwise it is divided by T_c^(wrong share): Eq. 3 as its text has it; printed is the wrong share alone. T_c is below
# α as a rule, so that a tree of which nothing was right would lead to more than 1.

FIRST: Final = 0.01  # α of a new answer, §III-C
LEAST: Final = 1e-4
MOST: Final = 0.5
_ALL_RIGHT: Final = 0.5  # α's factor, §III-C


class Threshold:
    """α of one answer."""

    def __init__(self, first: float = FIRST) -> None:
        self.value = first

    def judged(self, correct: int, whole: int, confidence: float) -> None:
        """Note that of the `whole` tokens of the branch that matched best `correct` were right, in a tree with
        T_c = `confidence`.
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
    """A rule of growth. It never depends on what the verifier draws."""

    def leaf(self, tree: TokenTree) -> int | None:
        """The node behind which the draft model decodes next, ROOT where nothing is drafted yet; None: the tree is
        complete.
        """
        ...

    def chosen(self, tree: TokenTree, node: int, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The tokens that are added behind `node`, of `candidates`, the most probable first."""
        ...

    def verified(self, tree: TokenTree) -> Sequence[int]:
        """The nodes of a complete tree that the verifier reads, each with its parent; the others are dropped."""
        ...

    def judged(self, tree: TokenTree, found: Match) -> None:
        """Take in how far a tree held."""
        ...


class WholeTreeRule:
    """The part of a rule that has the whole tree verified, and learns nothing."""

    def verified(self, tree: TokenTree) -> Sequence[int]:
        return range(len(tree))

    def judged(self, tree: TokenTree, found: Match) -> None:
        """Nothing depends on it."""


class AdaptiveGrowth(WholeTreeRule):
    """Grows where it is worth most (EdgeLLM §III-B): of M nodes, a branch of probability C should have M C.

    The leaf with the largest M C - length is extended. What is nearly as probable as the likeliest token enters beside
    it: all with C of at least the threshold (ours; the paper leaves open how branches begin). Complete with `size`
    nodes, or when no branch that may be extended is as probable as the threshold.
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
    """`width` branches of the same `length`, which part at the first token: a chain where the width is 1."""

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
# Probability that the verifier draws what the draft model holds probable, learnt from what it drew.
#
# The draft model tells each candidate's share of the speeds, s_i = (q_i / E_i^T) / Σ_j q_j / E_j^T, in the race that
# the verifier will run with the same noise E on its own distribution p. If both distributions were the same, the first
# one would win. If ln p_i is ln q_i off by Gumbel noise of the scale 1/κ, candidate i wins with probability
#
#     s_i^κ / Σ_j s_j^κ
#
# and at temperature 0, where s = q, κ = 1 believes the draft model's own probabilities. How far apart two models are
# differs from place to place, so each κ of a few has a weight, the share of the latest places that it explains (EM).

EXPONENTS: Final = (0.25, 0.5, 1.0, 2.0, 4.0)
PRIOR: Final = (0.5, 1.0, 2.0, 1.0, 1.0)  # places that each is believed to have explained
MEMORY: Final = 128  # latest places that count
_STEPS: Final = 4  # of EM after each of them; the weights were nearly right before it
_LEAST: Final = 1e-12  # of a probability


class Agreement:
    """Of one draft model and one verifier; of use in many answers. One thread tells of what was drawn, any may ask."""

    def __init__(self, prior: Sequence[float] = PRIOR) -> None:
        """`prior` are places, not negative and some of them positive, that each of the `EXPONENTS` is believed to have
        explained.
        """
        self._exponents = np.asarray(EXPONENTS)
        self._prior = np.asarray(prior, np.float64)
        self._weights = self._prior / self._prior.sum()
        self._seen: deque[NDArray[np.float64]] = deque(maxlen=MEMORY)  # likelihoods of what was drawn, by exponent

    def of(self, shares: Sequence[float]) -> list[float]:
        """Probability that each candidate is drawn, from the positive shares of all candidates, whose sum is 1
        at most: the rest is of tokens that are not listed.
        """
        return np.minimum(self._weights @ self._wins(shares), 1.0).tolist() if len(shares) else []

    def judged(self, shares: Sequence[float], drawn: int | None) -> None:
        """Note which of the candidates with these `shares` the verifier drew; None: a token that is not listed."""
        if not len(shares):
            return
        wins = self._wins(shares)
        likely = 1.0 - wins.sum(axis=1) if drawn is None else wins[:, drawn]
        self._seen.append(np.maximum(likely, _LEAST))  # what was thought impossible happens, too
        seen, weights = np.stack(self._seen), self._weights
        for _ in range(_STEPS):
            explained = weights * seen
            counts = self._prior + (explained / explained.sum(axis=1, keepdims=True)).sum(axis=0)
            weights = counts / counts.sum()
        self._weights = weights  # as a whole, for those who read meanwhile

    def _wins(self, shares: Sequence[float]) -> NDArray[np.float64]:
        """Probabilities of the candidates by exponent, `[exponents, candidates]`."""
        logs = np.log(np.asarray(shares, np.float64))
        # The largest is the unit: no power overflows.
        powers = np.exp(self._exponents[:, None] * (logs - logs.max()))
        # What is not listed is no more probable than the last that is: as if it were tokens of that share.
        last, rest = float(logs.min()), max(0.0, 1.0 - math.fsum(shares))
        unlisted = np.exp(self._exponents * (last - logs.max())) * (rest / math.exp(last))
        return np.asarray(powers / (powers.sum(axis=1) + unlisted)[:, None])


# --- times
# Times of growing and verifying trees, as they were seen. No clock is read.

WINDOW: Final = 32  # steps, and passes, that count
# The time of a node is believed to be the prior's as firmly as if a window of passes had shown it, whose sizes differed
# by so many nodes (standard deviation): passes of one size say nothing of it, and others' use of a disk looks like it.
_SPREAD: Final = 16.0


class TreeTimes:
    """Seconds of a draft step, of a verifying pass, and of every node in it; of use in many answers.

    One thread tells of draft steps and one of passes; what they come to may be read by any: `draft` is a draft step,
    `verify` a pass without nodes, more than 0, and `node` what a node adds to a pass.
    """

    def __init__(self, draft: float, verify: float, node: float = 0.0) -> None:
        """Takes what is believed before the first, in seconds. Raises `ValueError` for what is not possible."""
        if not (0.0 <= draft < math.inf and 0.0 < verify < math.inf and 0.0 <= node < math.inf):
            raise ValueError(f"a draft step of {draft} s, a pass of {verify} s and {node} s a node are not possible")
        self.draft, self.verify, self.node = draft, verify, node
        self._believed = node
        self._drafts: deque[float] = deque(maxlen=WINDOW)
        self._passes: deque[tuple[int, float]] = deque(maxlen=WINDOW)  # nodes, seconds

    def drafted(self, seconds: float) -> None:
        """Take in a draft step."""
        self._drafts.append(max(0.0, seconds))
        self.draft = median(self._drafts)

    def verified(self, nodes: int, seconds: float) -> None:
        """Take in a pass that read `nodes` nodes and little else."""
        self._passes.append((nodes, max(0.0, seconds)))
        self.node, self.verify = self._fitted()

    def _fitted(self) -> tuple[float, float]:
        """Seconds of a node, by least squares drawn towards the prior, and of a pass without nodes."""
        sure = WINDOW * _SPREAD**2
        nodes, seconds = (fmean(each) for each in zip(*self._passes, strict=True))
        both = sum((one - nodes) * (other - seconds) for one, other in self._passes)
        spread = sum((one - nodes) ** 2 for one, _ in self._passes)
        node = max(0.0, (sure * self._believed + both) / (sure + spread))
        least = min(taken for _, taken in self._passes) / 2  # of a slope that is a little wrong
        return node, max(median(taken - node * count for count, taken in self._passes), least, 1e-9)


# --- best_first
# Trees that give the most expected tokens per second: best first, for as long as it is worth the time.
#
# A tree whose nodes hold with probabilities C_i (of the branches up to them) decides 1 + Σ C_i tokens in expectation,
# and a round takes
#
#     T = draft steps · T_S + T_L + nodes · T_N
#
# A node is verified while C > (1 + Σ C) / T · T_N: it gives more tokens per second than the round without it. Nodes
# enter in the order of C, so each comes after its parent, and the best trees of all sizes are found in one go. A draft
# step is worth it while what it is expected to add is more than (1 + Σ C) / T · T_S; and where it leads to the end of
# the answer, which needs no further pass, while that and the tokens on the way to it are.


@dataclass(frozen=True, slots=True)
class ChosenNodes:
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
        return ChosenNodes(tuple(nodes), expected, seconds)

    def _gain(self, tree: TokenTree, now: ChosenNodes, probable: float, shares: Sequence[float]) -> float:
        """Expected tokens that a draft step behind a leaf of this C adds, if candidates have these shares of it."""
        least = self._least(tree, now)
        return sum(max(0.0, probable * share - least) for share in shares)

    def _least(self, tree: TokenTree, now: ChosenNodes) -> float:
        """The least value of a further node: it costs time, or the place of another."""
        least = now.rate * self._times.node
        return max(least, tree.confidences[now.nodes[-1]]) if len(now.nodes) == self._size else least


@dataclass(frozen=True, slots=True)
class End:
    """A possible end of the answer: behind a branch of this length, with this probability."""

    length: int
    probability: float


def _ends(tree: TokenTree) -> list[End]:
    """The limit, and where a branch is most probable to end, with the probability that those which got so far do."""
    found = [End(tree.limit, 1.0)]
    probable, lengths = tree.confidences, tree.lengths
    if ends := [node for node in range(len(tree)) if tree.ends(node)]:
        length = lengths[max(ends, key=probable.__getitem__)] - 1
        ending = sum(probable[node] for node in ends if lengths[node] > length)
        reaching = (length == 0) + sum(probable[node] for node in tree.read if lengths[node] >= length)
        found.append(End(length, min(1.0, ending / reaching)))
    return found


def _finish(tree: TokenTree, leaf: int, end: End, share: float, least: float, further: float) -> float:
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


def _shares(tree: TokenTree) -> list[float]:
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
