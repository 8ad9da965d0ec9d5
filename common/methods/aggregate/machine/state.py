"""State of one answer on one side: the decided tokens, and both sides' drafts for the positions after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from common.answer.prefix import Prefix
from common.answer.values import Commit, Finish, FinishReason, Withdraw
from common.estimates.ahead import Ahead
from common.methods.aggregate.machine.remote import ENOUGH_BYTES, RemoteDrafts
from common.methods.aggregate.machine.tree import DraftTree
from common.methods.aggregate.machine.values import (
    Action,
    Decided,
    DraftWork,
    LocalDraft,
    RemoteDraft,
    SessionConfig,
    SessionCounters,
    SessionSampler,
)
from proto.fields import OTHER, Side


class SessionState:
    """Committed prefix and draft queues, with their roll-backs. Independent of messages and of who aggregates."""

    def __init__(self, role: Side, config: SessionConfig, aggregation: SessionSampler) -> None:
        self.counters = SessionCounters()
        self.finished: FinishReason | None = None
        self.epoch = 0  # of this side's decode steps: one more whenever the one under way becomes useless
        self.prefix = Prefix()
        # The device's decisions are told to the cloud, which can do without the drafts that they came from.
        retain = config.window if config.placement == "mirrored" and role == "cloud" else 0
        self.local = DraftTree(retain, config.eos, config.max_tokens, aggregation.rivals)
        self._remote = RemoteDrafts()
        self._aggregation = aggregation
        self._role: Side = role
        self.config = config

    @property
    def position(self) -> int:
        """The first undecided position."""
        return self.prefix.length

    def work(self, ahead: Ahead) -> DraftWork | None:
        """The next decode step; None when no step is worth doing."""
        if self.finished or self._role not in self.config.participants:
            return None
        if self.local.footprint >= ENOUGH_BYTES:  # the other side would drop those that come last
            return None
        return self.local.ask(self.epoch, self.prefix.path, ahead)

    def drafted(self, draft: LocalDraft, branching: bool) -> bool:
        """Take in this side's draft; False when its position was decided or its prefix rejected meanwhile."""
        if self.config.shares(self._role):
            draft = replace(draft, footprint=self._aggregation.footprint(draft.view))
        if self.finished or not self.local.drafted(draft, branching):
            self.counters.late += 1
            return False
        self.counters.drafted += 1
        self.counters.branches = self.local.branches
        return True

    def put(self, position: int, digest: int, draft: RemoteDraft) -> None:
        """Store a draft of the other side, or the completed version of a stored one."""
        self._remote.put(position, digest, draft)

    def remote(self, position: int, digest: int) -> RemoteDraft | None:
        """The other side's draft for `position` after exactly the prefix with `digest`."""
        return self._remote.get(position, digest)

    def forget_remote(self) -> None:
        """Forget all drafts of the other side."""
        self._remote.clear()

    def first_pair(self) -> tuple[LocalDraft | None, RemoteDraft | None]:
        """Both sides' drafts for the first undecided position, as far as they are here."""
        digest = self.prefix.digest(self.position)
        return self.local.first(), self._remote.get(self.position, digest)

    def accepted(self, target: int) -> dict[Side, bool]:
        """Verdict by side on the drafts known for the first undecided position: True if it is the `target`."""
        mine, theirs = self.first_pair()
        known = ((self._role, mine), (OTHER[self._role], theirs))
        return {side: draft.view.token == target for side, draft in known if draft is not None}

    def commit(self, decision: Decided, degraded: bool) -> list[Commit | Finish]:
        """Append the decided token to the answer; if this side's draft is another token, its drafts are rolled back."""
        position, token = self.position, decision.token
        accepted: dict[Side, bool] = {}
        mine = self.local.first()
        theirs, others = self._remote.decide(position, self.prefix.digest(position))
        self.counters.stale += others
        if mine is not None:
            accepted[self._role] = mine.view.token == token
        if theirs is not None:
            accepted[OTHER[self._role]] = theirs.view.token == token
        self.prefix.extend(token)
        self.prefix.commit()
        if self.local.commit(token):
            self.epoch += 1
        self.counters.used = self.local.used
        self._count(accepted, position, degraded)
        commit = Commit(position, token, degraded, decision.cloud_share, decision.expected, accepted, decision.logprobs)
        if token in self.config.eos:
            self.finished = "stop"
        elif self.position >= self.config.max_tokens:
            self.finished = "length"
        return [commit, Finish(self.finished)] if self.finished else [commit]

    def follow(self, start: int, tokens: Sequence[int]) -> list[Action]:
        """Commit the tokens that the aggregator decided from `start` on. Where one differs from a committed token, the
        cloud withdraws its own; the device, which has shown its own, ignores the rest.
        """
        actions: list[Action] = []
        for position, token in enumerate(tokens, start):
            if position < self.position:
                if self.prefix.path[position] == token:
                    continue
                self.counters.disagreements += 1
                if self._role == "device":
                    return actions
                actions += self.cut(position)
            if not self.finished:
                actions += self.commit(Decided(token), degraded=False)
        return actions

    def adopt(self, tokens: Sequence[int], exactly: bool) -> list[Action]:
        """Follow the aggregator's whole committed prefix; `exactly`: the cloud withdraws its tokens beyond that."""
        known = self.prefix.committed()
        shared = min(len(known), len(tokens))
        if known[:shared] != list(tokens[:shared]):
            shared = next(i for i in range(shared) if known[i] != tokens[i])
            exactly = True
        actions: list[Action] = []
        if self._role == "cloud" and exactly:
            actions += self.cut(shared)
        if shared == self.position:
            actions += self.follow(shared, tokens[shared:])
        return actions

    def cut(self, position: int) -> list[Withdraw]:
        """Withdraw decided tokens from `position` on, and forget all drafts."""
        if position >= self.position:
            return []
        self.finished = None
        self._remote.clear()
        self.prefix.cut(position)
        self.local.clear(position, self.prefix.digest(position))
        self.epoch += 1
        return [Withdraw(position)]

    def _count(self, accepted: dict[Side, bool], position: int, degraded: bool) -> None:
        for side, right in accepted.items():
            counts = self.counters.accepted if right else self.counters.rollbacks
            counts[side] += 1
        if degraded:
            self.counters.degraded.append(position)
