"""The mathematics of dsd, dssd and qsv, put together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from common.draft_policy.lattice_bits import fixed_index_bits, short_index_bits
from common.draft_policy.values import RESOLUTIONS
from common.methods.drafted.machine.values import RoundsConfig
from common.methods.drafted.rejection.drawing import Judging, LatticeDrawing, SparseDrawing
from common.methods.drafted.rejection.judges import (
    LatticeDrafts,
    LatticeJudge,
    ScalarDrafts,
    ScalarJudge,
    SparseDrafts,
    SparseJudge,
)
from common.methods.drafted.rejection.request import (
    DEFAULT_RESOLUTION,
    MOST_FIXED,
    LatticeRequest,
    QsvRequest,
    SplitRequest,
    check_lattice,
)
from common.methods.drafted.rejection.room import most_sparse, most_units
from common.methods.drafted.request import draft_temperature
from common.sampling.draws import seeded
from common.sampling.warping import Warp
from common.transport.limits import largest_payload
from proto.messages import Open

TOKEN_BYTES = 3.0  # of a token id in a message
TYPICAL_SUPPORT = 8  # tokens of a drafted distribution that is rounded to a lattice


@dataclass(frozen=True, slots=True)
class RejectionScheme:
    """Implements `Scheme`."""

    config: RoundsConfig
    token_bytes: Mapping[int | None, float]
    drafter: SparseDrawing | LatticeDrawing
    drafts: SparseDrafts | ScalarDrafts | LatticeDrafts
    verifier: Judging
    judge: SparseJudge | ScalarJudge | LatticeJudge

    @property
    def cut(self) -> Warp | None:
        return self.verifier.cut


def rejection_scheme(opening: Open, request: SplitRequest | QsvRequest, vocabulary: int) -> RejectionScheme:
    """The scheme of one answer of method `opening.method`.

    Raises `RequestError` for proposals that no message holds.
    """
    config = RoundsConfig.of(opening, vocabulary, request.ahead)
    draws = seeded(opening.seed)
    verifying = Warp(opening.temperature, request.top_k, opening.top_p)
    drafting = Warp(draft_temperature(opening, request), request.top_k, opening.top_p)
    if isinstance(request, QsvRequest):
        sizes, exact = lattice_bytes(request, vocabulary), request.order == "quantise-sample"
        if request.ahead:  # drafts of several proposals are made at once, with one resolution
            first = first_resolution(sizes)
            sizes = {first: sizes[first]}
        config = replace(config, most=most_units(request, finest(sizes)))
        drawing = LatticeDrawing(drafting, first_resolution(sizes), exact)
        drafts = LatticeDrafts(draws, drawing, vocabulary, request.index_code, exact)
        judge = LatticeJudge(draws, vocabulary, request.index_code, frozenset(resolutions(sizes)), exact)
        return RejectionScheme(config, sizes, drawing, drafts, Judging(verifying, travels=False), judge)
    judging, sparse = Judging(verifying, travels=True), SparseDrawing(drafting)
    if opening.method == "dssd":
        scalar: dict[int | None, float] = {None: TOKEN_BYTES + 8.0}
        return RejectionScheme(config, scalar, sparse, ScalarDrafts(draws, vocabulary), judging, ScalarJudge(draws))
    config = replace(config, most=most_sparse(request, vocabulary, largest_payload(vocabulary)))
    whole: dict[int | None, float] = {None: sparse_bytes(request.top_k, vocabulary)}
    return RejectionScheme(config, whole, sparse, SparseDrafts(draws), judging, SparseJudge(draws, vocabulary))


def sparse_bytes(top_k: int, vocabulary: int) -> float:
    """Bytes of a token with its distribution in 16-bit codes."""
    entry = 4.0 if top_k else 2.125  # bytes; of all tokens, the ids are a bitmap
    return TOKEN_BYTES + entry * (top_k or vocabulary)


def lattice_bytes(request: LatticeRequest, vocabulary: int) -> dict[int | None, float]:
    """Bytes of a drafted distribution by resolution; first the one that is used where none is chosen.

    Raises `RequestError` for a lattice that is too fine for its index.
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
        return {first: bits[first] / 8 + 1}  # they choose none
    ordered = [first, *(each for each in bits if each != first)]
    return {each: bits[each] / 8 + 1 for each in ordered}


def first_resolution(sizes: Mapping[int | None, float]) -> int:
    """The resolution that is used where none is chosen."""
    return next(resolutions(sizes))


def finest(sizes: Mapping[int | None, float]) -> int:
    """The largest resolution that a policy may choose."""
    return max(resolutions(sizes))


def resolutions(sizes: Mapping[int | None, float]) -> Iterator[int]:
    """The resolutions that drafted distributions may have."""
    return (resolution for resolution in sizes if resolution is not None)
