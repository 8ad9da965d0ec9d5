"""One answer as a state machine: a tree is verified while the next grows (EdgeLLM §III).

Drafts during a verification follow the tree's most probable branch. They start the next tree if that branch matches
wholly and the verifier's next token is among their first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from common.answer.values import ROOT, Action, Commit, Finish, FinishReason, TreeWork
from common.methods.edgellm.growth import Candidate, Growth, Match, TokenTree, match
from proto.messages import Side


@dataclass(frozen=True, slots=True)
class TreeConfig:
    """Parameters of one answer."""

    eos: frozenset[int]
    max_tokens: int
    ahead: bool = False  # draft during a verification

    def ends(self, token: int, length: int) -> bool:
        """Whether an answer of `length` tokens ending in `token` is complete."""
        return token in self.eos or length >= self.max_tokens


@dataclass(frozen=True, slots=True)
class Verified:
    """Actions of a verification, and the index of each token's distribution."""

    places: tuple[int, ...]
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DraftStep:
    """A wanted step: the node to decode after, and the reading."""

    tree: TokenTree
    node: int
    reading: TreeWork


@dataclass(slots=True)
class TreeCounters:
    drafted: int = 0  # steps
    late: int = 0  # steps of finished rounds
    ahead: int = 0  # steps during a verification
    kept: int = 0  # those kept for the next tree
    rounds: int = 0  # verifications
    nodes: int = 0  # verified
    accepted: int = 0
    rejected: int = 0  # rounds whose best branch did not match wholly


class TreeRounds:
    """One answer's drafter and verifier. Both models request work and report results."""

    aggregator: ClassVar[Side] = "device"

    def __init__(self, config: TreeConfig, growth: Growth, decided: Sequence[int] = ()) -> None:
        """`decided`: initial tokens of the answer."""
        self.config = config
        self.counters = TreeCounters()
        self.epoch = 0  # finished verifications
        self.finished: FinishReason | None = None
        self._growth = growth
        self._path = list(decided)
        self._tree = self._new_tree()
        self._verifying = False
        self._ahead: TokenTree | None = None  # after the best branch, during a verification
        self._step: DraftStep | None = None  # latest result of the growth rule
        self._stale = True  # a tree has changed since

    @property
    def position(self) -> int:
        return len(self._path)

    @property
    def provisional(self) -> tuple[int, ...]:
        """The most probable branch after the decided tokens."""
        return tuple(
            tree.tokens[node] for tree in (self._tree, self._ahead) if tree is not None for node in tree.path(tree.best)
        )

    # --- the draft model

    def draft(self) -> TreeWork | None:
        """The draft model's next reading, or None."""
        found = self._wanted()
        return None if found is None else found.reading

    def drafted(self, reading: TreeWork, candidates: Sequence[Candidate]) -> None:
        """Add the candidates after `draft`'s reading, likeliest first, at least one."""
        self.counters.drafted += 1
        found = self._wanted()
        if found is None or reading != found.reading:
            self.counters.late += 1
            return
        tree, node = found.tree, found.node
        if tree is self._ahead:
            self.counters.ahead += 1
            if node == ROOT and (leaf := self._tree.best) != ROOT:
                self._tree.note_read(leaf)
        tree.grow(node, self._growth.chosen(tree, node, candidates), self.config.eos, candidates)
        self._stale = True

    # --- the verifier

    def verify(self) -> TreeWork | None:
        """The verifier's next reading, which ends the growth; None while the tree grows."""
        if self.finished is not None or (not self._verifying and self._wanted() is not None):
            return None
        if not self._verifying:
            self._verifying = self._stale = True
            self._tree = self._tree.pruned(self._growth.verified(self._tree))
            self._ahead = self._new_ahead()
        tree, nodes = self._tree, self._verified_nodes()
        places = {ROOT: ROOT} | {node: place for place, node in enumerate(nodes)}
        tokens = tuple(tree.tokens[node] for node in nodes)
        parents = tuple(places[tree.parents[node]] for node in nodes)
        return TreeWork(self.epoch, tuple(self._path), tokens, parents, len(nodes) + 1)

    def verified(self, reading: TreeWork, tokens: Sequence[int]) -> Verified:
        """Decide by the tokens drawn for `verify`'s reading."""
        if self.finished is not None or not self._verifying or reading.epoch != self.epoch:
            return Verified((), ())
        nodes = [ROOT, *self._verified_nodes()]
        found = match(self._tree, dict(zip(nodes, tokens, strict=True)))
        self._count(found, len(nodes) - 1)
        self._growth.judged(self._tree, found)
        decided = [self._tree.tokens[node] for node in found.nodes] + ([] if found.token is None else [found.token])
        places = [0, *(nodes.index(node) for node in found.nodes[: len(decided) - 1])]
        actions: list[Action] = []
        for order, token in enumerate(decided):
            actions.append(Commit(self.position, token, False, None, None, {"device": order < found.correct}))
            self._path.append(token)
        if self.config.ends(self._path[-1], self.position):
            self.finished = "stop" if self._path[-1] in self.config.eos else "length"
            actions.append(Finish(self.finished))
        self._tree = self._next_tree(found)
        self._ahead, self._verifying, self._stale = None, False, True
        self.epoch += 1
        return Verified(tuple(places), tuple(actions))

    # --- inside

    def _new_tree(self) -> TokenTree:
        # The verifier adds a token to any branch, so the last one need not be drafted.
        return TokenTree(self.config.max_tokens - 1 - self.position)

    def _new_ahead(self) -> TokenTree | None:
        leaf = self._tree.best
        if not self.config.ahead or (leaf != ROOT and leaf not in self._tree.open):
            return None
        return TokenTree(self._tree.limit - (0 if leaf == ROOT else self._tree.lengths[leaf]))

    def _next_tree(self, found: Match) -> TokenTree:
        ahead, leaf = self._ahead, self._tree.best
        if ahead is None or found.token is None or (found.nodes[-1] if found.nodes else ROOT) != leaf:
            return self._new_tree()
        first = ahead.child(ROOT, found.token)
        if first is None or ahead.ends(first):
            return self._new_tree()
        kept = ahead.below(first)
        self.counters.kept += 1 + kept.root_read + len(kept.read)
        return kept

    def _wanted(self) -> DraftStep | None:
        """Cached: both models ask, and the rule takes noticeable time."""
        if self._stale:
            self._step, self._stale = self._next_step(), False
        return self._step

    def _next_step(self) -> DraftStep | None:
        tree = self._ahead if self._verifying else self._tree
        if self.finished is not None or tree is None:
            return None
        node = self._growth.leaf(tree)
        return None if node is None else DraftStep(tree, node, self._draft_reading(tree, node))

    def _draft_reading(self, growing: TokenTree, node: int) -> TreeWork:
        """All nodes that the draft model has read, then `node` of `growing`."""
        tokens: list[int] = []
        parents: list[int] = []
        base = ROOT  # index of the tree's root
        for tree in (self._tree, self._ahead):
            if tree is None:
                continue
            order = list(tree.read)
            if tree is growing:
                order += [] if node == ROOT else [node]
            elif growing is self._ahead and node == ROOT and tree.best != ROOT:
                order.append(tree.best)
            places = {ROOT: base}
            for each in order:
                places[each] = len(tokens)
                tokens.append(tree.tokens[each])
                parents.append(places[tree.parents[each]])
            base = places.get(tree.best, base)
        return TreeWork(self.epoch, tuple(self._path), tuple(tokens), tuple(parents))

    def _verified_nodes(self) -> list[int]:
        """All except sequence ends."""
        return [node for node in range(len(self._tree)) if not self._tree.ends(node)]

    def _count(self, found: Match, nodes: int) -> None:
        counters = self.counters
        counters.rounds += 1
        counters.nodes += nodes
        counters.accepted += found.correct
        counters.rejected += found.correct < found.whole
