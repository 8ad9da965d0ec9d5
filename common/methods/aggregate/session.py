"""One side of one answer as a pure state machine (DRAGON §4.2, with the fences it needs on a real network).

Both daemons, the simulator and the tests drive the same object: they tell it what happened (see *events* below) and
carry out the actions it returns. It reads no clock and touches no socket, model or thread. The methods are not
thread-safe: one caller at a time.

The device is the authority over the answer, since it shows the tokens: when the cloud is away, the device takes the
aggregation over. That starts a new term, which the cloud follows. Within a term only the aggregator decides, and every
target that it sends names the aggregator of the next position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from common.answer.values import Commit, Finish, FinishReason, Prefix, Send, Withdraw
from common.estimates.ahead import Ahead
from common.methods.aggregate.drafts import (
    ENOUGH_BYTES,
    Action,
    Decided,
    DraftTree,
    DraftWork,
    LackingLocal,
    LackingRemote,
    LocalDraft,
    LookUp,
    PlacementPolicy,
    RemoteDraft,
    RemoteDrafts,
    SessionConfig,
    SessionCounters,
    SessionSampler,
    Stage,
    Verdict,
)
from common.sampling.certificate import has_documents
from proto.errors import ProtocolError, malformed
from proto.messages import OTHER, Draft, Message, Ready, Resolve, Resolved, Side, Sync, Target

# --- state
# State of one answer on one side: the decided tokens, and both sides' drafts for the positions after them.


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


# --- announcements
# Messages that tell the other side of drafts and decisions, and a check of the decisions that it sends.

TOKENS_PER_TARGET = 1024  # a longer run of decided tokens is announced in several messages


def draft_message(config: SessionConfig, epoch: int, draft: LocalDraft, payload: bytes) -> Draft:
    """A local draft for the other side."""
    return Draft(config.session, epoch, draft.position, draft.digest, draft.evidence, draft.decode_time, payload)


class Announcer:
    """Makes the messages with a side's drafts and decisions, as far as the placement lets it send them."""

    def __init__(self, role: Side, progress: SessionState, aggregation: SessionSampler) -> None:
        self._role: Side = role
        self._state = progress
        self._aggregation = aggregation

    def drafts(self, drafts: Sequence[LocalDraft]) -> list[Action]:
        """Messages with drafts of this side; none where the placement keeps them here."""
        config, epoch = self._state.config, self._state.epoch
        if not config.shares(self._role):
            return []
        return [Send(draft_message(config, epoch, draft, self._aggregation.pack(draft.view))) for draft in drafts]

    def targets(self, term: int, start: int, tokens: Sequence[int], aggregator: Side) -> list[Action]:
        """Messages with the tokens that this side decided from `start` on; `aggregator` decides the next position.

        Under placement 'mirrored' both sides decide and only the device announces. None if the cloud takes no part.
        """
        config, size = self._state.config, TOKENS_PER_TARGET
        if "cloud" not in config.participants or (self._role == "cloud" and config.placement == "mirrored"):
            return []
        return [
            Send(Target(config.session, term, start + offset, tuple(tokens[offset : offset + size]), aggregator))
            for offset in range(0, len(tokens), size)
        ]

    def sync(self, term: int, aggregator: Side, wants_reply: bool) -> Send:
        """The message with the committed prefix."""
        tokens = tuple(self._state.prefix.committed())
        return Send(Sync(self._state.config.session, term, tokens, aggregator, wants_reply))


def check_tokens(message: Message, vocabulary: int) -> None:
    """Refuse decided tokens beyond the vocabulary: one of them fails the forward pass of all answers in the batch.

    Raises `ProtocolError`.
    """
    if isinstance(message, Target | Sync) and max(message.tokens, default=0) >= vocabulary:
        raise malformed(f"decided tokens must be of the vocabulary, below {vocabulary}")


# --- decision
# The target of a position: decided from both sides' drafts, or from one side's when the other has no weight.


class Decider:
    """Decides the first undecided position of `progress`; keeps track of sides that have no documents."""

    def __init__(self, role: Side, progress: SessionState, aggregation: SessionSampler) -> None:
        self.absent: frozenset[Side] = frozenset()  # sides that are known to have no documents for this question
        self._role: Side = role
        self._state = progress
        self._aggregation = aggregation

    @property
    def sole(self) -> Side | None:
        """The side that has all the weight (eta is 0 or 1), None while both may have some."""
        participants = self._state.config.participants
        if len(participants) == 1:
            return next(iter(participants))
        if "cloud" in self.absent:
            return "device"
        return "cloud" if "device" in self.absent else None

    def weigh(self, side: Side, evidence: float) -> None:
        """Take in a draft's evidence: a side without documents at one position has none for the whole question."""
        if not has_documents(evidence):
            self.absent |= {side}

    def decide(self, in_charge: bool, away: bool) -> tuple[Verdict | None, bool]:
        """The outcome for the position, and whether it is just the device's draft because the cloud is `away`.

        The outcome is None when a draft is missing or the other side decides. `in_charge`: this side decides, or both
        do.
        """
        mine, theirs = self._state.first_pair()
        other, sole = OTHER[self._role], self.sole
        share = float(sole == "cloud") if self.absent else None  # the cloud's share in a token of the sole side
        if sole == self._role:
            decides = in_charge or other not in self._state.config.participants
            return self._of_one(mine, share) if decides else None, False
        if theirs is None:
            return (self._of_one(mine, share), True) if away else (None, False)
        if not in_charge:
            return None, False
        if sole == other:
            return self._of_one(theirs, share), False
        if mine is None:
            return None, False
        views, evidence = (mine.known, theirs.known), (mine.evidence, theirs.evidence)
        if self._role == "cloud":
            views, evidence = views[::-1], evidence[::-1]
        position = self._state.position
        outcome = self._aggregation.aggregate(self._role, position, *views, evidence)
        if isinstance(outcome, LackingRemote) and away:
            return self._of_one(mine, share), True
        return outcome, False

    def _of_one(self, draft: LocalDraft | RemoteDraft | None, share: float | None) -> Decided | None:
        """The token of one side's draft, if it is here."""
        if draft is None:
            return None
        return Decided(draft.view.token, share, logprobs=self._aggregation.alone(draft.view))


# --- questions
# Requests for the values that a certificate lacks: asked of the other side, or looked up on this one.

Question = tuple[int, LackingRemote]  # digest of the prefix, what is lacking after it

MOST_LOOK_UPS = 4  # for the other side at a time; a question beyond is dropped, and repeated after a `Sync`


class Questions:
    """Asks once for the values that a certificate lacks; again after `forget`, or when others are lacking."""

    def __init__(self, progress: SessionState, aggregation: SessionSampler) -> None:
        self.count = 0  # different questions that the other side was asked
        self._state = progress
        self._aggregation = aggregation
        self._latest: Question | None = None
        self._pending = False  # the latest question was asked and not forgotten
        self._awaited = False  # nor answered
        self._contested = -1  # the last position whose certificate failed
        self._own: tuple[int, LackingLocal] | None = None  # digest of the prefix, what is being looked up for this side
        self._others = 0  # look-ups for the other side that are under way

    def ask(self, missing: LackingRemote | LackingLocal) -> list[Action]:
        """Ask for `missing`, which the certificate of the first undecided position lacks."""
        progress, position = self._state, self._state.position
        if self._contested != position:
            progress.counters.certificate_failures += 1
        self._contested = position
        if isinstance(missing, LackingLocal):
            return self._look_up(missing)
        digest = progress.prefix.digest(position)
        if self._latest != (digest, missing):
            self.count += 1
        elif self._pending:
            return []
        self._latest, self._pending, self._awaited = (digest, missing), True, True
        return [Send(Resolve(progress.config.session, position, digest, missing.ids, missing.depth))]

    def answered(self, answer: Resolved) -> LackingRemote | None:
        """The latest question, if a message answers it and is the first to do so since it was asked."""
        if not self._awaited or self._latest is None:
            return None
        digest, missing = self._latest
        if (answer.position, answer.digest, answer.depth) != (self._state.position, digest, missing.depth):
            return None
        self._awaited = False
        return missing

    def reply(self, question: Resolve, shared: bool) -> list[Action]:
        """Look up what the other side asks of a draft, if `shared`. Raises `ProtocolError` for a malformed question."""
        draft = self._state.local.find(question.position, question.digest)
        if draft is None or not shared or self._others >= MOST_LOOK_UPS:
            self._state.counters.stale += 1
            return []
        self._aggregation.check_resolve(question.ids, question.depth)
        self._others += 1
        return [LookUp(draft.position, draft.digest, draft.view, question.ids, question.depth, asked=True)]

    def looked_up(self, look_up: LookUp, payload: bytes) -> list[Action]:
        """Take in the result of a look-up: reply to the other side, or complete this side's own draft."""
        position, digest, depth = look_up.position, look_up.digest, look_up.depth
        if look_up.asked:
            self._others -= 1
            return [Send(Resolved(self._state.config.session, position, digest, depth, payload))]
        self._own = None
        draft = self._state.local.find(position, digest)
        if draft is not None:
            view = self._aggregation.complete(draft.known, position, look_up.ids, depth, payload)
            self._state.local.complete(position, digest, view)
        return []

    def forget(self) -> None:
        """Let the latest question be asked again: it or its answer may be lost."""
        self._pending = False

    def _look_up(self, lacking: LackingLocal) -> list[Action]:
        draft = self._state.local.first()
        if draft is None or self._own == (draft.digest, lacking):
            return []
        self._own = (draft.digest, lacking)
        return [LookUp(draft.position, draft.digest, draft.view, lacking.ids, lacking.depth, asked=False)]


# --- session


class Session:
    """The rules by which drafts become the answer: who decides, who is told, and what a message changes."""

    def __init__(
        self,
        role: Side,
        config: SessionConfig,
        aggregation: SessionSampler,
        policy: PlacementPolicy,
        ahead: Ahead = Ahead(),  # noqa: B008  # frozen
    ) -> None:
        self.role = role
        self.away = False  # the device goes on alone
        self.term = 0  # of the aggregation: one more with every take-over
        self.aggregator: Side = policy.next_aggregator(0, {})
        self.ahead = ahead
        self._other: Side = OTHER[role]
        self.aggregation = aggregation
        self._policy = policy
        self._state = SessionState(role, config, aggregation)
        self._announcer = Announcer(role, self._state, aggregation)
        self._decider = Decider(role, self._state, aggregation)
        self._questions = Questions(self._state, aggregation)
        self._heard = False  # the cloud has drafted or decided since the session was opened on it
        self._told = False  # the other side has this side's evidence

    # --- what the drivers look at

    @property
    def config(self) -> SessionConfig:
        return self._state.config

    @property
    def committed(self) -> tuple[int, ...]:
        """The answer so far."""
        return tuple(self._state.prefix.committed())

    @property
    def provisional(self) -> tuple[int, ...]:
        """This side's own drafts behind the decided tokens."""
        return self._state.local.chain

    @property
    def position(self) -> int:
        """The first undecided position."""
        return self._state.position

    @property
    def epoch(self) -> int:
        """Number of times so far that the decode step under way became useless."""
        return self._state.epoch

    def digest(self, position: int) -> int:
        """Digest of the first `position` committed tokens."""
        return self._state.prefix.digest(position)

    @property
    def finished(self) -> FinishReason | None:
        return self._state.finished

    @property
    def counters(self) -> SessionCounters:
        return self._state.counters

    @property
    def work(self) -> DraftWork | None:
        """The next decode step, or None while there is nothing worth decoding."""
        return None if self._idle else self._state.work(self.ahead)

    @property
    def waiting(self) -> bool:
        """Whether only the other side can bring this answer forward."""
        passive = self._idle or self.role not in self.config.participants
        return not self.finished and (passive or self._state.local.first() is not None)

    @property
    def stage(self) -> Stage:
        return Stage(self.position, self._heard, self._questions.count)

    # --- events

    def drafted(self, draft: LocalDraft) -> list[Action]:
        """Take in a draft of a decode step."""
        if not self._state.drafted(draft, self.ahead.branching):
            return []
        self._decider.weigh(self.role, draft.evidence)
        self._told = True
        return self._announcer.drafts([draft]) + self._advance()

    def without_documents(self, side: Side) -> list[Action]:
        """Note that `side` has found none: the cloud takes no part from now on, or the device need not draft."""
        if len(self.config.participants) == 2:
            self._decider.absent |= {side}
            if side == "cloud":
                self._state.config = replace(self.config, participants=frozenset({"device"}))
                self.away, self.aggregator = False, "device"
        return self._advance()

    def received(self, message: Message) -> list[Action]:
        """Take in a message of this session. Raises `ProtocolError` when it is malformed, and changes nothing then."""
        if self.finished and self.role == "device":
            return []
        check_tokens(message, self.config.vocabulary)
        actions = self._take_in(message)
        self._heard |= isinstance(message, Draft | Target)
        return actions

    def looked_up(self, look_up: LookUp, payload: bytes) -> list[Action]:
        """Take in the result of a `LookUp`."""
        return self._questions.looked_up(look_up, payload) + self._advance()

    def stalled(self) -> list[Action]:
        """Send again what may be lost, ask for what is missing: the silence is longer than the network explains."""
        if self.finished:
            return []
        self._questions.forget()
        self._told = False
        return self._synchronize(self.position, wants_reply=True) + self._advance()

    def rejoined(self, changed: bool = False) -> list[Action]:
        """Tell a reconnected cloud where the answer stands, in a new term. `changed`: its model or library has."""
        self._heard = False
        if changed:
            self._state.forget_remote()
        if not self.finished:
            self.term += 1
        return self.stalled()

    def out_of_patience(self) -> list[Action]:
        """Let the device carry on alone, with η = 0 for the cloud, until the late cloud is heard again."""
        if self.finished or self.role != "device" or "device" not in self.config.participants:
            return []
        self.away = True
        taken_over: list[Action] = []
        if self.aggregator != "device":
            self.term += 1
            self._hand_over("device")
            taken_over = [self._sync(wants_reply=True)]  # a cloud that is reachable follows at once
        return taken_over + self._advance()

    # --- messages

    def _take_in(self, message: Message) -> list[Action]:
        match message:
            case Draft():
                return self._on_draft(message)
            case Target():
                return self._on_target(message)
            case Resolve():
                return self._questions.reply(message, self.config.shares(self.role))
            case Resolved():
                return self._on_resolved(message)
            case Sync():
                return self._on_sync(message)
            case Ready(titles=()) if self.role == "device":
                return self.without_documents("cloud")
        return []

    def _on_draft(self, message: Draft) -> list[Action]:
        position, digest, here = message.position, message.digest, self.position
        in_step = position <= here and digest == self._state.prefix.digest(position)
        if not here <= position < here + self.config.window or not self.config.shares(self._other):
            self.counters.stale += 1
            return self._take_back() if in_step else []
        known = self._state.remote(position, digest)
        if known is None or not self._repeats(known, message):
            view = self.aggregation.read(self._other, position, message.payload)
            self._state.put(position, digest, RemoteDraft(view, message.evidence, self.aggregation.footprint(view)))
            self._decider.weigh(self._other, message.evidence)
            if known is not None:
                self._questions.forget()  # what was asked may have been told of the draft before
        return (self._take_back() if in_step else []) + self._advance()

    def _repeats(self, known: RemoteDraft, message: Draft) -> bool:
        """Whether a draft tells what is `known` already, and lacks what was resolved since. One that was made anew may
        differ in the last bits, as it comes from another pass: then that is the one that the other side is asked about.
        """
        return known.evidence == message.evidence and self.aggregation.pack(known.view) == message.payload

    def _on_target(self, message: Target) -> list[Action]:
        if message.epoch != self.term or self.aggregator == self.role:
            self.counters.stale += 1
            return self._take_back()  # too late to count, but the cloud is back
        self._state.local.settle(message.position + len(message.tokens))
        if message.position > self.position:
            return [self._sync(wants_reply=True)]
        actions = self._state.follow(message.position, message.tokens)
        if message.position + len(message.tokens) >= self.position:
            self._hand_over(message.aggregator)
        return actions + self._advance()

    def _on_resolved(self, message: Resolved) -> list[Action]:
        draft = self._state.remote(message.position, message.digest)
        asked = None if draft is None else self._questions.answered(message)
        if draft is None or asked is None:
            self.counters.stale += 1
            return []
        position, told = message.position, (asked.ids, asked.depth, message.payload)
        try:
            view = self.aggregation.complete(draft.known, position, *told)
        except ProtocolError:
            view = self.aggregation.complete(draft.view, position, *told)  # it was made anew since
        size = self.aggregation.footprint(draft.view) + self.aggregation.footprint(view)
        self._state.put(position, message.digest, replace(draft, resolved=view, footprint=size))
        return self._advance()

    def _on_sync(self, message: Sync) -> list[Action]:
        actions: list[Action] = []
        take_over = message.epoch > self.term and self.role == "cloud"
        if take_over or (message.epoch == self.term and self.aggregator != self.role):
            actions += self._state.adopt(message.tokens, exactly=take_over)
            if len(message.tokens) >= self.position:
                self._hand_over(message.aggregator)
        if take_over:
            self.term = message.epoch
        self._state.local.settle(len(message.tokens))
        if message.epoch == self.term:
            actions += self._take_back()
        if message.wants_reply:
            self._questions.forget()  # what was asked may have been lost with the rest
            actions += self._synchronize(len(message.tokens), wants_reply=False)
        return actions + self._advance()

    # --- moving forward

    def _advance(self) -> list[Action]:
        """Decide positions while everything needed is here, and announce them."""
        actions: list[Action] = []
        start, tokens = self.position, list[int]()
        while not self.finished:
            decision, degraded = self._decide()
            if isinstance(decision, LackingRemote | LackingLocal):
                actions += self._questions.ask(decision)
            if not isinstance(decision, Decided):
                break
            tokens.append(decision.token)
            accepted = self._state.accepted(decision.token)
            next_one = self.aggregator if self.away else self._policy.next_aggregator(self.position + 1, accepted)
            actions += self._state.commit(decision, degraded)
            self._hand_over(next_one)
        return actions + self._announcer.targets(self.term, start, tokens, self.aggregator)

    def _decide(self) -> tuple[Verdict | None, bool]:
        return self._decider.decide(self.config.placement == "mirrored" or self.aggregator == self.role, self.away)

    def _take_back(self) -> list[Action]:
        """Take a cloud that is in step with the answer back in, under the placement that was asked for."""
        if not self.away:
            return []
        self.away = False
        aggregator = self._policy.next_aggregator(self.position, {})
        if aggregator == "device":
            return []
        self.term += 1
        self._hand_over(aggregator)
        return [self._sync(wants_reply=True)]

    # --- who has a say

    @property
    def _idle(self) -> bool:
        """Whether the device need not draft: the cloud has all the weight, and knows it if it gets drafts at all."""
        if self.role != "device" or self.away or not (self._told or not self.config.shares(self.role)):
            return False
        return self._decider.sole == "cloud"

    # --- small pieces

    def _hand_over(self, aggregator: Side) -> None:
        if aggregator != self.aggregator:
            self.counters.switches += 1
            self.aggregator = aggregator

    def _synchronize(self, position: int, wants_reply: bool) -> list[Action]:
        """The committed prefix and this side's drafts from `position` on."""
        return [self._sync(wants_reply), *self._announcer.drafts(self._state.local.since(position))]

    def _sync(self, wants_reply: bool) -> Send:
        return self._announcer.sync(self.term, self.aggregator, wants_reply)
