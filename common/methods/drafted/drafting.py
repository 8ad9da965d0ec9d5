"""The drafter of one answer, as a pure state machine.

Theory of operation
===================

The drafter makes drafts after the decided tokens, proposes several at a time, and takes the verdicts on them. Drafts
that hold become part of the answer. A rejected draft goes with all that follow it, and another token takes its place.

**Proposals.** A policy plans the length of the next proposal, by what the rounds have taken so far. The drafter waits
for the verdict, or drafts `ahead`: then drafts follow those whose verdict is under way. Ahead, no bonus is drawn after
a proposal, because that position belongs to the next one. So the decided tokens do not depend on when messages arrive.
With `lookahead` one more draft is made after a whole proposal: the verifier wants its distribution, not its token.

**States.** The state says who decides the next tokens, and so whether drafts are made:

    drafting   The verifier, by verdicts on proposals.
    resting    The verifier, without proposals: drafts are not worth it. An eager verifier decides by itself. Another
               one decides the tokens that it is left in a `Defer`.
    alone      The drafter: there is no verifier. Each draft is decided, as a degraded token.
    relieved   A larger model of this device, in the place of the verifier. Its tokens come by `decide`.

`TRANSITIONS` has all changes of the state; what is not in it changes nothing:

    event                                              drafting   resting    alone      relieved
    draft      the plan has drafts, no token is left   drafting   drafting
    rest       the plan has none, or tokens are left   resting    resting
    lost       nobody verifies                         alone      alone                 alone
    replaced   another model of the device verifies    relieved   relieved
    back       the verifier is there                                         drafting   drafting

**A lost verifier.** Its proposals and the tokens that it was left stay until something else is decided. A verifier that
is back before that judges them, and not others at their positions: its own verdict might have had a say in these.
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
# Parts that a draft-and-verify method plugs into the two state machines, and what all of them have in common.

AHEAD: Final = 64  # tokens that are drafted before the verdict of the first of them, where drafting goes on meanwhile


@dataclass(frozen=True, slots=True)
class RoundsConfig:
    """Parameters of one answer, alike on both sides."""

    session: int
    eos: frozenset[int]
    max_tokens: int
    vocabulary: int  # all token ids are below it
    bonus: bool = True  # the verifier adds a token behind a proposal of which all holds
    ahead: int = 0  # tokens that are drafted behind those that were proposed, before their verdict; 0: none
    most: int = MOST_PROPOSED  # tokens of a proposal that a message holds, whatever their distributions
    lookahead: bool = False  # a proposal tells of the bonus' position, too; only without `ahead`
    eager: bool = False  # the verifier decides also what nobody proposed: both draw the same; only with `ahead`
    defers: bool = False  # the drafter may leave tokens to the verifier

    @classmethod
    def of(cls, opening: Open, vocabulary: int, ahead: bool, raced: bool = False, eager: bool = False) -> Self:
        """Those of an opened answer. Drafting `ahead`, the position behind a proposal belongs to the next one.

        Tokens that are `raced` are the same whoever drafts them. Others may only be left to the verifier where the ends
        of proposals have a say anyway, by the bonus; ahead, they are a function of the seed whatever the lengths are.
        """
        eos, most_ahead = frozenset(opening.eos), AHEAD if ahead else 0
        session, most, eager = opening.session, opening.max_tokens, ahead and eager
        defers = not eager and (raced or not ahead)
        return cls(session, eos, most, vocabulary, bonus=not ahead, ahead=most_ahead, eager=eager, defers=defers)

    def ends(self, token: int, length: int) -> bool:
        """Whether an answer of `length` tokens, the last of them `token`, is complete."""
        return token in self.eos or length >= self.max_tokens


class ProposedToken(Protocol):
    """A proposed token as the verifier received it, with what its method tells of the drafter's distribution."""

    @property
    def token(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Judgement:
    """Outcome of a proposal: its first `accepted` tokens hold."""

    accepted: int
    token: int | None  # behind them; None where there is none, or where the drafter finds it from `payload`
    payload: bytes = b""


class DraftView(View, Protocol):
    """A drafted token, or, before it is drawn, the distribution that it will be drawn from."""

    @property
    def confidence(self) -> float:
        """The largest probability of the distribution that it was drawn from."""
        ...


class Drafts(Protocol):
    """A method on the drafter's side."""

    def planned(self, plan: DraftPlan) -> None:
        """Note how the next proposal is to be drafted, if there is one."""
        ...

    def drawn(self, place: DrawPoint, view: Any) -> DraftView:
        """The draft at `place`, of the view that the draft model gave there."""
        ...

    def pack(self, views: Sequence[Any], length: int) -> tuple[tuple[int, ...], bytes]:
        """`Propose.tokens` and `Propose.payload` of drafts, position by position, of which `length` are proposed.

        With `lookahead` there is one view more where a bonus will be drawn, whose token nobody proposes.
        """
        ...

    def settle(self, place: DrawPoint, view: Any, payload: bytes) -> int:
        """The token at `place` instead of the rejected draft `view`, where the verdict names none.

        Raises `ProtocolError` for a payload that no verifier can have sent.
        """
        ...


class Judge(Protocol):
    """A method on the verifier's side."""

    @property
    def slow(self) -> bool:
        """Whether reading what was proposed takes long."""
        ...

    def check(self, message: Propose) -> None:
        """Refuse, before it is read, what takes no work to be refused. Raises `ProtocolError`."""
        ...

    def read(self, message: Propose) -> Sequence[ProposedToken]:
        """The proposal's content, position by position. Raises `ProtocolError` for what no drafter can have sent."""
        ...

    def judge(self, place: DrawPoint, proposed: Sequence[Any], targets: Sequence[Any]) -> Judgement:
        """Compare what was proposed from `place` on with the verifier's own views at these positions.

        `targets` has one view more where a bonus is wanted.
        """
        ...


class Lengths(Protocol):
    """Decides how long proposals are, and is told what becomes of them.

    Whether a position is proposed may depend on the prefix before it and on the drafter's distribution there, never on
    the token that is drawn: else the answer's law would change. So all that it gets to know of a draft before that is
    its confidence: the largest probability of the distribution that it is drawn from.
    """

    @property
    def most_ahead(self) -> int:
        """Tokens behind the decided ones that are worth being drafted before a verdict, at least 1."""
        ...

    def plan(self, confidences: Sequence[float]) -> DraftPlan:
        """The next proposal, from the confidences at the last tokens of the prefix, as far as they were drafted."""
        ...

    def extension(self, confidence: float, drafted: int) -> Extension:
        """Whether a position of this confidence, behind the first `drafted` ones of a proposal, is proposed, too, and
        one more drafted. The first is always proposed.
        """
        ...

    def proposed(self, message: Propose, confidences: Sequence[float], steps: Sequence[float]) -> None:
        """Note a proposal that is sent, and the seconds of its draft `steps`."""
        ...

    def undrafted(self, message: Decided, tokens: int) -> None:
        """Note `tokens` that the verifier decided without drafts, by a pass that took the message's time."""
        ...

    def judged(self, message: Verdict | Decided, accepted: Sequence[int], last: int, token: bool) -> None:
        """Note how many tokens hold of each of the proposals of which `message` brings the end, up to round `last`, and
        whether it brings a `token` that was not drafted. Its times are those of the proposal of its own round.
        """
        ...


@dataclass(slots=True)
class RoundsCounters:
    """Counts of events so far, on the drafter's side."""

    rounds: int = 0  # that were judged
    sent: int = 0  # proposals
    drafted: int = 0
    late: int = 0  # drafts that were rolled back before they were made
    proposed: int = 0  # tokens of the proposals that were judged
    accepted: int = 0
    rejected: int = 0  # the others behind one that was rejected were not judged
    bonus: int = 0
    deferred: int = 0  # tokens that were left to the verifier; `bonus` has them, too
    stale: int = 0  # verdicts fenced off


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

REMEMBERED: Final = 16  # confidences that a policy is told
DEFERRED_AGAIN: Final = MOST_PROPOSED // 2  # tokens that the verifier is still left when it is left more


class Drafting:
    """Drafts behind the prefix that was decided, in proposals of the length that `lengths` chooses."""

    aggregator: ClassVar[Side] = "cloud"

    def __init__(self, config: RoundsConfig, drafts: Drafts, lengths: Lengths) -> None:
        self.config = config
        self.counters = RoundsCounters()
        self.epoch = 0  # counts roll-backs
        self.state: DraftingState = "drafting"
        self.degraded: list[int] = []  # positions that were decided without the verifier
        self.finished: FinishReason | None = None
        self._drafts = drafts
        self._lengths = lengths
        self._prefix = Prefix()
        self._views: list[DraftView] = []  # of the drafted tokens
        self._round = 0
        self._outstanding: deque[tuple[Propose, int]] = deque()  # proposals without a verdict, and where each ends
        self._deferred: deque[tuple[Defer, int]] = deque()  # never beside proposals, nor drafts; where each ends
        self._known = 0  # decided tokens that the verifier has, all but the last ones
        self._steps: list[float] = []  # seconds of the undecided drafts that were not proposed yet
        self._confidences: deque[float] = deque(maxlen=REMEMBERED)  # at the last decided tokens that were drafted
        self._shortest = 0  # tokens of a plan; 1: the verifier decides nothing by itself, whatever the policy believes
        self._plan: DraftPlan  # of what is drafted
        self._make_plan()

    @property
    def alone(self) -> bool:
        """Whether there is no verifier, so that this device decides."""
        return self.state in ("alone", "relieved")

    @property
    def position(self) -> int:
        """Tokens that are decided."""
        return self._prefix.length

    @property
    def decided(self) -> list[int]:
        """The tokens that are decided."""
        return self._prefix.committed()

    @property
    def provisional(self) -> tuple[int, ...]:
        """The drafts behind the decided tokens."""
        return tuple(self._prefix.path[self.position :])

    @property
    def waiting(self) -> bool:
        """Whether only the verifier can bring the answer forward."""
        asked = self.state == "resting" or (self.state == "drafting" and self._outstanding)
        return bool(asked) and self.finished is None and self.work() is None

    @property
    def outstanding(self) -> int:
        """Proposals without a verdict."""
        return len(self._outstanding)

    def work(self) -> Work | None:
        """The next draft to be made."""
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
        """Leave the first tokens to the verifier, where drafts are not worth it."""
        return self._defer()

    def drawn(self, work: Work, views: Sequence[Any], seconds: float, now: float) -> list[Action]:
        """Take the draft that `work` asked for, which took `seconds`."""
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
        """Take a verdict. One of a round that is not outstanding, or that came before another, is fenced off.

        Raises `ProtocolError` for one that no verifier can have sent; then nothing has changed.
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
            confidences = [view.confidence for view in self._views[:1]]  # at the token that it takes the place of
            self._roll_back()
            self._prefix.extend(token)
            self._confidences.extend(confidences)
            actions += self._commit({"device": False} if rejected else {})
        self._known = self.position - (rejected and not verdict.token)
        if not self._outstanding and not self._views:
            self._make_plan()
        return actions + self._defer()

    def decided_by_verifier(self, message: Decided) -> list[Action]:
        """Take tokens that were left to the verifier. Others than those behind this side's prefix are fenced off.

        Raises `ProtocolError` for what no verifier can have sent; then nothing has changed.
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
        # What is planned is paid for; so not where the verifier is left all that there can be.
        if (
            self._plan.length == 0
            and self._left <= DEFERRED_AGAIN
            and self.position + self._left < self.config.max_tokens
        ):
            self._make_plan()
        return actions + self._defer()

    def out_of_patience(self, relieved: bool = False) -> list[Action]:
        """Go on without the verifier, by the drafts or, where it is `relieved`, by the tokens that `decide` brings."""
        if self.alone:
            return []
        self._happened("replaced" if relieved else "lost")
        return [] if relieved else self._decide_alone()

    def decide(self, position: int, token: int) -> list[Action]:
        """Take a token of the model that decides in the verifier's place; none that comes too late."""
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
        """Tell a verifier that is there again what is decided, and propose again what it has not judged."""
        if self.finished is not None:
            return []
        self._happened("back")
        self._known = self.position
        again = [message for message, _ in self._outstanding]
        if again:  # the proposal that it follows may be forgotten
            again[0] = replace(again[0], digest=(self._prefix.digest(again[0].position),))
        left = [message for message, _ in self._deferred]
        if left:  # and what was deferred before may be decided
            start, end = self.position, self._deferred[0][1]
            left[0] = replace(left[0], position=start, digest=(self._prefix.digest(start),), tail=(), count=end - start)
        sent = [Send(message) for message in again] + [Send(message) for message in left]
        return [Send(self._sync(wants_reply=False)), *sent, *self._defer()]

    def reminded(self) -> list[Action]:
        """Tell a silent verifier again what is decided and proposed."""
        return self.rejoined()

    def asking(self) -> list[Action]:
        """Ask a verifier that was given up whether it is there again."""
        return [Send(self._sync(wants_reply=True))] if self.alone and self.finished is None else []

    def closing(self) -> list[Action]:
        """Tell the verifier of a last token that was drawn here: only its side knows its documents' shares in it."""
        untold = self._known < self.position and not self.alone
        return [Send(self._sync(wants_reply=False))] if untold else []

    # --- inside

    def _extended(self, confidence: float) -> bool:
        """Whether the position that was drafted is proposed with those before it; none beyond the plan's length is."""
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
        """Tokens that the verifier is left."""
        return self._deferred[-1][1] - self.position if self._deferred else 0

    def _defer(self) -> list[Action]:
        """Leave tokens to the verifier, where drafts are not worth it and it has few or none left."""
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
        """Draft or rest, by the plan and by the tokens that the verifier is left."""
        self._happened("rest" if self._plan.length == 0 or self._deferred else "draft")

    def _news(self, message: Decided) -> tuple[int, ...]:
        """The tokens of `message` behind this side's prefix; none where it does not follow that.

        Raises `ProtocolError` for tokens that can't be part of the answer.
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
            raise malformed("nothing may be decided behind the end of the sequence")
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
        """Whether nothing more has to be drafted for a proposal of what was not proposed yet."""
        path = self._prefix.path
        if self.config.ends(path[-1], len(path)):
            return True
        return len(path) - self._start >= self._plan.length and not self.config.lookahead

    @property
    def _start(self) -> int:
        """The position at which the next proposal begins."""
        return self._outstanding[-1][1] if self._outstanding else self.position

    def _propose(self, behind: Sequence[DraftView]) -> list[Action]:
        """Propose the drafts that were not proposed yet; `behind` are views of what is not."""
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
        """`Propose.digest` and `Propose.tail` of a proposal that begins at `start`."""
        if self._outstanding:
            return (), ()
        return (self._prefix.digest(start),), tuple(self._prefix.path[self._known : start])

    def _token(self, verdict: Verdict, end: int) -> int | None:
        """The token behind the accepted ones, if any. Raises `ProtocolError`."""
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
            raise malformed("a verdict must have a token behind a whole proposal just where a bonus is drawn")
        return verdict.token[0] if verdict.token else None

    def _commit(self, accepted: dict[Any, bool], degraded: bool = False) -> list[Action]:
        """Decide the next token of the path."""
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
        """Forget all drafts; what is under way behind them is outdated."""
        self._prefix.roll_back()
        self._views.clear()
        self._steps = []
        self._outstanding.clear()
        self._deferred.clear()
        self.epoch += 1

    def _decide_alone(self) -> list[Action]:
        actions: list[Action] = []
        self._outstanding.clear()
        if self._views:  # else a verifier that is there first decides what it was left, and nobody anything else
            self._deferred.clear()
        while self._views and self.finished is None:
            actions += self._commit({}, degraded=True)
        return actions
