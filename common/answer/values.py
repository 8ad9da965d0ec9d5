"""Values between an answer's state machine, the engine, and the driver."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from common.sampling.certificate import Logprobs
from proto.codes import EMPTY, extend
from proto.messages import Message, Side

FinishReason = Literal["stop", "length"]

ROOT: Final = -1  # parent of the tree's first tokens


class View(Protocol):
    """The known part of a side's distribution at a position. Opaque to state machines."""

    @property
    def token(self) -> int:
        """This side's drafted token."""
        ...


class KeptMixture(Protocol):
    """The kept part of a side's mixture at a position."""

    def contributions(self, token: int) -> Iterable[float]:
        """Shares in the probability of `token`, [docs + 1], the last of no document."""
        ...


class NothingKept:
    """Implements `KeptMixture` for unknown mixtures."""

    def contributions(self, token: int) -> Iterable[float]:
        return ()


NOTHING_KEPT: Final = NothingKept()


@dataclass(slots=True)
class SideDraft:
    """One side's draft. The engine draws this side's; a session adds its position."""

    view: View  # in transmitted form
    evidence: float  # log h
    mixing: KeptMixture = NOTHING_KEPT  # for the documents' shares
    position: int = 0
    digest: int = EMPTY  # of the previous prefix
    decode_time: int = 0  # microseconds
    footprint: int = 0  # approximate bytes at the receiver
    completed: View | None = None  # `view` with values learned since

    @property
    def known(self) -> View:
        """The view with all known values."""
        return self.completed or self.view


@dataclass(frozen=True, slots=True)
class TreeWork:
    """The wanted content of a model's rows: a path, then a tree in reading order.

    The distributions after the last `count` tokens are wanted. Valid while `epoch` lasts.
    """

    epoch: int
    path: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()  # indices in `tokens`, or ROOT
    count: int = 1

    @property
    def position(self) -> int:
        """The position after the path."""
        return len(self.path)

    @property
    def made(self) -> str:
        """The name of a punctual step in traces."""
        return "drafted"

    @property
    def positions(self) -> int:
        """Number of positions of a step, from `position` on."""
        return self.count

    @property
    def paths(self) -> list[list[int]]:
        """The answer's tokens before each wanted distribution."""
        ends = range(len(self.tokens) - self.count, len(self.tokens))
        return [list(self.path[: len(self.path) + end + 1]) if end <= ROOT else self._path(end) for end in ends]

    def _path(self, place: int) -> list[int]:
        behind: list[int] = []
        while place != ROOT:
            behind.append(self.tokens[place])
            place = self.parents[place]
        return [*self.path, *behind[::-1]]


@dataclass(frozen=True, slots=True)
class Work(TreeWork):
    """Distributions along a path: one for a draft, several to verify a proposal."""

    @property
    def position(self) -> int:
        """The first wanted position."""
        return len(self.path) + 1 - self.count


@dataclass(frozen=True, slots=True)
class Send:
    """Give a message to the link."""

    message: Message


@dataclass(frozen=True, slots=True)
class Commit:
    """A token became part of the answer."""

    position: int
    token: int
    degraded: bool
    cloud_share: float | None
    expected: tuple[float, float] | None
    accepted: dict[Side, bool]  # of the drafts known here
    logprobs: Logprobs | None = None  # if requested
    mixing: KeptMixture = field(default=NOTHING_KEPT, compare=False)  # of this side's draft


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Tokens from `position` on left the prefix (the cloud followed the device's take-over)."""

    position: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The answer is complete."""

    reason: FinishReason


Action = Send | Commit | Withdraw | Finish


# --- prefix
# The tokens of one answer with the digests of their prefixes.


class Prefix:
    """Committed tokens, then drafted ones, with the digest of every prefix.

    A change takes O(1) time, or O(n) for n removed tokens.
    """

    def __init__(self) -> None:
        self.path: list[int] = []  # committed tokens, then this side's drafts
        self.length = 0  # number of committed tokens
        self._digests: list[int] = [EMPTY]

    @property
    def path_length(self) -> int:
        return len(self.path)

    @property
    def path_digest(self) -> int:
        return self._digests[-1]

    def committed(self) -> list[int]:
        return self.path[: self.length]

    def digest(self, length: int) -> int:
        """Digest of the first `length` tokens of the path."""
        return self._digests[length]

    def extend(self, token: int) -> None:
        """Append a drafted token."""
        self.path.append(token)
        self._digests.append(extend(self._digests[-1], token))

    def commit(self) -> None:
        """Commit the first drafted token."""
        self.length += 1

    def roll_back(self) -> None:
        """Forget the drafted part."""
        self._trim(self.length)

    def cut(self, length: int) -> None:
        """Forget everything after the first `length` tokens, committed ones included."""
        self.length = min(self.length, length)
        self._trim(self.length)

    def _trim(self, length: int) -> None:
        del self.path[length:]
        del self._digests[length + 1 :]


# --- phase
# The cloud's part in an answer.

State = Literal["alone", "asked", "joined"]


class Phase:
    """`alone`: no cloud; `asked`: open or to be opened there; `joined`: begun.

    A single value, for any thread without a lock.
    """

    def __init__(self, state: State) -> None:
        self._state: State = state

    @property
    def open(self) -> bool:
        """Whether the answer is or will be open on the cloud."""
        return self._state != "alone"

    @property
    def joined(self) -> bool:
        """Whether the cloud has begun its part."""
        return self._state == "joined"

    def ask(self) -> None:
        """Note that the cloud shall take part, and has not begun."""
        self._state = "asked"

    def restart(self) -> None:
        """Note that the answer is reopened on a participating cloud, which has not begun."""
        if self.open:
            self._state = "asked"

    def join(self) -> None:
        """Note that a requested cloud has begun."""
        if self.open:
            self._state = "joined"

    def leave(self) -> None:
        """Note that the cloud takes no further part."""
        self._state = "alone"
