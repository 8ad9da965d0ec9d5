"""Drafted distributions in transmitted form, sparse or on a lattice.

A mixture's owner warps and rounds it once, before any use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.request import RequestError
from common.draft_policy.times import RESOLUTIONS, DraftPlan, fixed_index_bits, short_index_bits
from common.methods.drafted.method import (
    DEFAULT_RESOLUTION,
    MOST_FIXED,
    LatticeRequest,
    RejectionRequest,
    check_lattice,
)
from common.methods.drafted.payloads import (
    HEAD,
    IndexCode,
    LatticeEntries,
    SparseEntries,
    encode_lattice,
    encode_sparse,
    largest_sparse,
    lattice_claims,
)
from common.sampling.compiled import DrawPoint, Draws, DrawsAt
from common.sampling.race import Found, Race
from common.sampling.rejection import Warp, propose, quantise, rounded
from common.sampling.truncation import Distribution, renormalised
from proto.errors import malformed
from proto.messages import MOST_PROPOSED, MOST_UNITS

_ATTRIBUTED: Final = 1e-3  # least probability with stored document shares

Entries = TypeVar("Entries", SparseEntries, LatticeEntries)


@dataclass(frozen=True, slots=True, eq=False)
class DrawnToken(Generic[Entries]):
    """A drafted token with its distribution in transmitted form."""

    token: int
    distribution: Distribution
    entries: Entries

    @property
    def confidence(self) -> float:
        return float(self.distribution.probabilities.max())


@dataclass(frozen=True, slots=True, eq=False)
class DrafterView(Generic[Entries]):
    """The drafter's distribution; the place determines the draw."""

    distribution: Distribution
    entries: Entries
    source: Distribution  # to draw from: differs for a greedy or late-rounding drafter

    @property
    def token(self) -> int:
        """The most probable token."""
        return int(self.source.ids[self.source.probabilities.argmax()])

    @property
    def listed(self) -> NDArray[np.integer]:
        return np.empty(0, np.int64)  # a drafter's documents are not attributed

    def drawn(self, draws: Draws) -> DrawnToken[Entries]:
        return DrawnToken(propose(self.source, draws), self.distribution, self.entries)


@dataclass(frozen=True, slots=True, eq=False)
class TargetView:
    """The verifier's distribution; `entries` is its transmitted form, or None."""

    distribution: Distribution
    entries: SparseEntries | None
    token: int  # most probable
    listed: NDArray[np.integer]

    @classmethod
    def of(cls, distribution: Distribution, entries: SparseEntries | None) -> TargetView:
        probabilities = distribution.probabilities
        most = int(distribution.ids[probabilities.argmax()])
        return cls(distribution, entries, most, distribution.ids[probabilities >= _ATTRIBUTED])


@dataclass(frozen=True, slots=True)
class SparseDrawing:
    """Implements `Drafter` with 16-bit codes."""

    warp: Warp

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> DrafterView[SparseEntries]:
        ids, codes, distribution = rounded(self.warp(probabilities))
        return DrafterView(distribution, SparseEntries(ids, codes), distribution)


@dataclass(slots=True)
class LatticeDrawing:
    """Implements `Drafter` with lattice distributions."""

    warp: Warp
    resolution: int  # of the current proposal
    quantised_first: bool = True  # False: draw before rounding, which is not exact

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> DrafterView[LatticeEntries]:
        exact = self.warp(probabilities)
        counts = quantise(exact.probabilities, self.resolution)
        kept = counts > 0
        distribution = renormalised(exact.ids[kept], counts[kept].astype(np.float64))
        entries = LatticeEntries(distribution.ids.astype(np.uint32), counts[kept].astype(np.uint32))
        return DrafterView(distribution, entries, distribution if self.quantised_first else exact)


@dataclass(frozen=True, slots=True)
class VerifierDrawing:
    """Implements `Drafter` for the verifier, without draws; `travels`: may be sent."""

    warp: Warp
    travels: bool

    @property
    def cut(self) -> Warp | None:
        """The warp if it drops tokens, else None."""
        return self.warp if self.warp.top_k or self.warp.top_p < 1 else None

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> TargetView:
        exact = self.warp(probabilities)
        if not self.travels:
            return TargetView.of(exact, None)
        ids, codes, distribution = rounded(exact)
        return TargetView.of(distribution, SparseEntries(ids, codes))


# --- proposals


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A proposed token, its q, and the distribution q as far as known."""

    token: int
    probability: float
    distribution: Distribution | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """A part of `Drafts`: draws from the drafter's distribution."""

    draws: DrawsAt

    def planned(self, plan: DraftPlan) -> None:
        """Ignore the plan."""

    def drawn(self, place: DrawPoint, view: DrafterView[Entries]) -> DrawnToken[Entries]:
        return view.drawn(self.draws(place))


class Named(Drawing):
    """A part of `Drafts` for verdicts that always name a token."""

    __slots__ = ()

    def settle(self, place: DrawPoint, view: object, payload: bytes) -> int:
        raise malformed("a verdict must name the token that replaces a rejected one")


class SparseDrafts(Named):
    """Implements `Drafts`: tokens with distributions."""

    __slots__ = ()

    def pack(self, views: Sequence[DrawnToken[SparseEntries]], length: int) -> tuple[tuple[int, ...], bytes]:
        return tuple(view.token for view in views[:length]), encode_sparse([view.entries for view in views])


@dataclass(frozen=True, slots=True)
class LatticeDrafts(Named):
    """Implements `Drafts`: tokens within lattice distributions."""

    drawing: LatticeDrawing
    vocabulary: int
    code: IndexCode
    named: bool = True  # the token has a unit, so its index identifies it

    def planned(self, plan: DraftPlan) -> None:
        if plan.resolution is not None:
            self.drawing.resolution = plan.resolution

    def pack(self, views: Sequence[DrawnToken[LatticeEntries]], length: int) -> tuple[tuple[int, ...], bytes]:
        tokens = tuple(view.token for view in views[:length])
        listed = [(view.entries, view.token if self.named else None) for view in views]
        payload = encode_lattice(listed, self.code, self.vocabulary)
        return (() if self.named else tokens), payload


def check_proposed(payload: bytes, code: IndexCode, vocabulary: int, most: int, resolutions: Collection[int]) -> None:
    """Refuse a lattice payload by its header. Raises `ProtocolError`."""
    resolution, _, _ = lattice_claims(payload, code, vocabulary, most)
    if resolution not in resolutions:
        raise malformed("the lattice of a proposal must be one of those that its answer was opened with")


def from_support(token: int, distribution: Distribution) -> Proposal:
    """A proposal from `distribution`. Raises `ProtocolError` for an impossible token."""
    probability = distribution.of(token)
    if not probability:
        raise malformed("a proposed token must be one of its distribution")
    return Proposal(token, probability, distribution)


# --- room
# The most tokens that always fit into a message.


def most_sparse(request: RejectionRequest, vocabulary: int, payload: int, behind: int = 0) -> int:
    """Most tokens with whole distributions, and `behind` more distributions, in `payload` bytes.

    Raises `RequestError` if the request wants more, or none fits.
    """
    kept = min(request.top_k or vocabulary, vocabulary)
    most = (payload - HEAD) // largest_sparse(kept, vocabulary) - behind
    reason = f"a message of {payload} bytes with top_k = {request.top_k} and a vocabulary of {vocabulary} tokens"
    return _checked(request, most, reason, "a smaller top_k")


def most_units(request: RejectionRequest, finest: int, behind: int = 0) -> int:
    """The same for lattices of resolution `finest` at most."""
    most = MOST_UNITS // finest - behind
    reason = f"a message, whose {MOST_UNITS} units are shared among distributions of {finest} each"
    return _checked(request, most, reason, "a smaller resolution")


def _checked(request: RejectionRequest, most: int, reason: str, instead: str) -> int:
    if most < 1:
        raise RequestError(f"Not one token with its distribution fits {reason}: set {instead}.", "draft_length")
    if request.draft_policy == "fixed" and request.draft_length > most:
        raise RequestError(
            f"A proposal of {request.draft_length} tokens does not fit {reason}: draft_length may be {most} at "
            f"most; or set {instead}.",
            "draft_length",
        )
    return min(most, MOST_PROPOSED)


# --- sizes

TOKEN_BYTES = 3.0  # of a token id in a message
TYPICAL_SUPPORT = 8  # tokens of a lattice distribution


def sparse_bytes(top_k: int, vocabulary: int) -> float:
    """Bytes of a token with 16-bit codes."""
    entry = 4.0 if top_k else 2.125  # bytes; without top_k ids are a bitmap
    return TOKEN_BYTES + entry * (top_k or vocabulary)


def lattice_bytes(request: LatticeRequest, vocabulary: int) -> dict[int | None, float]:
    """Bytes of a drafted distribution by resolution, the default first.

    Raises `RequestError` for a lattice too fine for its index.
    """
    check_lattice(request)
    chosen = RESOLUTIONS if request.resolution is None else (request.resolution,)
    if request.index_code == "fixed":
        listed = [each for each in chosen if each <= MOST_FIXED]
        bits = {each: fixed_index_bits(each, vocabulary) for each in listed}
    else:
        support = min(TYPICAL_SUPPORT, vocabulary)
        bits = {each: short_index_bits(each, vocabulary, min(support, each)) for each in chosen}
    first = DEFAULT_RESOLUTION if DEFAULT_RESOLUTION in bits else next(iter(bits))
    if request.draft_policy in ("fixed", "heuristic"):
        return {first: bits[first] / 8 + 1}  # these policies choose none
    ordered = [first, *(each for each in bits if each != first)]
    return {each: bits[each] / 8 + 1 for each in ordered}


def first_resolution(sizes: Mapping[int | None, float]) -> int:
    return next(resolutions(sizes))


def finest(sizes: Mapping[int | None, float]) -> int:
    return max(resolutions(sizes))


def resolutions(sizes: Mapping[int | None, float]) -> Iterator[int]:
    return (resolution for resolution in sizes if resolution is not None)
