"""One side of one answer as a pure state machine (DRAGON §4.2, with the fences it needs on a real network).

Both daemons, the simulator and the tests drive the same object: they tell it what happened (see *events* below) and
carry out the actions it returns. It reads no clock and touches no socket, model or thread. The methods are not
thread-safe: one caller at a time.

The device is the authority over the answer, since it shows the tokens: when the cloud is away, the device takes the
aggregation over. That starts a new term, which the cloud follows. Within a term only the aggregator decides, and every
target that it sends names the aggregator of the next position.
"""

from __future__ import annotations

from dataclasses import replace

from common.answer.values import FinishReason, Send
from common.estimates.ahead import Ahead
from common.methods.aggregate.machine.announcements import Announcer, check_tokens
from common.methods.aggregate.machine.decision import Decider
from common.methods.aggregate.machine.questions import Questions
from common.methods.aggregate.machine.state import SessionState
from common.methods.aggregate.machine.values import (
    Action,
    Decided,
    DraftWork,
    LackingLocal,
    LackingRemote,
    LocalDraft,
    LookUp,
    PlacementPolicy,
    RemoteDraft,
    SessionConfig,
    SessionCounters,
    SessionSampler,
    Stage,
    Verdict,
)
from proto.errors import ProtocolError
from proto.fields import OTHER, Side
from proto.messages import Draft, Message, Ready, Resolve, Resolved, Sync, Target


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
