"""The drafter of one answer as a state machine.

Theory of operation
===================

The drafter drafts after the decided tokens, proposes several drafts at a time, and gets verdicts. Accepted drafts join
the answer. A rejected draft is replaced, and all later ones are dropped.

**Proposals.** A policy plans the next proposal's length by the measured rounds. The drafter waits for the verdict, or
drafts `ahead` meanwhile. Ahead, no bonus follows a proposal, because the next one owns that position. So decided tokens
do not depend on message timing. With `lookahead` a whole proposal has one more draft, for the verifier to use its
distribution.

**States.** The state names the decider of the next tokens:

    drafting   The verifier, by verdicts on proposals.
    resting    The verifier, without proposals: drafts are not worth it. An eager verifier decides by itself. Another
               one decides the tokens of a `Defer`.
    alone      The drafter: there is no verifier. Each draft is decided, as a degraded token.
    relieved   A larger model of this device replaces the verifier. Its tokens come by `decide`.

`TRANSITIONS` lists the changes; an empty cell changes nothing:

    event                                              drafting   resting    alone      relieved
    draft      drafts planned, no tokens deferred      drafting   drafting
    rest       no drafts planned, or tokens deferred   resting    resting
    lost       no verifier                             alone      alone                 alone
    replaced   another model of the device verifies    relieved   relieved
    back       the verifier is back                                          drafting   drafting

**A lost verifier.** Its proposals and deferred tokens stay until a different decision. If it returns before, it judges
these, not new ones, which its own verdict may have influenced.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Protocol, Self

from common.answer.values import Action, Commit, Finish, FinishReason, Prefix, Send, View, Work
from common.draft_policy.times import DraftPlan, Extension
from common.sampling.compiled import DrawPoint
from proto.errors import malformed
from proto.messages import MOST_PROPOSED, Decided, Defer, Open, Propose, Side, Sync, Verdict

# --- values

AHEAD: Final = 64  # most drafts without verdict


@dataclass(frozen=True, slots=True)
class RoundsConfig:
    """Parameters of one answer, equal on both sides."""

    session: int
    eos: frozenset[int]
    max_tokens: int
    vocabulary: int  # all token ids are below it
    bonus: bool = True  # one more token after a wholly accepted proposal
    ahead: int = 0  # most drafts beyond the proposed ones
    most: int = MOST_PROPOSED  # tokens of a proposal that always fit
    lookahead: bool = False  # proposals include the bonus position's distribution; not with `ahead`
    eager: bool = False  # the verifier decides unproposed positions, as both draw the same; only with `ahead`
    defers: bool = False  # the drafter may leave tokens to the verifier

    @classmethod
    def of(cls, opening: Open, vocabulary: int, ahead: bool, raced: bool = False, eager: bool = False) -> Self:
        """The parameters of an opened answer; `ahead` excludes a bonus.

        `raced` tokens are the same for any drafter. Others may only be deferred without `ahead`: there the bonus makes
        proposals' ends matter anyway. Ahead, tokens depend only on the seed.
        """
        eos, most_ahead = frozenset(opening.eos), AHEAD if ahead else 0
        session, most, eager = opening.session, opening.max_tokens, ahead and eager
        defers = not eager and (raced or not ahead)
        return cls(session, eos, most, vocabulary, bonus=not ahead, ahead=most_ahead, eager=eager, defers=defers)

    def ends(self, token: int, length: int) -> bool:
        """Whether an answer of `length` tokens ending in `token` is complete."""
        return token in self.eos or length >= self.max_tokens


class ProposedToken(Protocol):
    """A received token with data on the drafter's distribution."""

    @property
    def token(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """The outcome of a proposal."""

    accepted: int
    token: int | None  # the next one; None if absent, or found by the drafter from `payload`
    payload: bytes = b""


class DraftView(View, Protocol):
    """A drafted token, or the distribution to draw it from."""

    @property
    def confidence(self) -> float:
        """The largest probability of its distribution."""
        ...


class Drafts(Protocol):
    """The drafter's part of a method."""

    def planned(self, plan: DraftPlan) -> None:
        """Prepare the next proposal's drafts."""
        ...

    def drawn(self, place: DrawPoint, view: Any) -> DraftView:
        """The draft at `place` from the model's view."""
        ...

    def pack(self, views: Sequence[Any], length: int) -> tuple[tuple[int, ...], bytes]:
        """`Propose.tokens` and `Propose.payload` of `length` drafts.

        `lookahead` adds a view without a proposed token, at the bonus position.
        """
        ...

    def settle(self, place: DrawPoint, view: Any, payload: bytes) -> int:
        """Replace the rejected draft `view`, if the verdict names no token.

        Raises `ProtocolError` for an invalid payload.
        """
        ...


class Judge(Protocol):
    """The verifier's part of a method."""

    @property
    def slow(self) -> bool:
        """Whether `read` is slow."""
        ...

    def check(self, message: Propose) -> None:
        """Cheaply reject before `read`. Raises `ProtocolError`."""
        ...

    def read(self, message: Propose) -> Sequence[ProposedToken]:
        """Decode a proposal by position. Raises `ProtocolError` if it is invalid."""
        ...

    def judge(self, place: DrawPoint, proposed: Sequence[Any], targets: Sequence[Any]) -> Judgement:
        """Compare tokens from `place` on with the verifier's views, one more for a bonus."""
        ...


class Lengths(Protocol):
    """Chooses proposals' lengths, and learns from the outcomes.

    A proposed position may depend on its prefix and on the drafter's distribution, never on the drawn token: that would
    change the answer's law. So decisions get a draft's confidence, the largest probability of its distribution.
    """

    @property
    def most_ahead(self) -> int:
        """Most drafts that are worthwhile before a verdict, at least 1."""
        ...

    def plan(self, confidences: Sequence[float]) -> DraftPlan:
        """Plan a proposal from the latest drafted tokens' confidences."""
        ...

    def extension(self, confidence: float, drafted: int) -> Extension:
        """Whether to propose a position after `drafted` ones, and to draft another.

        The first is always proposed.
        """
        ...

    def proposed(self, message: Propose, confidences: Sequence[float], steps: Sequence[float]) -> None:
        """Note a proposal with the seconds of its draft `steps`."""
        ...

    def undrafted(self, message: Decided, tokens: int) -> None:
        """Note `tokens` decided without drafts, in the message's time."""
        ...

    def judged(self, message: Verdict | Decided, accepted: Sequence[int], last: int, token: bool) -> None:
        """Note the accepted tokens of each proposal up to round `last`.

        `token`: one was not drafted. The message's times belong to its own round.
        """
        ...


@dataclass(slots=True)
class RoundsCounters:
    """The drafter's event counts."""

    rounds: int = 0  # judged
    sent: int = 0  # proposals
    drafted: int = 0
    late: int = 0  # rolled back before they were made
    proposed: int = 0  # in judged proposals
    accepted: int = 0
    rejected: int = 0  # later drafts are not judged
    bonus: int = 0
    deferred: int = 0  # also counted in `bonus`
    stale: int = 0  # fenced verdicts


# --- drafting

DraftingState = Literal["drafting", "resting", "alone", "relieved"]
DraftingEvent = Literal["draft", "rest", "lost", "replaced", "back"]

TRANSITIONS: Final[Mapping[tuple[DraftingState, DraftingEvent], DraftingState]] = {
    ("drafting", "rest"): "resting",
    ("drafting", "lost"): "alone",
    ("drafting", "replaced"): "relieved",
    ("resting", "draft"): "drafting",
    ("resting", "lost"): "alone",
    ("resting", "replaced"): "relieved",
    ("alone", "back"): "drafting",
    ("relieved", "lost"): "alone",
    ("relieved", "back"): "drafting",
}

REMEMBERED: Final = 16  # confidences
DEFERRED_AGAIN: Final = MOST_PROPOSED // 2  # remaining tokens at which more are deferred


class Drafting:
    """Drafts after the decided prefix, in planned proposals."""

    aggregator: ClassVar[Side] = "cloud"

    def __init__(self, config: RoundsConfig, drafts: Drafts, lengths: Lengths) -> None:
        self.config = config
        self.counters = RoundsCounters()
        self.epoch = 0  # roll-backs
        self.state: DraftingState = "drafting"
        self.degraded: list[int] = []  # decided without the verifier
        self.finished: FinishReason | None = None
        self._drafts = drafts
        self._lengths = lengths
        self._prefix = Prefix()
        self._views: list[DraftView] = []  # of the drafts
        self._round = 0
        self._outstanding: deque[tuple[Propose, int]] = deque()  # proposals and their ends
        self._deferred: deque[tuple[Defer, int]] = deque()  # with ends; excludes proposals and drafts
        self._known = 0  # decided tokens on the verifier, all except the last
        self._steps: list[float] = []  # seconds of unproposed drafts
        self._confidences: deque[float] = deque(maxlen=REMEMBERED)  # of decided drafts
        self._shortest = 0  # 1: the verifier decides nothing by itself, for any policy
        self._plan: DraftPlan  # of the current drafts
        self._make_plan()

    @property
    def alone(self) -> bool:
        """Whether this device decides."""
        return self.state in ("alone", "relieved")

    @property
    def position(self) -> int:
        return self._prefix.length

    @property
    def decided(self) -> list[int]:
        return self._prefix.committed()

    @property
    def provisional(self) -> tuple[int, ...]:
        return tuple(self._prefix.path[self.position :])

    @property
    def waiting(self) -> bool:
        """Whether only the verifier can advance the answer."""
        asked = self.state == "resting" or (self.state == "drafting" and self._outstanding)
        return bool(asked) and self.finished is None and self.work() is None

    @property
    def outstanding(self) -> int:
        return len(self._outstanding)

    def work(self) -> Work | None:
        path = self._prefix.path
        if self.finished is not None or self.state in ("relieved", "resting"):
            return None
        if len(path) > self.position and self.config.ends(path[-1], len(path)):
            return None
        if self._outstanding and len(path) - self.position >= min(self.config.ahead, self._lengths.most_ahead):
            return None
        return Work(self.epoch, tuple(path))

    # --- events

    def begin(self) -> list[Action]:
        """Defer the first tokens if drafts are not worthwhile."""
        return self._defer()

    def drawn(self, work: Work, views: Sequence[Any], seconds: float, now: float) -> list[Action]:
        late = work.epoch != self.epoch or work.position != self._prefix.path_length
        if self.finished is not None or self.state in ("relieved", "resting") or late:
            self.counters.late += 1
            return []
        self.counters.drafted += 1
        self._steps.append(seconds)
        view = self._drafts.drawn(DrawPoint(work.position, self._prefix.path_digest), views[0])
        if self.state == "drafting" and not self._extended(view.confidence):
            return self._propose([view] if self.config.lookahead else [])
        self._prefix.extend(view.token)
        self._views.append(view)
        if self.state == "alone":
            return self._decide_alone()
        return self._propose([]) if self._complete() else []

    def judged(self, verdict: Verdict) -> list[Action]:
        """Process a verdict; fence off one out of order or not outstanding.

        Raises `ProtocolError` for an impossible one, without a change.
        """
        rounds = [message.round for message, _ in self._outstanding]
        if verdict.round not in rounds or verdict.position != self.position or self.finished is not None:
            self.counters.stale += 1
            return []
        count = rounds.index(verdict.round) + 1
        end = self._outstanding[count - 1][1]
        token = self._token(verdict, end)
        rejected = verdict.accepted < end - self.position
        held = [
            min(max(position + verdict.accepted - message.position, 0), stop - message.position)
            for position in [self.position]
            for message, stop in list(self._outstanding)[:count]
        ]
        self._lengths.judged(verdict, held, verdict.round, bool(verdict.token))
        for _ in range(count):
            self._outstanding.popleft()
        self.counters.rounds += 1
        self.counters.proposed += end - self.position
        self.counters.accepted += verdict.accepted
        self.counters.rejected += rejected
        actions: list[Action] = []
        for _ in range(verdict.accepted):
            actions += self._commit({"device": True})
        if token is not None:
            self.counters.bonus += not rejected
            confidences = [view.confidence for view in self._views[:1]]  # at the replaced token
            self._roll_back()
            self._prefix.extend(token)
            self._confidences.extend(confidences)
            actions += self._commit({"device": False} if rejected else {})
        self._known = self.position - (rejected and not verdict.token)
        if not self._outstanding and not self._views:
            self._make_plan()
        return actions + self._defer()

    def decided_by_verifier(self, message: Decided) -> list[Action]:
        """Process deferred tokens; fence off those that do not follow the prefix.

        Raises `ProtocolError` for impossible ones, without a change.
        """
        if not self.config.defers:
            raise malformed("a verifier that is not eager must judge what was proposed")
        tokens = self._news(message) if self._deferred else ()
        if not tokens:
            self.counters.stale += 1
            return []
        if self.position + len(tokens) > self._deferred[-1][1]:
            raise malformed("a verifier that is not eager must decide no more than it was left")
        self._lengths.undrafted(message, len(tokens))
        self.counters.bonus += len(tokens)
        self.counters.deferred += len(tokens)
        actions: list[Action] = []
        for token in tokens:
            self._prefix.extend(token)
            actions += self._commit({})
        self._known = self.position
        while self._deferred and self._deferred[0][1] <= self.position:
            self._deferred.popleft()
        # A plan may spend a trial, so none is made if all remaining tokens are deferred.
        if (
            self._plan.length == 0
            and self._left <= DEFERRED_AGAIN
            and self.position + self._left < self.config.max_tokens
        ):
            self._make_plan()
        return actions + self._defer()

    def out_of_patience(self, relieved: bool = False) -> list[Action]:
        """Continue by drafts, or if `relieved`, by tokens from `decide`."""
        if self.alone:
            return []
        self._happened("replaced" if relieved else "lost")
        return [] if relieved else self._decide_alone()

    def decide(self, position: int, token: int) -> list[Action]:
        """Process a token of the verifier's replacement, unless late."""
        if self.state != "relieved" or self.finished is not None or position != self.position:
            return []
        self._roll_back()
        self._prefix.extend(token)
        return self._commit({}, degraded=True)

    def relief_failed(self) -> list[Action]:
        """Decide by drafts again."""
        if self.state != "relieved":
            return []
        self._happened("lost")
        return self._decide_alone()

    def rejoined(self) -> list[Action]:
        """Send a returned verifier the decided tokens and unjudged proposals."""
        if self.finished is not None:
            return []
        self._happened("back")
        self._known = self.position
        again = [message for message, _ in self._outstanding]
        if again:  # the previous proposal may be forgotten
            again[0] = replace(again[0], digest=(self._prefix.digest(again[0].position),))
        left = [message for message, _ in self._deferred]
        if left:  # earlier deferred tokens may be decided
            start, end = self.position, self._deferred[0][1]
            left[0] = replace(left[0], position=start, digest=(self._prefix.digest(start),), tail=(), count=end - start)
        sent = [Send(message) for message in again] + [Send(message) for message in left]
        return [Send(self._sync(wants_reply=False)), *sent, *self._defer()]

    def reminded(self) -> list[Action]:
        """Repeat decided tokens and proposals for a silent verifier."""
        return self.rejoined()

    def asking(self) -> list[Action]:
        """Ask whether a given-up verifier is back."""
        return [Send(self._sync(wants_reply=True))] if self.alone and self.finished is None else []

    def closing(self) -> list[Action]:
        """Send a last token drawn here: only the verifier knows its documents' shares."""
        untold = self._known < self.position and not self.alone
        return [Send(self._sync(wants_reply=False))] if untold else []

    # --- inside

    def _extended(self, confidence: float) -> bool:
        drafted = self._prefix.path_length - self._start
        if drafted >= self._plan.length:
            return False
        extension = self._lengths.extension(confidence, drafted)
        if extension == "last":
            self._plan = replace(self._plan, length=drafted + 1)
        return drafted == 0 or extension != "none"

    def _happened(self, event: DraftingEvent) -> None:
        self.state = TRANSITIONS.get((self.state, event), self.state)

    @property
    def _left(self) -> int:
        return self._deferred[-1][1] - self.position if self._deferred else 0

    def _defer(self) -> list[Action]:
        """Defer tokens if drafts are not worthwhile and few deferred ones remain."""
        actions: list[Action] = []
        start = self.position + self._left
        count = min(MOST_PROPOSED, self.config.max_tokens - start)
        wanted = self.config.defers and self._plan.length == 0 and not self._outstanding and not self.alone
        if wanted and self.finished is None and self._left <= DEFERRED_AGAIN and count > 0:
            digest, tail = ((), ()) if self._deferred else self._behind_known(start)
            self._round += 1
            message = Defer(self.config.session, self._round, start, digest, tail, count)
            self._deferred.append((message, start + count))
            actions.append(Send(message))
        self._settle()
        return actions

    def _settle(self) -> None:
        self._happened("rest" if self._plan.length == 0 or self._deferred else "draft")

    def _news(self, message: Decided) -> tuple[int, ...]:
        """The tokens after this side's prefix; empty if they do not follow.

        Raises `ProtocolError` for impossible tokens.
        """
        start, position = message.position, self.position
        known = position - start
        fits = (
            self.finished is None
            and not self.alone
            and 0 <= known < len(message.tokens)
            and self._prefix.digest(start) == message.digest
            and tuple(self._prefix.path[start:position]) == message.tokens[:known]
        )
        tokens = message.tokens[known:] if fits else ()
        if any(token >= self.config.vocabulary for token in tokens):
            raise malformed("decided tokens must be of the vocabulary")
        if any(token in self.config.eos for token in tokens[:-1]):
            raise malformed("nothing may be decided after the end of the sequence")
        if position + len(tokens) > self.config.max_tokens:
            raise malformed("a decided token must be within the answer")
        return tokens

    def _sync(self, wants_reply: bool) -> Sync:
        return Sync(self.config.session, 0, tuple(self._prefix.committed()), "cloud", wants_reply)

    def _make_plan(self) -> None:
        self._steps = []
        plan = self._lengths.plan(list(self._confidences))
        self._plan = replace(plan, length=min(max(plan.length, self._shortest), self.config.most))
        self._drafts.planned(self._plan)
        self._settle()

    def _complete(self) -> bool:
        path = self._prefix.path
        if self.config.ends(path[-1], len(path)):
            return True
        return len(path) - self._start >= self._plan.length and not self.config.lookahead

    @property
    def _start(self) -> int:
        return self._outstanding[-1][1] if self._outstanding else self.position

    def _propose(self, behind: Sequence[DraftView]) -> list[Action]:
        """Propose the drafts; `behind` are views without proposed tokens."""
        start, end = self._start, self._prefix.path_length
        tokens, payload = self._drafts.pack([*self._views[start - self.position :], *behind], end - start)
        digest, tail = self._behind_known(start)
        self._round += 1
        self.counters.sent += 1
        message = Propose(self.config.session, self._round, start, digest, tail, tokens, payload)
        self._outstanding.append((message, end))
        confidences = [view.confidence for view in self._views[start - self.position :]]
        self._lengths.proposed(message, confidences, self._steps)
        self._make_plan()
        return [Send(message)]

    def _behind_known(self, start: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if self._outstanding:
            return (), ()
        return (self._prefix.digest(start),), tuple(self._prefix.path[self._known : start])

    def _token(self, verdict: Verdict, end: int) -> int | None:
        """The token after the accepted ones, or None. Raises `ProtocolError`."""
        proposed = end - self.position
        if verdict.accepted > proposed:
            raise malformed("a verdict must not accept more tokens than were proposed")
        if any(token >= self.config.vocabulary for token in verdict.token):
            raise malformed("the token of a verdict must be of the vocabulary")
        if verdict.accepted < proposed:
            if verdict.token:
                return verdict.token[0]
            position = self.position + verdict.accepted
            place = DrawPoint(position, self._prefix.digest(position))
            return self._drafts.settle(place, self._views[verdict.accepted], verdict.payload)
        last = self._prefix.path[end - 1]
        if bool(verdict.token) != (self.config.bonus and not self.config.ends(last, end)):
            raise malformed("a verdict must have a token after a whole proposal exactly if a bonus is drawn")
        return verdict.token[0] if verdict.token else None

    def _commit(self, accepted: dict[Any, bool], degraded: bool = False) -> list[Action]:
        position = self.position
        token = self._prefix.path[position]
        self._prefix.commit()
        if self._views:
            self._confidences.append(self._views.pop(0).confidence)
            self._steps = self._steps[max(0, len(self._steps) - len(self._views)) :]
        if degraded:
            self.degraded.append(position)
        actions: list[Action] = [Commit(position, token, degraded, None, None, accepted)]
        if self.config.ends(token, position + 1):
            self.finished = "stop" if token in self.config.eos else "length"
            actions.append(Finish(self.finished))
        return actions

    def _roll_back(self) -> None:
        self._prefix.roll_back()
        self._views.clear()
        self._steps = []
        self._outstanding.clear()
        self._deferred.clear()
        self.epoch += 1

    def _decide_alone(self) -> list[Action]:
        actions: list[Action] = []
        self._outstanding.clear()
        if self._views:  # else a returning verifier decides the deferred tokens first
            self._deferred.clear()
        while self._views and self.finished is None:
            actions += self._commit({}, degraded=True)
        return actions
