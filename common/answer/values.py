"""Values between the state machine of an answer, the engine that it asks, and the driver that acts for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from common.sampling.certificate import Logprobs
from proto.codes import EMPTY, extend
from proto.messages import Message, Side

FinishReason = Literal["stop", "length"]

ROOT: Final = -1  # the parent of a tree's tokens that follow the last one before the tree


class View(Protocol):
    """One side's distribution at one position, as far as it is known here. Opaque to state machines."""

    @property
    def token(self) -> int:
        """The token that this side drafted."""
        ...


class KeptMixture(Protocol):
    """A side's mixture over its documents at one position, as far as it is kept."""

    def contributions(self, token: int) -> Iterable[float]:
        """Share of each document in the probability of `token`, and last that of no document, [docs + 1]."""
        ...


class NothingKept:
    """Implements `KeptMixture` for drafts whose mixture is not known here."""

    def contributions(self, token: int) -> Iterable[float]:
        return ()


NOTHING_KEPT: Final = NothingKept()


@dataclass(slots=True)
class SideDraft:
    """One side's draft of a token. The engine draws this side's; a session notes where a draft stands in the answer."""

    view: View  # as it travels
    evidence: float  # log h
    mixing: KeptMixture = NOTHING_KEPT  # tells the documents' shares
    position: int = 0
    digest: int = EMPTY  # of the prefix before it
    decode_time: int = 0  # microseconds
    footprint: int = 0  # bytes that it takes, about, where it was received, or will be
    completed: View | None = None  # `view` with the values that came to be known since

    @property
    def known(self) -> View:
        """The view with all values that this side knows."""
        return self.completed or self.view


@dataclass(frozen=True, slots=True)
class TreeWork:
    """The wanted content of a model's rows: a path and, behind it, a tree in the order of its reading.

    Wanted are the distributions behind the last `count` tokens of all. Valid while `epoch` lasts.
    """

    epoch: int
    path: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()  # places in `tokens`, or ROOT
    count: int = 1

    @property
    def position(self) -> int:
        """The position that follows the path."""
        return len(self.path)

    @property
    def made(self) -> str:
        """The name of a step that comes in time, in traces."""
        return "drafted"

    @property
    def positions(self) -> int:
        """Positions that a step is for, from `position` on."""
        return self.count

    @property
    def paths(self) -> list[list[int]]:
        """The answer's tokens before each of the wanted distributions."""
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
        """Of the first of them."""
        return len(self.path) + 1 - self.count


@dataclass(frozen=True, slots=True)
class Send:
    """Hand a message to the link."""

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
    logprobs: Logprobs | None = None  # where they were asked for
    mixing: KeptMixture = field(default=NOTHING_KEPT, compare=False)  # of this side's draft


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Tokens from `position` on are no longer part of the prefix (the cloud followed the device's take-over)."""

    position: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The answer is complete."""

    reason: FinishReason


Action = Send | Commit | Withdraw | Finish


# --- prefix
# The tokens of one answer with the digests of their prefixes.


class Prefix:
    """Committed tokens followed by drafted ones, and the digest of every prefix of this path.

    A change takes O(1) time, or O(n) when it removes n tokens.
    """

    def __init__(self) -> None:
        self.path: list[int] = []  # committed tokens, then this side's drafts
        self.length = 0  # how many of them are committed
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
        """Turn the first drafted token into a committed one."""
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
# The cloud's part in an answer: none, asked for, or begun.

State = Literal["alone", "asked", "joined"]


class Phase:
    """`alone`: the cloud takes no part; `asked`: the answer is, or shall be, open there; `joined`: it has begun.

    A single value, so that any thread may ask and tell.
    """

    def __init__(self, state: State) -> None:
        self._state: State = state

    @property
    def open(self) -> bool:
        """Whether the answer is, or shall be, open on the cloud."""
        return self._state != "alone"

    @property
    def joined(self) -> bool:
        """Whether the cloud has begun its part."""
        return self._state == "joined"

    def ask(self) -> None:
        """Note that the cloud shall take part, and has yet to begin."""
        self._state = "asked"

    def restart(self) -> None:
        """Note that the cloud, if it takes part, has yet to begin: the answer is opened on it again."""
        if self.open:
            self._state = "asked"

    def join(self) -> None:
        """Note that the cloud has begun, if it was asked."""
        if self.open:
            self._state = "joined"

    def leave(self) -> None:
        """Note that the cloud takes no part any more."""
        self._state = "alone"
