"""Messages of draft-and-verify answers: the device proposes tokens, the cloud says how many of them hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from proto.bounds import Bytes, Count
from proto.fields import Digest, Position, SessionId, Token
from proto.limits import LARGEST_PROPOSAL, MOST_PROPOSED

Round = Annotated[int, Count(2**32)]


@dataclass(frozen=True, slots=True)
class Propose:
    """Drafted tokens from `position` on, behind the prefix with `digest`."""

    session: SessionId
    round: Round  # one more than that of the proposal before
    position: Position  # of the first proposed token
    digest: Annotated[tuple[Digest, ...], Count(2)]  # none: behind the proposal of the round before, as a whole
    tail: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1)]  # tokens before `position` that only the device knows
    tokens: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1)]  # empty where the payload names them
    payload: Annotated[bytes, Bytes(LARGEST_PROPOSAL)]  # of the method: the distributions that tokens were drawn from


@dataclass(frozen=True, slots=True)
class Defer:
    """Leaves `count` tokens from `position` on to the verifier, which decides them one by one, without drafts."""

    session: SessionId
    round: Round  # one more than that of the proposal, or of what was deferred, before
    position: Position
    digest: Annotated[tuple[Digest, ...], Count(2)]  # none: behind what the round before deferred, as a whole
    tail: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1)]  # tokens before `position` that only the device knows
    count: Annotated[int, Count(MOST_PROPOSED + 1, least=1)]


@dataclass(frozen=True, slots=True)
class Decided:
    """Tokens from `position` on, behind the prefix with `digest`, whether they were proposed or not."""

    session: SessionId
    round: Round  # the last proposal that they were compared with, or the one that deferred them; 0: none
    position: Position
    digest: Digest
    tokens: Annotated[tuple[Token, ...], Count(MOST_PROPOSED + 1, least=1)]
    verify_time: Annotated[int, Count(2**32)]  # microseconds from that proposal's arrival on, or of the pass; 0: again


@dataclass(frozen=True, slots=True)
class Verdict:
    """Number of proposed tokens from `position` on that are part of the answer, and the token behind them."""

    session: SessionId
    round: Round  # the last one that is judged; those before it that were not are judged with it
    position: Position
    accepted: Annotated[int, Count(2**16)]
    token: Annotated[tuple[Token, ...], Count(2)]  # the one behind the accepted ones; none where the device finds it
    verify_time: Annotated[int, Count(2**32)]  # from the last proposal's arrival on
    payload: Annotated[bytes, Bytes(2**21)]  # of the method: the distribution at the rejected token
