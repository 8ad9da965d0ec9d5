"""Inputs and outputs of a `Session`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from common.answer.values import Commit, Finish, Send, TreeWork, View, Withdraw
from common.sampling.logprobs import Logprobs
from proto.fields import Placement, Side


@dataclass(frozen=True, slots=True)
class Decided:
    """The target token of a position."""

    token: int
    cloud_share: float | None = None  # the cloud's share in the token's probability
    expected: tuple[float, float] | None = None  # Eq. 5: alpha of (device, cloud), where the sampler has them
    logprobs: Logprobs | None = None  # where they were asked for


@dataclass(frozen=True, slots=True)
class LackingRemote:
    """A failed certificate, with the values that the remote view lacks."""

    ids: tuple[int, ...]
    depth: int  # wanted length of the remote list, 0 when naming `ids` is enough


@dataclass(frozen=True, slots=True)
class LackingLocal:
    """A failed certificate, with the values that the local view lacks and this side can look up."""

    ids: tuple[int, ...]
    depth: int  # wanted length of the local list, 0 for the values of `ids`


Verdict = Decided | LackingRemote | LackingLocal


class SessionSampler(Protocol):
    """A sampler as the session uses it: aggregates two views and speaks their payloads."""

    def pack(self, view: Any) -> bytes:
        """The payload that makes a local view known to the other side, or has made a remote one known to this side."""
        ...

    def read(self, side: Side, position: int, payload: bytes) -> View:
        """The remote view in a draft's payload. Raises `ProtocolError` when it is malformed."""
        ...

    def footprint(self, view: Any) -> int:
        """Bytes that a remote view takes, about, or a local one on the other side."""
        ...

    def aggregate(self, role: Side, position: int, device: Any, cloud: Any, evidence: tuple[float, float]) -> Verdict:
        """Decide from both views; `evidence` is log h of (device, cloud). `role` says which view is local."""
        ...

    def alone(self, view: Any) -> Logprobs | None:
        """Log-probabilities for a view's own token, where that is decided by it alone; None unless asked for."""
        ...

    def rivals(self, view: Any) -> Sequence[tuple[int, float]]:
        """The fastest tokens of a local view's race with the logarithms of their speeds, the draft first; few are
        enough. None where the sampler can't tell which tokens may be the target.
        """
        ...

    def check_resolve(self, ids: Sequence[int], depth: int) -> None:
        """Raise `ProtocolError` for a `Resolve` that can't be asked of this side's views."""
        ...

    def supply(self, view: Any, ids: Sequence[int], depth: int) -> bytes:
        """The payload that answers a `Resolve` from a local view; computed over the whole vocabulary."""
        ...

    def complete(self, view: Any, position: int, ids: Sequence[int], depth: int, payload: bytes) -> View:
        """The view with the values added that a payload of `supply` carries. Raises `ProtocolError` where it carries
        others than those of `ids` and `depth`.
        """
        ...


class PlacementPolicy(Protocol):
    """Names the next aggregator (§5.1)."""

    def next_aggregator(self, position: int, accepted: Mapping[Side, bool]) -> Side:
        """The side that decides `position`; `accepted` are the outcomes of the known drafts of the position before."""
        ...


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """Parameters of one answer."""

    session: int
    placement: Placement
    eos: frozenset[int]
    max_tokens: int
    vocabulary: int  # all token ids are below it
    participants: frozenset[Side] = frozenset({"device", "cloud"})  # the sides whose documents count
    window: int = 256  # drafts further than this beyond the committed prefix are refused

    def shares(self, side: Side) -> bool:
        """Whether `side` sends its distributions to the other one."""
        if len(self.participants) < 2:
            return False
        return self.placement in ("greedy", "random", "mirrored") or self.placement != side


@dataclass(frozen=True, slots=True)
class Stage:
    """Progress of an answer as far as a waiting side sees it: its patience restarts at each of finitely many stages."""

    position: int
    heard: bool  # the cloud has drafted or decided since the session was opened on it
    questions: int  # different questions that were asked


@dataclass(frozen=True, slots=True)
class LocalDraft:
    """A token this side drafted at `position` after the prefix with `digest`."""

    position: int
    digest: int
    view: View
    evidence: float
    decode_time: int  # microseconds
    looked_up: View | None = None  # `view` with values that were looked up since; `view` is what is sent
    footprint: int = 0  # bytes that it takes on the other side, if it is sent

    @property
    def known(self) -> View:
        """The view with all values that this side has looked up."""
        return self.looked_up or self.view


@dataclass(frozen=True, slots=True)
class DraftWork(TreeWork):
    """A decode step: the wanted distributions are those behind `prefixes`, the chain's first."""

    prefixes: tuple[tuple[int, int], ...] = ()  # position and digest of each
    chained: bool = True  # the first of them is the chain's; the others are branches

    @property
    def position(self) -> int:
        return self.prefixes[0][0]

    @property
    def digest(self) -> int:
        return self.prefixes[0][1]

    @property
    def made(self) -> str:
        return "drafted" if self.chained else "branched"

    @property
    def positions(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class RemoteDraft:
    """The other side's draft. Its prefix is the key it is stored under."""

    view: View
    evidence: float
    footprint: int  # bytes that it takes, about
    resolved: View | None = None  # `view` with values that were asked for since

    @property
    def known(self) -> View:
        """The view with all values that this side has been told."""
        return self.resolved or self.view


@dataclass(frozen=True, slots=True)
class LookUp:
    """Compute values that a local draft's list lacks (`SessionSampler.supply`), on the engine's thread, and hand the
    result in (`Session.looked_up`).
    """

    position: int
    digest: int
    view: View
    ids: tuple[int, ...]
    depth: int
    asked: bool  # by the other side; otherwise this side's certificate lacks the values


Action = Send | LookUp | Commit | Withdraw | Finish


@dataclass(slots=True)
class SessionCounters:
    """Counts of events so far in one session, on this side."""

    drafted: int = 0
    late: int = 0  # own drafts that came after their position was decided or rolled back
    stale: int = 0  # messages fenced off
    switches: int = 0
    certificate_failures: int = 0
    disagreements: int = 0
    branches: int = 0  # of `drafted`, those beside the chain
    used: int = 0  # rejections behind which a branch went on
    rollbacks: dict[Side, int] = field(default_factory=lambda: {"device": 0, "cloud": 0})
    accepted: dict[Side, int] = field(default_factory=lambda: {"device": 0, "cloud": 0})
    degraded: list[int] = field(default_factory=list)
