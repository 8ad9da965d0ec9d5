"""The mathematics of dsd, dssd and qsv, put together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

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
from common.methods.rejection.request import QsvRequest, RejectionRequest
from common.rounds.values import RoundsConfig
from common.sampling.draws import SeededDraws
from common.sampling.warping import Warp
from proto.messages import Open


@dataclass(frozen=True, slots=True)
class RejectionScheme:
    """Implements `Scheme`."""

    config: RoundsConfig
    drafter: SparseDrawing | LatticeDrawing
    drafts: SparseDrafts | ScalarDrafts | LatticeDrafts
    verifier: Judging
    judge: SparseJudge | ScalarJudge | LatticeJudge


def rejection_scheme(opening: Open, request: RejectionRequest, vocabulary: int) -> RejectionScheme:
    """The scheme of one answer of method `opening.method`."""
    config = RoundsConfig(opening.session, frozenset(opening.eos), opening.max_tokens, vocabulary)
    verifying = Warp(opening.temperature, request.top_k, opening.top_p)
    drafting = Warp(_draft_temperature(opening, request), request.top_k, opening.top_p)
    draws = partial(SeededDraws, opening.seed)
    if isinstance(request, QsvRequest):
        exact = request.order == "quantise-sample"
        drawing = LatticeDrawing(draws, drafting, request.resolution, exact)
        drafts = LatticeDrafts(vocabulary, request.index_code, exact)
        judge = LatticeJudge(draws, vocabulary, request.index_code, exact)
        return RejectionScheme(config, drawing, drafts, Judging(verifying, travels=False), judge)
    judging, sparse = Judging(verifying, travels=True), SparseDrawing(draws, drafting)
    if opening.method == "dssd":
        return RejectionScheme(config, sparse, ScalarDrafts(draws, vocabulary), judging, ScalarJudge(draws))
    return RejectionScheme(config, sparse, SparseDrafts(), judging, SparseJudge(draws, vocabulary))


def _draft_temperature(opening: Open, request: DraftRequest) -> float:
    return opening.temperature if request.draft_temperature is None else request.draft_temperature
