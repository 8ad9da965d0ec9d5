"""What a draft-and-verify method plugs into the two state machines, and what all of them have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from common.session.values import View
from proto.rounds import Propose


@dataclass(frozen=True, slots=True)
class RoundsConfig:
    """Parameters of one answer, alike on both sides."""

    session: int
    eos: frozenset[int]
    max_tokens: int
    vocabulary: int  # all token ids are below it
    bonus: bool = True  # the verifier adds a token behind a proposal of which all holds
    ahead: int = 0  # tokens that are drafted behind those that were proposed, before their verdict; 0: none

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


class Drafts(Protocol):
    """A method on the drafter's side."""

    def pack(self, views: Sequence[Any]) -> tuple[tuple[int, ...], bytes]:
        """`Propose.tokens` and `Propose.payload` of drafts, position by position."""
        ...

    def settle(self, position: int, view: Any, payload: bytes) -> int:
        """The token in place of the rejected draft `view`, where the verdict names none.

        Raises `ProtocolError` for a payload that no verifier can have sent.
        """
        ...


class Judge(Protocol):
    """A method on the verifier's side."""

    def read(self, message: Propose) -> Sequence[Proposed]:
        """What was proposed, position by position. Raises `ProtocolError` for what no drafter can have sent."""
        ...

    def judge(self, position: int, proposed: Sequence[Any], targets: Sequence[Any]) -> Judgement:
        """Compare what was proposed from `position` on with the verifier's own views at these positions.

        `targets` has one view more where a bonus is wanted.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How the next proposal is to be drafted."""

    length: int  # tokens, at least 1
    resolution: int | None = None  # l of a lattice, for methods that have one


class Lengths(Protocol):
    """Decides how long proposals are.

    What it decides may depend on the prefix, never on the tokens that were drawn behind it: else the answer's law
    would change.
    """

    def plan(self) -> Plan:
        """The plan of the next proposal."""
        ...

    def goes_on(self, views: Sequence[View]) -> bool:
        """Whether a draft follows `views`, the drafts of this proposal so far, of which there are less than planned."""
        ...


@dataclass(slots=True)
class RoundsCounters:
    """Counts of events so far, on the drafter's side."""

    rounds: int = 0  # that were judged
    drafted: int = 0
    late: int = 0  # drafts that were rolled back before they were made
    proposed: int = 0  # tokens that were judged
    accepted: int = 0
    bonus: int = 0
    stale: int = 0  # verdicts fenced off
    repeated: int = 0  # proposals that were sent again
