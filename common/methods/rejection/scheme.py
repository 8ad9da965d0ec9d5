"""The mathematics of dsd, dssd and qsv, put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from common.draft_policy.lattice_bits import fixed_index_bits, short_index_bits
from common.draft_policy.values import RESOLUTIONS
from common.methods.draft_verify.request import DraftRequest
from common.methods.rejection.drawing import Judging, LatticeDrawing, SparseDrawing
from common.methods.rejection.judges import (
    LatticeDrafts,
    LatticeJudge,
    ScalarDrafts,
    ScalarJudge,
    SparseDrafts,
    SparseJudge,
)
from common.methods.rejection.request import (
    DEFAULT_RESOLUTION,
    MOST_FIXED,
    LatticeRequest,
    QsvRequest,
    RejectionRequest,
)
from common.rounds.values import RoundsConfig
from common.sampling.draws import SeededDraws
from common.sampling.warping import Warp
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


def rejection_scheme(opening: Open, request: RejectionRequest, vocabulary: int) -> RejectionScheme:
    """The scheme of one answer of method `opening.method`."""
    config = RoundsConfig(opening.session, frozenset(opening.eos), opening.max_tokens, vocabulary)
    draws = partial(SeededDraws, opening.seed)
    verifying = Warp(opening.temperature, request.top_k, opening.top_p)
    drafting = Warp(draft_temperature(opening, request), request.top_k, opening.top_p)
    if isinstance(request, QsvRequest):
        sizes, exact = lattice_bytes(request, vocabulary), request.order == "quantise-sample"
        drawing = LatticeDrawing(draws, drafting, first_resolution(sizes), exact)
        drafts = LatticeDrafts(drawing, vocabulary, request.index_code, exact)
        judge = LatticeJudge(draws, vocabulary, request.index_code, exact)
        return RejectionScheme(config, sizes, drawing, drafts, Judging(verifying, travels=False), judge)
    judging, sparse = Judging(verifying, travels=True), SparseDrawing(draws, drafting)
    if opening.method == "dssd":
        scalar: dict[int | None, float] = {None: TOKEN_BYTES + 8.0}
        return RejectionScheme(config, scalar, sparse, ScalarDrafts(draws, vocabulary), judging, ScalarJudge(draws))
    whole: dict[int | None, float] = {None: sparse_bytes(request.top_k, vocabulary)}
    return RejectionScheme(config, whole, sparse, SparseDrafts(), judging, SparseJudge(draws, vocabulary))


def sparse_bytes(top_k: int, vocabulary: int) -> float:
    """Bytes of a token with its distribution in 16-bit codes."""
    entry = 4.0 if top_k else 2.125  # bytes; of all tokens, the ids are a bitmap
    return TOKEN_BYTES + entry * (top_k or vocabulary)


def lattice_bytes(request: LatticeRequest, vocabulary: int) -> dict[int | None, float]:
    """Bytes of a drafted distribution by resolution; first the one that is used where none is chosen."""
    chosen = RESOLUTIONS if request.resolution is None else (request.resolution,)
    if request.index_code == "fixed":
        listed = [each for each in chosen if each <= MOST_FIXED]
        bits = {each: fixed_index_bits(each, vocabulary) for each in listed}
    else:
        support = min(TYPICAL_SUPPORT, vocabulary)
        bits = {each: short_index_bits(each, vocabulary, min(support, each)) for each in chosen}
    first = DEFAULT_RESOLUTION if DEFAULT_RESOLUTION in bits else next(iter(bits))
    ordered = [first, *(each for each in bits if each != first)]
    return {each: bits[each] / 8 + 1 for each in ordered}


def draft_temperature(opening: Open, request: DraftRequest) -> float:
    """The drafter's own temperature."""
    return opening.temperature if request.draft_temperature is None else request.draft_temperature


def first_resolution(sizes: Mapping[int | None, float]) -> int:
    """The resolution that is used where none is chosen."""
    return next(resolution for resolution in sizes if resolution is not None)
