"""One side of one answer as a pure state machine (DRAGON §4.2, with the fences it needs on a real network).

Both daemons, the simulator and the tests drive the same object: they tell it what happened (see *events* below) and
carry out the actions it returns. It reads no clock and touches no socket, model or thread. The methods are not
thread-safe: one caller at a time.

The device is the authority over the answer, since it shows the tokens: it takes the aggregation over when the cloud
is away, which starts a new term, and the cloud follows. Within one term the aggregator alone decides, and the next
one is named together with the token that precedes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from common.speculation.announcements import check_tokens, draft_message, target_messages
from common.speculation.progress import Progress
from common.speculation.values import (
    OTHER,
    Action,
    Aggregation,
    Counters,
    Decided,
    FinishReason,
    LocalDraft,
    PlacementPolicy,
    RemoteDraft,
    Send,
    SessionConfig,
    Undecided,
    Work,
)
from proto.messages import Draft, Message, Resolve, Resolved, Side, Sync, Target


class Session:
    """The rules by which drafts become the answer: who decides, who is told, and what a message changes."""

    def __init__(
        self,
        role: Side,
        config: SessionConfig,
        aggregation: Aggregation,
        policy: PlacementPolicy,
        run_ahead: int = 1,
    ) -> None:
        self.role = role
        self.config = config
        self.away = False  # the device goes on alone
        self.term = 0  # of the aggregation: one more with every take-over
        self.aggregator: Side = policy.next_aggregator(0, {})
        self.run_ahead = run_ahead  # drafts held beyond the committed prefix; 1 is synchronous
        self._other: Side = OTHER[role]
        self._aggregation = aggregation
        self._policy = policy
        self._progress = Progress(role, config)
        self._asked: Undecided | None = None  # for the first undecided position
        self._contested = -1  # the last position whose certificate failed

    # --- what the drivers look at

    @property
    def committed(self) -> tuple[int, ...]:
        """The answer so far."""
        return tuple(self._progress.prefix.committed())

    @property
    def position(self) -> int:
        """The first undecided position."""
        return self._progress.position

    @property
    def path(self) -> list[int]:
        """The committed tokens followed by this side's drafts: what the next decode step is conditioned on."""
        return self._progress.prefix.path

    @property
    def epoch(self) -> int:
        """Of this side's drafts: one more with every roll-back, which makes decode steps under way useless."""
        return self._progress.epoch

    @property
    def finished(self) -> FinishReason | None:
        return self._progress.finished

    @property
    def counters(self) -> Counters:
        return self._progress.counters

    @property
    def work(self) -> Work | None:
        """The next decode step, or None while there is nothing worth decoding."""
        return self._progress.work(self.run_ahead)

    @property
    def waiting(self) -> bool:
        """Whether only the other side can bring this answer forward."""
        return not self.finished and (len(self._progress.local) > 0 or self.role not in self.config.participants)

    # --- events

    def drafted(self, draft: LocalDraft) -> list[Action]:
        """A decode step ended."""
        if not self._progress.drafted(draft):
            return []
        announced: list[Action] = [self._announced(draft)] if self.config.shares(self.role) else []
        return announced + self._advance()

    def received(self, message: Message) -> list[Action]:
        """A message of this session came. Raises `ProtocolError` when it is malformed, and changes nothing then."""
        if self.finished and self.role == "device":
            return []
        check_tokens(message, self.config.vocabulary)
        match message:
            case Draft():
                return self._on_draft(message)
            case Target():
                return self._on_target(message)
            case Resolve():
                return self._on_resolve(message)
            case Resolved():
                return self._on_resolved(message)
            case Sync():
                return self._on_sync(message)
        return []

    def stalled(self) -> list[Action]:
        """Nothing came for longer than the network explains: send what may be lost, ask for what is missing."""
        if self.finished:
            return []
        self._asked = None
        return self._state(self.position, wants_reply=True) + self._advance()

    def rejoined(self) -> list[Action]:
        """The device's connection is new. A replaced cloud begins anew: a new term says where the answer is."""
        if not self.finished:
            self.term += 1
        return self.stalled()

    def out_of_patience(self) -> list[Action]:
        """The cloud is too late: the device carries on alone until it is heard again (eta of the cloud is 0)."""
        if self.finished or self.role != "device" or "device" not in self.config.participants:
            return []
        self.away = True
        if self.aggregator != "device":
            self.term += 1
            self._hand_over("device")
        return self._advance()

    # --- messages

    def _on_draft(self, message: Draft) -> list[Action]:
        position, digest, here = message.position, message.digest, self.position
        in_step = position <= here and digest == self._progress.prefix.digest(position)
        if not here <= position < here + self.config.window:
            self.counters.stale += 1
            return self._heard() if in_step else []
        if self._progress.remote(position, digest) is None:  # a repeated one knows less than what was resolved since
            view = self._aggregation.read(self._other, position, message.payload)
            self._progress.put(position, digest, RemoteDraft(view, message.evidence))
        return (self._heard() if in_step else []) + self._advance()

    def _on_target(self, message: Target) -> list[Action]:
        if message.epoch != self.term or self.aggregator == self.role:
            self.counters.stale += 1
            return []
        if message.position > self.position:
            return [self._sync(wants_reply=True)]
        actions = self._followed(self._progress.follow(message.position, message.tokens))
        if message.position + len(message.tokens) >= self.position:
            self._hand_over(message.aggregator)
        return actions + self._advance()

    def _on_resolve(self, message: Resolve) -> list[Action]:
        draft = self._progress.local.find(message.position, message.digest)
        if draft is None or not self.config.shares(self.role):
            self.counters.stale += 1
            return []
        payload = self._aggregation.supply(draft.view, message.ids, message.depth)
        return [Send(Resolved(self.config.session, message.position, message.digest, message.depth, payload))]

    def _on_resolved(self, message: Resolved) -> list[Action]:
        draft = self._progress.remote(message.position, message.digest)
        if draft is None:
            self.counters.stale += 1
            return []
        view = self._aggregation.complete(draft.view, message.position, message.depth, message.payload)
        self._progress.put(message.position, message.digest, RemoteDraft(view, draft.evidence))
        return self._advance()

    def _on_sync(self, message: Sync) -> list[Action]:
        actions: list[Action] = []
        take_over = message.epoch > self.term and self.role == "cloud"
        if take_over or (message.epoch == self.term and self.aggregator != self.role):
            actions += self._followed(self._progress.adopt(message.tokens, exactly=take_over))
            if len(message.tokens) >= self.position:
                self._hand_over(message.aggregator)
        if take_over:
            self.term = message.epoch
        if message.epoch == self.term:
            actions += self._heard()
        if message.wants_reply:
            self._asked = None  # what was asked may have been lost with the rest
            actions += self._state(len(message.tokens), wants_reply=False)
        return actions + self._advance()

    # --- moving forward

    def _advance(self) -> list[Action]:
        """Decide positions while everything needed is here, and announce them."""
        actions: list[Action] = []
        start, tokens = self.position, list[int]()
        while not self.finished:
            decision, degraded = self._decide()
            if isinstance(decision, Undecided):
                actions += self._ask(decision)
            if not isinstance(decision, Decided):
                break
            tokens.append(decision.token)
            in_charge = self._next_aggregator(decision.token)
            actions += self._followed(self._progress.commit(decision, degraded))
            self._hand_over(in_charge)
        if tokens and self._announces():
            actions += target_messages(self.config, self.term, start, tokens, self.aggregator)
        return actions

    def _decide(self) -> tuple[Decided | Undecided | None, bool]:
        """The target of the first undecided position, and whether it is the device's alone for want of the cloud."""
        mine, theirs = self._progress.first_pair()
        if mine is None:
            return None, False
        if self._other not in self.config.participants:
            return Decided(mine.view.token), False
        if theirs is None:
            return (Decided(mine.view.token), True) if self.away else (None, False)
        if self.config.placement != "mirrored" and self.aggregator != self.role:
            return None, False
        device, cloud = (mine, theirs) if self.role == "device" else (theirs, mine)
        evidence = (device.evidence, cloud.evidence)
        outcome = self._aggregation.aggregate(self.role, self.position, device.view, cloud.view, evidence)
        if isinstance(outcome, Undecided) and self.away:
            return Decided(mine.view.token), True
        return outcome, False

    def _ask(self, missing: Undecided) -> list[Action]:
        if self._asked == missing:
            return []
        if self._contested != self.position:
            self.counters.certificate_failures += 1
        self._asked, self._contested = missing, self.position
        digest = self._progress.prefix.digest(self.position)
        return [Send(Resolve(self.config.session, self.position, digest, missing.ids, missing.depth))]

    def _followed(self, changes: Sequence[Action]) -> list[Action]:
        """The answer went on, so that what was asked no longer matters."""
        self._asked = None
        return list(changes)

    def _heard(self) -> list[Action]:
        """The cloud is in step with the answer: take it back in, under the placement that was asked for."""
        if not self.away:
            return []
        self.away = False
        aggregator = self._policy.next_aggregator(self.position, {})
        if aggregator == "device":
            return []
        self.term += 1
        self._hand_over(aggregator)
        return [self._sync(wants_reply=True)]

    # --- small pieces

    def _announces(self) -> bool:
        """Whether this side's decisions are news to the other: the device always speaks for the answer."""
        if "cloud" not in self.config.participants:
            return False
        return self.role == "device" or self.config.placement != "mirrored"

    def _next_aggregator(self, target: int) -> Side:
        if self.away or self.finished:
            return self.aggregator
        return self._policy.next_aggregator(self.position + 1, self._progress.accepted(target))

    def _hand_over(self, aggregator: Side) -> None:
        if aggregator != self.aggregator:
            self.counters.switches += 1
            self.aggregator = aggregator

    def _state(self, position: int, wants_reply: bool) -> list[Action]:
        """The committed prefix and this side's drafts from `position` on."""
        actions: list[Action] = [self._sync(wants_reply)]
        if self.config.shares(self.role):
            actions += [self._announced(draft) for draft in self._progress.local.since(position)]
        return actions

    def _announced(self, draft: LocalDraft) -> Send:
        return Send(draft_message(self.config, self.epoch, draft, self._aggregation.pack(draft.view)))

    def _sync(self, wants_reply: bool) -> Send:
        return Send(Sync(self.config.session, self.term, self.committed, self.aggregator, wants_reply))
