"""One side of an answer as a state machine (DRAGON §4.2, with network fences).

Theory of operation
===================

This file decides the answer's tokens; `drafts.py` keeps the drafts. The daemons, the simulator and the tests report
events: a draft, a message, the end of patience. The session returns actions for the caller. It uses no clock, socket,
model or thread. One caller at a time may use it.

**Decisions.** Each side drafts tokens after the committed prefix, the decided tokens. It sends data on their
distributions. A decision needs both sides' drafts of the position. A side with a different draft drops it and all later
ones.

**One side decides each position.** The state names it:

    decides   This side decides the next position and announces the token in a `Target`.
    follows   The other side decides. This side takes over its targets.
    alone     Only on the device: the cloud is away. The device's own draft decides where the cloud's is missing.

Each decision names the next decider by the placement's rule. Under placement 'mirrored' that is the device. The cloud
follows but decides as well, so that neither side waits. A side also decides while the other takes no part.
`TRANSITIONS` lists the state changes:

    event                                                 decides    follows    alone
    this side         this side is to decide next         decides    decides    decides
    other side        the other side is to decide next    follows    follows    follows *
    out of patience   the cloud was silent for too long   alone      alone *    alone

**Terms.** The device shows the tokens, so it has authority. At a * it takes the aggregation from the cloud or gives it
back. Each * and each reconnection begins a new term, announced by a `Sync` with the committed prefix. The cloud
follows. Within a term only one side decides. A `Target` of another term is dropped.

**Fences.** A draft is stored by the digest of its prefix. So a draft after a rejected prefix is never found or
aggregated. Repeated decided tokens change nothing. A side that lacks the tokens before a `Target` requests them with a
`Sync`. If tokens differ, the cloud withdraws its own. The device keeps the tokens that it has shown.

**Questions.** Both drafts' lists may be too short to prove the winner. `Questions` then asks the other side once for
the missing values, or has this side look them up.

**One side.** A side without documents has no weight. A cloud without documents leaves the answer. A device without
documents need not draft once the cloud knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from common.answer.values import NOTHING_KEPT, Commit, Finish, FinishReason, Prefix, Send, SideDraft, View, Withdraw
from common.estimates.estimators import SpeculationLimits
from common.methods.aggregate.drafts import (
    ENOUGH_BYTES,
    DraftWork,
    PrefixTree,
    RemoteDrafts,
)
from common.sampling.certificate import Decision, MissingHere, MissingThere, Outcome, has_documents
from proto.errors import ProtocolError, malformed
from proto.messages import OTHER, Draft, Message, Placement, Ready, Resolve, Resolved, Side, Sync, Target

# --- states


SessionState = Literal["decides", "follows", "alone"]
SessionEvent = Literal["this side", "other side", "out of patience"]

TRANSITIONS: Final[Mapping[tuple[SessionState, SessionEvent], SessionState]] = {
    ("decides", "this side"): "decides",
    ("decides", "other side"): "follows",
    ("decides", "out of patience"): "alone",
    ("follows", "this side"): "decides",
    ("follows", "other side"): "follows",
    ("follows", "out of patience"): "alone",
    ("alone", "this side"): "decides",
    ("alone", "other side"): "follows",
    ("alone", "out of patience"): "alone",
}
NEW_TERM: Final = (("follows", "alone"), ("alone", "follows"))  # changes that begin a new term

TOKENS_PER_TARGET: Final = 1024  # a longer run takes several messages
MOST_LOOK_UPS: Final = 4  # at a time for the other side; more are dropped, and repeated after a `Sync`


# --- what a session needs


class SessionSampler(Protocol):
    """A sampler that aggregates two views and codes their payloads."""

    def pack(self, view: Any) -> bytes:
        """The payload that describes a view."""
        ...

    def read(self, side: Side, position: int, payload: bytes) -> View:
        """Decode a remote view. Raises `ProtocolError` if it is malformed."""
        ...

    def footprint(self, view: Any) -> int:
        """Approximate bytes of a view on the side that received it."""
        ...

    def aggregate(self, role: Side, position: int, device: Any, cloud: Any, evidence: tuple[float, float]) -> Outcome:
        """Decide from both views, of which `role`'s is local; `evidence` is log h of (device, cloud)."""
        ...

    def alone(self, position: int, view: Any) -> Outcome:
        """Decide from one side's view alone."""
        ...

    def rivals(self, view: Any) -> Sequence[tuple[int, float]]:
        """The fastest few tokens of a local view with log speeds, the draft first.

        Empty if the sampler can't foresee the target.
        """
        ...

    def check_resolve(self, ids: Sequence[int], depth: int) -> None:
        """Raise `ProtocolError` for an invalid `Resolve`."""
        ...

    def supply(self, view: Any, ids: Sequence[int], depth: int) -> bytes:
        """Answer a `Resolve` from a local view, over the whole vocabulary."""
        ...

    def complete(self, view: Any, position: int, ids: Sequence[int], depth: int, payload: bytes) -> View:
        """Add the values of a `supply` payload to a view.

        Raises `ProtocolError` for values other than those of `ids` and `depth`.
        """
        ...


class PlacementPolicy(Protocol):
    """Chooses the next aggregator (§5.1)."""

    def next_aggregator(self, position: int, accepted: Mapping[Side, bool]) -> Side:
        """The decider of `position`; `accepted` judges the previous position's known drafts."""
        ...


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Parameters of one answer."""

    session: int
    placement: Placement
    eos: frozenset[int]
    max_tokens: int
    vocabulary: int  # all token ids are below it
    participants: frozenset[Side] = frozenset({"device", "cloud"})  # sides whose documents count
    window: int = 256  # most drafts beyond the committed prefix

    def shares(self, side: Side) -> bool:
        """Whether `side` sends its distributions."""
        if len(self.participants) < 2:
            return False
        return self.placement in ("greedy", "random", "mirrored") or self.placement != side


# --- what a session returns


@dataclass(frozen=True, slots=True)
class LookUp:
    """Values to compute for a local draft (`SessionSampler.supply`).

    The engine's thread calls `Session.looked_up` with the result.
    """

    position: int
    digest: int
    view: View
    ids: tuple[int, ...]
    depth: int
    asked: bool  # by the other side, else for this side's certificate


Action = Send | LookUp | Commit | Withdraw | Finish


@dataclass(slots=True)
class SessionCounters:
    """Event counts of one side of a session."""

    drafted: int = 0
    late: int = 0  # own drafts of decided or rolled-back positions
    stale: int = 0  # fenced messages
    switches: int = 0
    certificate_failures: int = 0
    disagreements: int = 0
    branches: int = 0  # of `drafted`, off the chain
    used: int = 0  # rejections that continued on a branch
    rollbacks: dict[Side, int] = field(default_factory=lambda: {"device": 0, "cloud": 0})
    accepted: dict[Side, int] = field(default_factory=lambda: {"device": 0, "cloud": 0})
    degraded: list[int] = field(default_factory=list)


def draft_message(config: SessionConfig, epoch: int, draft: SideDraft, payload: bytes) -> Draft:
    return Draft(config.session, epoch, draft.position, draft.digest, draft.evidence, draft.decode_time, payload)


# --- session


class Session:
    """The rules that turn drafts into the answer. Each event returns actions."""

    def __init__(
        self,
        role: Side,
        config: SessionConfig,
        sampler: SessionSampler,
        policy: PlacementPolicy,
        ahead: SpeculationLimits = SpeculationLimits(),  # noqa: B008  # frozen
    ) -> None:
        self.role: Side = role
        self.config = config
        self.sampler = sampler
        self.ahead = ahead
        self.state: SessionState = "decides" if policy.next_aggregator(0, {}) == role else "follows"
        self.term = 0  # of the aggregation
        self.finished: FinishReason | None = None
        self.heard = False  # the cloud has drafted or decided since the latest opening
        self.counters = SessionCounters()
        # The device may still need the cloud's drafts of decided positions. Its own decisions are announced instead.
        retain = config.window if config.placement == "mirrored" and role == "cloud" else 0
        self.local = PrefixTree(retain, config.eos, config.max_tokens, sampler.rivals)
        self.remote = RemoteDrafts()
        self.questions = Questions(config.session, self.local, sampler, self.counters)
        self._policy = policy
        self._prefix = Prefix()
        self._epoch = 0  # of this side's decode steps
        self._absent: frozenset[Side] = frozenset()  # sides without documents
        self._told = False  # the other side knows this side's evidence

    # --- what the drivers look at

    @property
    def aggregator(self) -> Side:
        return OTHER[self.role] if self.state == "follows" else self.role

    @property
    def away(self) -> bool:
        """Whether the device continues without the cloud."""
        return self.state == "alone"

    @property
    def epoch(self) -> int:
        """Number of decode steps that became useless."""
        return self._epoch

    @property
    def position(self) -> int:
        """The first undecided position."""
        return self._prefix.length

    @property
    def committed(self) -> tuple[int, ...]:
        return tuple(self._prefix.committed())

    @property
    def provisional(self) -> tuple[int, ...]:
        """This side's drafts after the committed prefix."""
        return self.local.chain

    def digest(self, position: int) -> int:
        """Digest of the first `position` committed tokens."""
        return self._prefix.digest(position)

    @property
    def work(self) -> DraftWork | None:
        """The next decode step; None if nothing is worth decoding."""
        if self.finished or self._idle or self.local.footprint >= ENOUGH_BYTES:  # the other side would drop more
            return None
        return self.local.ask(self._epoch, self._prefix.path, self.ahead)

    @property
    def waiting(self) -> bool:
        """Whether only the other side can advance this answer."""
        return not self.finished and (self._idle or self.local.first() is not None)

    @property
    def progress(self) -> int:
        """Number of tokens that the cloud helped to decide."""
        return self.position - len(self.counters.degraded)

    @property
    def stage(self) -> tuple[int, bool, int]:
        """Patience restarts at each of finitely many stages."""
        return self.position, self.heard, self.questions.count

    # --- events

    def drafted(self, draft: SideDraft) -> list[Action]:
        if self.config.shares(self.role):
            draft.footprint = self.sampler.footprint(draft.view)
        if self.finished or not self.local.drafted(draft, self.ahead.branching):
            self.counters.late += 1  # decided or rejected meanwhile
            return []
        self.counters.drafted += 1
        self.counters.branches = self.local.branches
        self._weigh(self.role, draft.evidence)
        self._told = True
        return self._drafts([draft]) + self._advance()

    def without_documents(self, side: Side) -> list[Action]:
        """Note that `side` has no documents.

        The cloud then takes no part; the device need not draft.
        """
        if len(self.config.participants) == 2:
            self._absent |= {side}
            if side == "cloud":
                self.config = replace(self.config, participants=frozenset({"device"}))
                self.state = TRANSITIONS[self.state, self._named("device")]
        return self._advance()

    def received(self, message: Message) -> list[Action]:
        """Process a message. Raises `ProtocolError` if it is malformed, without a change."""
        if self.finished and self.role == "device":
            return []
        if isinstance(message, Target | Sync) and max(message.tokens, default=0) >= self.config.vocabulary:
            # It would fail the forward pass of the whole batch.
            raise malformed(f"decided tokens must be of the vocabulary, below {self.config.vocabulary}")
        match message:
            case Draft():
                actions = self._on_draft(message)
            case Target():
                actions = self._on_target(message)
            case Resolve():
                actions = self.questions.reply(message, self.config.shares(self.role))
            case Resolved():
                actions = self._on_resolved(message)
            case Sync():
                actions = self._on_sync(message)
            case Ready(titles=()) if self.role == "device":
                actions = self.without_documents("cloud")
            case _:
                actions = []
        self.heard |= isinstance(message, Draft | Target)
        return actions

    def looked_up(self, look_up: LookUp, payload: bytes) -> list[Action]:
        return self.questions.looked_up(look_up, payload) + self._advance()

    def stalled(self) -> list[Action]:
        """Repeat messages and questions after a long silence."""
        if self.finished:
            return []
        self.questions.forget()
        self._told = False
        return self._synchronize(self.position, wants_reply=True) + self._advance()

    def rejoined(self, changed: bool = False) -> list[Action]:
        """Start a new term with a reconnected cloud; `changed`: its model or library differs."""
        self.heard = False
        if changed:
            self.remote.clear()
        if not self.finished:
            self.term += 1
        return self.stalled()

    def out_of_patience(self) -> list[Action]:
        """Let the device continue alone (η = 0 for the cloud) until it returns."""
        if self.finished or self.role != "device" or "device" not in self.config.participants:
            return []
        return self._enter("out of patience") + self._advance()  # a reachable cloud follows at once

    # --- messages

    def _on_draft(self, message: Draft) -> list[Action]:
        position, digest, here = message.position, message.digest, self.position
        in_step = position <= here and digest == self.digest(position)
        side = OTHER[self.role]
        if not here <= position < here + self.config.window or not self.config.shares(side):
            self.counters.stale += 1
            return self._take_back() if in_step else []
        known = self.remote.get(position, digest)
        if known is None or not self._repeats(known, message):
            view = self.sampler.read(side, position, message.payload)
            size = self.sampler.footprint(view)
            self.remote.put(position, digest, SideDraft(view, message.evidence, footprint=size))
            self._weigh(side, message.evidence)
            if known is not None:
                self.questions.forget()  # it may concern the previous draft
        return (self._take_back() if in_step else []) + self._advance()

    def _repeats(self, known: SideDraft, message: Draft) -> bool:
        """Whether a draft repeats `known`, which may have been completed since.

        A repeated pass may change the last bits. The new draft then replaces the known one, because the other side
        answers questions about it.
        """
        return known.evidence == message.evidence and self.sampler.pack(known.view) == message.payload

    def _on_target(self, message: Target) -> list[Action]:
        if message.term != self.term or self.state != "follows":
            self.counters.stale += 1
            return self._take_back()  # late, but the cloud is back
        self.local.settle(message.position + len(message.tokens))
        if message.position > self.position:
            return [self._sync(wants_reply=True)]
        actions = self._follow(message.position, message.tokens)
        if message.position + len(message.tokens) >= self.position:
            self._hand_over(message.aggregator)
        return actions + self._advance()

    def _on_resolved(self, message: Resolved) -> list[Action]:
        draft = self.remote.get(message.position, message.digest)
        asked = None if draft is None else self.questions.answered(message, self.position)
        if draft is None or asked is None:
            self.counters.stale += 1
            return []
        position, told = message.position, (asked.ids, asked.depth, message.payload)
        try:
            view = self.sampler.complete(draft.known, position, *told)
        except ProtocolError:
            view = self.sampler.complete(draft.view, position, *told)  # replaced meanwhile
        size = self.sampler.footprint(draft.view) + self.sampler.footprint(view)
        self.remote.put(position, message.digest, replace(draft, completed=view, footprint=size))
        return self._advance()

    def _on_sync(self, message: Sync) -> list[Action]:
        actions: list[Action] = []
        new_term = message.term > self.term and self.role == "cloud"
        if new_term or (message.term == self.term and self.state == "follows"):
            actions += self._adopt(message.tokens, exactly=new_term)
            if len(message.tokens) >= self.position:
                self._hand_over(message.aggregator)
        if new_term:
            self.term = message.term
        self.local.settle(len(message.tokens))
        if message.term == self.term:
            actions += self._take_back()
        if message.wants_reply:
            self.questions.forget()  # it may have been lost too
            actions += self._synchronize(len(message.tokens), wants_reply=False)
        return actions + self._advance()

    # --- deciding

    def _advance(self) -> list[Action]:
        actions: list[Action] = []
        start, tokens = self.position, list[int]()
        while not self.finished:
            outcome, degraded = self._decide()
            if isinstance(outcome, MissingThere | MissingHere):
                actions += self.questions.ask(self.position, self.digest(self.position), outcome)
            if not isinstance(outcome, Decision):
                break
            commit = self._commit(outcome, degraded)
            tokens.append(commit.token)
            actions += [commit, *self._end()]
            if not self.away:
                self._hand_over(self._policy.next_aggregator(self.position, commit.accepted))
        return actions + self._targets(start, tokens)

    def _decide(self) -> tuple[Outcome | None, bool]:
        """The next outcome, and whether the device decided without the cloud.

        The outcome is None if a draft is missing or the other side decides.
        """
        mine, theirs = self.local.first(), self.remote.get(self.position, self.digest(self.position))
        other, sole = OTHER[self.role], self._sole
        in_charge = self.state != "follows" or self.config.placement == "mirrored"
        if sole == self.role:
            return self._of_one(mine) if in_charge or other not in self.config.participants else None, False
        if theirs is None:
            return (self._of_one(mine), True) if self.away else (None, False)
        if not in_charge:
            return None, False
        if sole == other:
            outcome = self._of_one(theirs)
        elif mine is None:
            return None, False
        else:
            views, evidence = (mine.known, theirs.known), (mine.evidence, theirs.evidence)
            if self.role == "cloud":
                views, evidence = views[::-1], evidence[::-1]
            outcome = self.sampler.aggregate(self.role, self.position, *views, evidence)
        if isinstance(outcome, MissingThere) and self.away:
            return self._of_one(mine), True
        return outcome, isinstance(outcome, Decision) and outcome.degraded

    def _of_one(self, draft: SideDraft | None) -> Outcome | None:
        if draft is None:
            return None
        outcome = self.sampler.alone(self.position, draft.known)
        share = float(self._sole == "cloud") if self._absent else None  # the cloud's share
        return replace(outcome, cloud_share=share) if isinstance(outcome, Decision) else outcome

    def _weigh(self, side: Side, evidence: float) -> None:
        """A side without documents at one position has none for the question."""
        if not has_documents(evidence):
            self._absent |= {side}

    @property
    def _sole(self) -> Side | None:
        """The side with all the weight (η is 0 or 1), or None."""
        if len(self.config.participants) == 1:
            return next(iter(self.config.participants))
        if "cloud" in self._absent:
            return "device"
        return "cloud" if "device" in self._absent else None

    @property
    def _idle(self) -> bool:
        """Whether this side takes no part, or has no weight and the cloud knows."""
        if self.role not in self.config.participants:
            return True
        knows = self._told or not self.config.shares(self.role)
        return self.role == "device" and not self.away and knows and self._sole == "cloud"

    # --- the committed prefix

    def _commit(self, decision: Decision, degraded: bool) -> Commit:
        position, token = self.position, decision.token
        mine = self.local.first()
        theirs, others = self.remote.decide(position, self.digest(position))
        self.counters.stale += others
        known = ((self.role, mine), (OTHER[self.role], theirs))
        accepted = {side: draft.view.token == token for side, draft in known if draft is not None}
        for side, right in accepted.items():
            counts = self.counters.accepted if right else self.counters.rollbacks
            counts[side] += 1
        if degraded:
            self.counters.degraded.append(position)
        self._prefix.extend(token)
        self._prefix.commit()
        if self.local.commit(token):
            self._epoch += 1
        self.counters.used = self.local.used
        if token in self.config.eos:
            self.finished = "stop"
        elif self.position >= self.config.max_tokens:
            self.finished = "length"
        share, expected, mixing = decision.cloud_share, decision.expected, NOTHING_KEPT if mine is None else mine.mixing
        return Commit(position, token, degraded, share, expected, accepted, decision.logprobs, mixing)

    def _end(self) -> list[Finish]:
        return [Finish(self.finished)] if self.finished else []

    def _follow(self, start: int, tokens: Sequence[int]) -> list[Action]:
        """Commit the aggregator's tokens from `start` on.

        If tokens differ, the cloud withdraws its own. The device keeps its shown tokens and ignores the rest.
        """
        actions: list[Action] = []
        for position, token in enumerate(tokens, start):
            if position < self.position:
                if self._prefix.path[position] == token:
                    continue
                self.counters.disagreements += 1
                if self.role == "device":
                    return actions
                actions += self._cut(position)
            if not self.finished:
                actions += [self._commit(Decision(token), degraded=False), *self._end()]
        return actions

    def _adopt(self, tokens: Sequence[int], exactly: bool) -> list[Action]:
        """Adopt the aggregator's prefix; `exactly`: the cloud withdraws its further tokens."""
        known = self._prefix.committed()
        shared = min(len(known), len(tokens))
        if known[:shared] != list(tokens[:shared]):
            shared = next(i for i in range(shared) if known[i] != tokens[i])
            exactly = True
        actions: list[Action] = []
        if self.role == "cloud" and exactly:
            actions += self._cut(shared)
        if shared == self.position:
            actions += self._follow(shared, tokens[shared:])
        return actions

    def _cut(self, position: int) -> list[Withdraw]:
        if position >= self.position:
            return []
        self.finished = None
        self.remote.clear()
        self._prefix.cut(position)
        self.local.clear(position, self.digest(position))
        self._epoch += 1
        return [Withdraw(position)]

    # --- the side that decides

    def _named(self, aggregator: Side) -> SessionEvent:
        return "this side" if aggregator == self.role else "other side"

    def _hand_over(self, aggregator: Side) -> None:
        self.counters.switches += aggregator != self.aggregator
        self.state = TRANSITIONS[self.state, self._named(aggregator)]

    def _enter(self, event: SessionEvent) -> list[Action]:
        before, self.state = self.state, TRANSITIONS[self.state, event]
        if (before, self.state) not in NEW_TERM:
            return []
        self.term += 1
        self.counters.switches += 1
        return [self._sync(wants_reply=True)]

    def _take_back(self) -> list[Action]:
        """Readmit a synchronized cloud under the requested placement."""
        return self._enter(self._named(self._policy.next_aggregator(self.position, {}))) if self.away else []

    # --- messages to the other side

    def _drafts(self, drafts: Sequence[SideDraft]) -> list[Action]:
        """Empty if the placement keeps the drafts here."""
        if not self.config.shares(self.role):
            return []
        return [Send(draft_message(self.config, self._epoch, each, self.sampler.pack(each.view))) for each in drafts]

    def _targets(self, start: int, tokens: Sequence[int]) -> list[Action]:
        """Messages with tokens that this side decided from `start` on.

        Empty if the cloud takes no part. Under placement 'mirrored' only the device announces.
        """
        config, size = self.config, TOKENS_PER_TARGET
        if "cloud" not in config.participants or (self.role == "cloud" and config.placement == "mirrored"):
            return []
        return [
            Send(Target(config.session, self.term, start + at, tuple(tokens[at : at + size]), self.aggregator))
            for at in range(0, len(tokens), size)
        ]

    def _synchronize(self, position: int, wants_reply: bool) -> list[Action]:
        return [self._sync(wants_reply), *self._drafts(self.local.since(position))]

    def _sync(self, wants_reply: bool) -> Send:
        return Send(Sync(self.config.session, self.term, self.committed, self.aggregator, wants_reply))


# --- questions


@dataclass(slots=True)
class Question:
    """A question to the other side."""

    digest: int  # of the prefix
    missing: MissingThere  # after it
    pending: bool = True  # not to be repeated yet
    awaited: bool = True  # not answered yet


class Questions:
    """Asks once for a certificate's missing values; again after `forget`."""

    def __init__(self, session: int, local: PrefixTree, sampler: SessionSampler, counters: SessionCounters) -> None:
        self.count = 0  # distinct questions
        self._session = session
        self._local = local
        self._sampler = sampler
        self._counters = counters
        self._latest: Question | None = None
        self._contested = -1  # latest position with a failed certificate
        self._own: tuple[int, MissingHere] | None = None  # prefix digest and values, under look-up for this side
        self._others = 0  # look-ups for the other side

    def ask(self, position: int, digest: int, missing: MissingThere | MissingHere) -> list[Action]:
        """Request the values that the certificate of `position` lacks."""
        if self._contested != position:
            self._counters.certificate_failures += 1
        self._contested = position
        if isinstance(missing, MissingHere):
            return self._look_up(missing)
        latest = self._latest
        if latest is None or (latest.digest, latest.missing) != (digest, missing):
            self.count += 1
        elif latest.pending:
            return []
        self._latest = Question(digest, missing)
        return [Send(Resolve(self._session, position, digest, missing.ids, missing.depth))]

    def answered(self, answer: Resolved, position: int) -> MissingThere | None:
        """The latest question, at its first reply; otherwise None."""
        latest = self._latest
        if latest is None or not latest.awaited:
            return None
        if (answer.position, answer.digest, answer.depth) != (position, latest.digest, latest.missing.depth):
            return None
        latest.awaited = False
        return latest.missing

    def reply(self, question: Resolve, shared: bool) -> list[Action]:
        """Look up values of a `shared` draft. Raises `ProtocolError` for a malformed question."""
        draft = self._local.find(question.position, question.digest)
        if draft is None or not shared or self._others >= MOST_LOOK_UPS:
            self._counters.stale += 1
            return []
        self._sampler.check_resolve(question.ids, question.depth)
        self._others += 1
        return [LookUp(draft.position, draft.digest, draft.view, question.ids, question.depth, asked=True)]

    def looked_up(self, look_up: LookUp, payload: bytes) -> list[Action]:
        """Send looked-up values, or complete this side's draft."""
        position, digest, depth = look_up.position, look_up.digest, look_up.depth
        if look_up.asked:
            self._others -= 1
            return [Send(Resolved(self._session, position, digest, depth, payload))]
        self._own = None
        draft = self._local.find(position, digest)
        if draft is not None:
            view = self._sampler.complete(draft.known, position, look_up.ids, depth, payload)
            self._local.complete(position, digest, view)
        return []

    def forget(self) -> None:
        """Allow a repetition: the question or its answer may be lost."""
        if self._latest is not None:
            self._latest.pending = False

    def _look_up(self, missing: MissingHere) -> list[Action]:
        draft = self._local.first()
        if draft is None or self._own == (draft.digest, missing):
            return []
        self._own = (draft.digest, missing)
        return [LookUp(draft.position, draft.digest, draft.view, missing.ids, missing.depth, asked=False)]
