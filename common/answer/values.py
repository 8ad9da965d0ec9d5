"""Values between an answer's state machine, the engine, and the driver."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

from common.sampling.certificate import Logprobs
from proto.codes import EMPTY, extend
from proto.messages import Message, Side

FinishReason = Literal["stop", "length"]

ROOT: Final = -1  # parent of a tree's first tokens


class View(Protocol):
    """The known part of a distribution, opaque to state machines."""

    @property
    def token(self) -> int:
        """This side's drafted token."""
        ...


class KeptMixture(Protocol):
    """The kept part of a side's mixture."""

    def contributions(self, token: int) -> Iterable[float]:
        """Shares in the token's probability, [docs + 1], the last of no document."""
        ...


class NothingKept:
    """Implements `KeptMixture` for unknown mixtures."""

    def contributions(self, token: int) -> Iterable[float]:
        return ()


NOTHING_KEPT: Final = NothingKept()


@dataclass(slots=True)
class SideDraft:
    """One side's draft, to which a session adds the position."""

    view: View  # transmitted form
    evidence: float  # log h
    mixing: KeptMixture = NOTHING_KEPT  # for the documents' shares
    position: int = 0
    digest: int = EMPTY  # of the previous prefix
    decode_time: int = 0  # microseconds
    footprint: int = 0  # bytes at the receiver, about
    completed: View | None = None  # with values learned since

    @property
    def known(self) -> View:
        return self.completed or self.view


def tell_nobody(*told: object) -> None:
    """Ignores its arguments."""


@dataclass(frozen=True, slots=True)
class Asker:
    """The owner of a prompt's conversation, who hears how its reading goes on."""

    keeper: Hashable = None  # alone finds the conversation's states again; None: the answer's tenant
    waited: Callable[[float], object] = tell_nobody  # called with the seconds waited for memory
    read: Callable[[int, int], object] = tell_nobody  # called with tokens read so far, and in all


NOBODY: Final = Asker()


@dataclass(frozen=True, slots=True)
class TreeWork:
    """Wanted content of a model's rows: a path, then a tree in reading order.

    The distributions after the last `count` tokens are wanted. Valid during `epoch`.
    """

    epoch: int
    path: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()  # indices in `tokens`, or ROOT
    count: int = 1

    @property
    def position(self) -> int:
        return len(self.path)

    @property
    def made(self) -> str:
        """A punctual step's name in traces."""
        return "drafted"

    @property
    def positions(self) -> int:
        """Positions of a step, from `position` on."""
        return self.count

    @property
    def paths(self) -> list[list[int]]:
        """The tokens before each wanted distribution."""
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
    """One distribution for a draft, or several to verify a proposal."""

    @property
    def position(self) -> int:
        """The first wanted one."""
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
    """Tokens from `position` on were replaced by the device's take-over."""

    position: int


@dataclass(frozen=True, slots=True)
class Finish:
    """The answer is complete."""

    reason: FinishReason


Action = Send | Commit | Withdraw | Finish


# --- prefix


class Prefix:
    """Committed tokens, then drafts, with all prefixes' digests.

    A change takes O(1), or O(n) for n removed tokens.
    """

    def __init__(self) -> None:
        self.path: list[int] = []  # committed, then drafted
        self.length = 0  # committed tokens
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
        return self._digests[length]

    def extend(self, token: int) -> None:
        """Append a draft."""
        self.path.append(token)
        self._digests.append(extend(self._digests[-1], token))

    def commit(self) -> None:
        """Commit the first draft."""
        self.length += 1

    def roll_back(self) -> None:
        """Forget the drafts."""
        self._trim(self.length)

    def cut(self, length: int) -> None:
        """Cut to `length` tokens, committed ones included."""
        self.length = min(self.length, length)
        self._trim(self.length)

    def _trim(self, length: int) -> None:
        del self.path[length:]
        del self._digests[length + 1 :]


# --- phase

State = Literal["alone", "asked", "joined"]


class Phase:
    """The cloud's part: `alone` (none), `asked` (open or to be opened), `joined` (begun).

    A single value needs no lock.
    """

    def __init__(self, state: State) -> None:
        self._state: State = state

    @property
    def open(self) -> bool:
        return self._state != "alone"

    @property
    def joined(self) -> bool:
        return self._state == "joined"

    def ask(self) -> None:
        self._state = "asked"

    def restart(self) -> None:
        """Note that a participating cloud begins again."""
        if self.open:
            self._state = "asked"

    def join(self) -> None:
        """Note that an asked cloud has begun."""
        if self.open:
            self._state = "joined"

    def leave(self) -> None:
        self._state = "alone"
