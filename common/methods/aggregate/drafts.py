"""The drafts of one session, local and remote (DRAGON §3: Draft Queues).

The local drafts form a tree of prefixes with the committed prefix as root. A decoded prefix has a draft: its next
distribution, whose fastest token is drafted. The chain follows the drafted tokens from the root. Branches leave the
chain by likely tokens. If the target is on a branch, its draft exists already, and the rejection costs no round trip.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from math import exp, log
from typing import Final

from common.answer.values import ROOT, SideDraft, TreeWork, View
from common.estimates.estimators import FAINT, SpeculationLimits
from proto.codes import EMPTY, extend

# --- foresight
# Chances of tokens to be the target, foreseen from one side's own race.
#
# Both sides share all randomness, so the target is among a side's fastest few tokens. Its chance is proportional to a
# power of its speed. The power, learned from decided positions, grows with the agreement of the sides.

Rivals = Sequence[tuple[int, float]]  # fastest tokens of a side with log speeds, its draft first

_FIRST: Final = 3.0  # initial power
_SURE: Final = 1.0  # information (1 / variance) of the initial power
_MEMORY: Final = 60.0  # positions
_LEAST: Final = 0.2
_MOST: Final = 40.0


@dataclass(slots=True)
class Foresight:
    """The power, learned by one Newton step per decided position (concave likelihood)."""

    power: float = _FIRST
    _information: float = _SURE

    def chances(self, rivals: Rivals) -> list[float]:
        """Each rival's chance to be the target; the fastest is first, the sum 1."""
        if not rivals:
            return []
        first = rivals[0][1]
        weights = [exp(self.power * (speed - first)) for _, speed in rivals]
        total = sum(weights)
        return [weight / total for weight in weights]

    def observe(self, rivals: Rivals, target: int) -> None:
        """Learn from the winner `target`, if among `rivals`."""
        won = next((speed for token, speed in rivals if token == target), None)
        if won is None:
            return
        chances = self.chances(rivals)
        mean = sum(chance * speed for chance, (_, speed) in zip(chances, rivals, strict=True))
        variance = sum(chance * (speed - mean) ** 2 for chance, (_, speed) in zip(chances, rivals, strict=True))
        # Memory counts positions: at a low power, one position's information would outweigh all later ones.
        self._information = max(_SURE, self._information * (1.0 - 1.0 / _MEMORY) + variance)
        self.power = min(max(self.power + (won - mean) / self._information, _LEAST), _MOST)


# --- values


@dataclass(frozen=True, slots=True)
class DraftWork(TreeWork):
    """A step for the distributions after `prefixes`."""

    prefixes: tuple[tuple[int, int], ...] = ()  # position and digest of each
    chained: bool = True  # the first prefix is on the chain, the others on branches

    @property
    def position(self) -> int:
        return self.prefixes[0][0]

    @property
    def digest(self) -> int:
        return self.prefixes[0][1]

    @property
    def made(self) -> str:
        return "drafted" if self.chained else "branched"

    @property
    def positions(self) -> int:
        return 1


# --- tree

MOST_BRANCHES: Final = 128  # decoded prefixes beside the chain
ROOM: Final = 64  # tokens for branches in the rows, beyond an answer
MOST_CANDIDATES: Final = 1024  # remembered prefixes, before a clean-up
FAINTEST: Final = FAINT**2  # least chance of a remembered branch, which grows as its prefix is decided


class Node:
    """A prefix of the tree."""

    __slots__ = ("chance", "children", "digest", "draft", "dropped", "parent", "position", "rivals", "token")

    def __init__(self, parent: Node | None, token: int, position: int, digest: int, chance: float) -> None:
        self.parent = parent
        self.token = token  # the last
        self.position = position  # length
        self.digest = digest
        self.chance = chance  # logarithm, from the answer's beginning
        self.draft: SideDraft | None = None
        self.rivals: Rivals = ()  # of its draft, if branching
        self.children: dict[int, Node] = {}
        self.dropped = False  # rejected


class PrefixTree:
    """The local drafts, and the prefixes to decode next."""

    def __init__(self, retain: int, eos: frozenset[int], max_tokens: int, rivals: Callable[[View], Rivals]) -> None:
        """Keep up to `retain` decided drafts until the other side has decided them.

        Where both sides decide, the slower one may still need them. `rivals` lists a view's fastest tokens.
        """
        self.foresight = Foresight()
        self.branches = 0  # drafts on branches
        self.used = 0  # rejections that continued on a branch
        self._eos = eos
        self._max_tokens = max_tokens
        self._rivals_of = rivals
        self._retired: deque[SideDraft] = deque(maxlen=retain)
        self._order = count()
        self._start(Node(None, ROOT, 0, EMPTY, 0.0))

    def _start(self, root: Node) -> None:
        self.root = root
        self._decoded: dict[int, Node] = {}  # by digest, in decoding order
        self.footprint = 0  # bytes of their drafts on the other side
        self._candidates: list[tuple[float, int, Node]] = []  # heap, likeliest first
        self._asked: list[Node] = []
        self._chained: Node | None = None  # at the chain's end

    # --- what was drafted

    @property
    def chain(self) -> tuple[int, ...]:
        tokens: list[int] = []
        node: Node | None = self.root
        while node is not None and node.draft is not None:
            tokens.append(node.draft.view.token)
            node = node.children.get(tokens[-1])
        return tuple(tokens)

    def first(self) -> SideDraft | None:
        """The draft after the committed prefix."""
        return self.root.draft

    def since(self, position: int) -> list[SideDraft]:
        """The drafts from `position` on, retained ones first."""
        held = (node.draft for node in self._decoded.values() if node.draft is not None)
        return [draft for draft in (*self._retired, *held) if draft.position >= position]

    def find(self, position: int, digest: int) -> SideDraft | None:
        """The draft at `position` after `digest`, undecided or retained."""
        node = self._decoded.get(digest)
        if node is not None:
            return node.draft if node.position == position else None
        return next((each for each in self._retired if (each.position, each.digest) == (position, digest)), None)

    def complete(self, position: int, digest: int, view: View) -> None:
        """Attach the looked-up `view` to the undecided draft."""
        node = self._decoded.get(digest)
        if node is not None and node.position == position and node.draft is not None:
            node.draft.completed = view

    # --- what to decode

    def ask(self, epoch: int, committed: Sequence[int], ahead: SpeculationLimits) -> DraftWork | None:
        """The next step: the chain's end and worthwhile branches; None if empty."""
        for node in self._asked:
            if node is not self._chained:
                self._remember(node)
        self._asked, self._chained = [], None
        end = self._end()
        if self._allowed(end, ahead):
            self._asked.append(end)
            self._chained = end
        if ahead.branching:
            self._asked += self._branches(ahead, end)
        return self._work(epoch, committed) if self._asked else None

    def _end(self) -> Node:
        node = self.root
        while node.draft is not None:
            token = node.draft.view.token
            following = node.children.get(token)
            node = self._child(node, token, node.chance) if following is None else following
        return node

    def _allowed(self, node: Node, ahead: SpeculationLimits) -> bool:
        beyond = node.position - self.root.position
        return beyond < ahead.max_drafts and node.position < self._max_tokens and node.token not in self._eos

    def _branches(self, ahead: SpeculationLimits, end: Node) -> list[Node]:
        found: list[Node] = []
        later: list[tuple[float, int, Node]] = []
        faint, worth = self.root.chance + log(FAINT), self.root.chance + log(ahead.min_chance)
        chain = end.position - self.root.position  # drafts of the chain, which needs room
        left = self._max_tokens - self.root.position
        held = len(self._decoded) + len(self._asked)
        room = (
            min(left - max(0, min(ahead.max_drafts, left) - chain) + ahead.spare_tokens, chain + MOST_BRANCHES) - held
        )
        while self._candidates and len(found) < min(ahead.max_rows - len(self._asked), room):
            candidate = self._candidates[0]
            node = candidate[2]
            least = faint if len(found) < ahead.free_branches else worth
            if not node.dropped and node.draft is None and -candidate[0] < least:
                break
            heapq.heappop(self._candidates)
            if node.dropped or node.draft is not None or node is end:
                continue
            if self._allowed(node, ahead):
                found.append(node)
            elif node.token not in self._eos:
                later.append(candidate)
        for candidate in later:
            heapq.heappush(self._candidates, candidate)
        return found

    def _work(self, epoch: int, committed: Sequence[int]) -> DraftWork:
        """Decode the requested prefixes after the path common to all live ones."""
        asked = set(self._asked)
        path, node = list(committed), self.root
        while node not in asked:
            live = [child for child in node.children.values() if child.draft is not None or child in asked]
            if len(live) != 1:
                break
            (node,) = live
            path.append(node.token)
        prefixes = tuple((each.position, each.digest) for each in self._asked)
        chained = self._asked[0] is self._chained
        if len(path) == self._asked[0].position and len(asked) == 1:
            return DraftWork(epoch, tuple(path), prefixes=prefixes, chained=chained)
        base = len(path)
        tree = [each for each in self._decoded.values() if each.position > base] + self._asked
        places = {each: place for place, each in enumerate(tree)}
        places[node] = ROOT
        parents = tuple(places[each.parent] for each in tree if each.parent is not None)
        tokens = tuple(each.token for each in tree)
        return DraftWork(epoch, tuple(path), tokens, parents, len(asked), prefixes, chained)

    # --- events

    def drafted(self, draft: SideDraft, branching: bool) -> bool:
        """Add a draft; False if its prefix was decided or rejected. `branching`: prepare branches."""
        asked = (each for each in self._asked if (each.digest, each.position) == (draft.digest, draft.position))
        node = next(asked, None)
        if node is None:
            return False
        self._asked.remove(node)
        node.draft = draft
        self._decoded[node.digest] = node
        self.footprint += draft.footprint
        self.branches += node is not self._chained
        if branching:
            self._branch(node)
        return True

    def _branch(self, node: Node) -> None:
        assert node.draft is not None
        rivals = node.rivals = self._rivals_of(node.draft.view)
        faintest = self.root.chance + log(FAINTEST)
        for (token, _), chance in zip(rivals, self.foresight.chances(rivals), strict=True):
            if chance > 0.0 and node.chance + log(chance) >= faintest:
                self._remember(self._child(node, token, node.chance + log(chance)))

    def commit(self, token: int) -> bool:
        """Append `token` to the committed prefix. Returns whether the requested step is useless now."""
        old = self.root
        new = old.children.pop(token, None)
        for node in islice(_below(old), 1, None):
            self._drop(node)
        old.children.clear()
        if old.draft is not None:
            self.foresight.observe(old.rivals, token)
            self._retired.append(old.draft)
            self._forget(old)
        if new is None:
            new = Node(None, token, old.position + 1, extend(old.digest, token), old.chance)
        new.parent = None
        self.root = new
        rejected = old.draft is not None and old.draft.view.token != token
        self.used += rejected and new.draft is not None
        asked = self._asked
        useless = all(node.dropped for node in asked)
        old.dropped = True  # may still be in `_candidates`
        self._asked = [node for node in asked if not node.dropped]
        if asked:
            return useless
        return rejected and new.draft is None

    def settle(self, position: int) -> None:
        """Drop retained drafts before `position`: the other side has decided them."""
        while self._retired and self._retired[0].position < position:
            self._retired.popleft()

    def clear(self, position: int, digest: int) -> None:
        """Restart at a prefix cut to `position` tokens."""
        for node in _below(self.root):
            node.dropped = True
        self._retired.clear()
        self._start(Node(None, ROOT, position, digest, 0.0))

    # --- small pieces

    def _child(self, node: Node, token: int, chance: float) -> Node:
        child = node.children.get(token)
        if child is None:
            child = Node(node, token, node.position + 1, extend(node.digest, token), chance)
            node.children[token] = child
        else:
            child.chance = chance
        return child

    def _remember(self, node: Node) -> None:
        if len(self._candidates) >= MOST_CANDIDATES:
            self._candidates = [each for each in self._candidates if not each[2].dropped and each[2].draft is None]
            heapq.heapify(self._candidates)
        heapq.heappush(self._candidates, (-node.chance, next(self._order), node))

    def _drop(self, node: Node) -> None:
        node.dropped, node.parent = True, None
        self._forget(node)

    def _forget(self, node: Node) -> None:
        self._decoded.pop(node.digest, None)
        self.footprint -= 0 if node.draft is None else node.draft.footprint


def _below(root: Node) -> Iterator[Node]:
    """`root` and its descendants, parents first."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children.values())


# --- remote

BRANCHES = 64  # drafts kept per position
MOST = 1024  # drafts kept in all
MOST_BYTES = 2**26  # a single draft may exceed it
ENOUGH_BYTES = 3 * 2**24  # of undecided drafts, at which a side stops drafting


class RemoteDrafts:
    """The other side's drafts by position and prefix digest.

    A draft after a rejected prefix is never found, so never aggregated. Each position keeps its newest prefixes.
    """

    def __init__(self) -> None:
        self._drafts: dict[int, dict[int, SideDraft]] = {}
        self._count = 0
        self._bytes = 0

    def put(self, position: int, digest: int, draft: SideDraft) -> None:
        branches = self._drafts.setdefault(position, {})
        former = branches.pop(digest, None)
        self._count += former is None
        self._bytes += draft.footprint - (0 if former is None else former.footprint)
        branches[digest] = draft
        if len(branches) > BRANCHES:
            self._drop_oldest(position)
        while self._count > MOST or (self._bytes > MOST_BYTES and self._count > 1):
            self._drop_oldest(max(self._drafts))  # of the furthest position

    def get(self, position: int, digest: int) -> SideDraft | None:
        return self._drafts.get(position, {}).get(digest)

    def decide(self, position: int, digest: int) -> tuple[SideDraft | None, int]:
        """Remove a position's drafts. Returns the one after `digest` and the number of others."""
        branches = self._drafts.pop(position, {})
        self._count -= len(branches)
        self._bytes -= sum(each.footprint for each in branches.values())
        draft = branches.pop(digest, None)
        return draft, len(branches)

    def clear(self) -> None:
        self._drafts.clear()
        self._count = self._bytes = 0

    def _drop_oldest(self, position: int) -> None:
        branches = self._drafts[position]
        dropped = branches.pop(next(iter(branches)))
        self._count -= 1
        self._bytes -= dropped.footprint
        if not branches:
            del self._drafts[position]
