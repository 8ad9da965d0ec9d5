"""Parts that a draft-and-verify method plugs into the two state machines, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

from common.answer.values import View
from common.draft_policy.values import Extension, Plan
from common.sampling.draws import Place
from proto.limits import MOST_PROPOSED
from proto.messages import Open
from proto.rounds import Decided, Propose, Verdict

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


class Proposed(Protocol):
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

    def planned(self, plan: Plan) -> None:
        """Note how the next proposal is to be drafted, if there is one."""
        ...

    def drawn(self, place: Place, view: Any) -> DraftView:
        """The draft at `place`, of the view that the draft model gave there."""
        ...

    def pack(self, views: Sequence[Any], length: int) -> tuple[tuple[int, ...], bytes]:
        """`Propose.tokens` and `Propose.payload` of drafts, position by position, of which `length` are proposed.

        With `lookahead` there is one view more where a bonus will be drawn, whose token nobody proposes.
        """
        ...

    def settle(self, place: Place, view: Any, payload: bytes) -> int:
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

    def read(self, message: Propose) -> Sequence[Proposed]:
        """The proposal's content, position by position. Raises `ProtocolError` for what no drafter can have sent."""
        ...

    def judge(self, place: Place, proposed: Sequence[Any], targets: Sequence[Any]) -> Judgement:
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

    def plan(self, confidences: Sequence[float]) -> Plan:
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
