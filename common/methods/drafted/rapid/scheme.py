"""The mathematics of rapid: proposals are judged by p̂, the verifier's distribution moved towards the drafter's.

For an answer to follow p̂, whatever was proposed, the residual is that of p̂, and the bonus comes from p̂ as well, which
takes the drafter's distribution at its position: proposals have one more distribution than tokens. At temperature 0 the
shift is that of temperature 1, and what is most probable then is the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from common.engine.sampling import Drafter
from common.methods.drafted.machine.values import Judgement, RoundsConfig
from common.methods.drafted.rapid.request import RapidRequest
from common.methods.drafted.rejection.drawing import Judged, Judging, LatticeDrawing, SparseDrawing, Undrawn
from common.methods.drafted.rejection.judges import LatticeDrafts, Proposal, SparseDrafts, check_proposed, from_support
from common.methods.drafted.rejection.room import most_sparse, most_units
from common.methods.drafted.rejection.scheme import (
    TOKEN_BYTES,
    finest,
    first_resolution,
    lattice_bytes,
    resolutions,
    sparse_bytes,
)
from common.methods.drafted.request import draft_temperature
from common.sampling.augmentation import augmented, likeliest, paper_replacement
from common.sampling.drafting import Race
from common.sampling.draws import DrawsAt, Place, seeded
from common.sampling.fastest import Found
from common.sampling.rejection import accepts, bonus, replacement
from common.sampling.truncation import Distribution, renormalised
from common.sampling.warping import Warp, coded
from common.transport.limits import largest_payload
from proto.errors import malformed
from proto.limits import LARGEST_PROPOSAL, MOST_PROPOSED
from proto.messages import Open
from proto.payloads.lattice import IndexCode, decode_lattice
from proto.payloads.sparse import decode_sparse
from proto.rounds import Propose


@dataclass(frozen=True, slots=True)
class Greedy:
    """Implements `Drafter`: proposes what is most probable in the distribution of `drawing`, which travels."""

    drawing: SparseDrawing | LatticeDrawing

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Undrawn[Any]:
        view: Undrawn[Any] = self.drawing.drafted(position, probabilities, found)
        return replace(view, source=likeliest(view.distribution))


@dataclass(frozen=True, slots=True)
class RapidProposal(Proposal):
    """A proposed token; the last one of a proposal has the distribution where a bonus is drawn behind it."""

    behind: Distribution | None = None


@dataclass(frozen=True, slots=True)
class RapidJudge:
    """Implements `Judge`."""

    slow: ClassVar[bool] = True

    draws: DrawsAt
    config: RoundsConfig
    check_payload: Callable[[bytes], None]
    decode: Callable[[bytes], list[Distribution]]
    eta: float
    greedy: bool  # the verifier's temperature is 0
    paper: bool  # residual and bonus as published: what follows is neither p nor p̂

    def check(self, message: Propose) -> None:
        self.check_payload(message.payload)

    def read(self, message: Propose) -> Sequence[RapidProposal]:
        tokens, known = message.tokens, self.decode(message.payload)
        ends = bool(tokens) and self.config.ends(tokens[-1], message.position + len(tokens))
        if len(known) != len(tokens) + (not ends):
            raise malformed("a proposal must have a distribution for each of its tokens, and one where a bonus is due")
        proposed = [from_support(token, each) for token, each in zip(tokens, known, strict=False)]
        behind: list[Distribution | None] = [None] * len(proposed)
        if behind and not ends:
            behind[-1] = known[-1]
        return [
            RapidProposal(each.token, each.probability, each.distribution, distribution)
            for each, distribution in zip(proposed, behind, strict=True)
        ]

    def judge(self, place: Place, proposed: Sequence[RapidProposal], targets: Sequence[Judged]) -> Judgement:
        for accepted, (draft, target) in enumerate(zip(proposed, targets, strict=False)):
            drafter, draws = draft.distribution, self.draws(place)
            if drafter is None:
                raise ValueError("the drafter's distribution is not known here")
            shifted = self._shifted(target.distribution, drafter)
            if not accepts(draft.token, draft.probability, shifted, draws):
                if self.paper:
                    own = self._settled(target.distribution)
                    return Judgement(accepted, paper_replacement(own, shifted, drafter, draws))
                return Judgement(accepted, replacement(shifted, drafter, draws))
            place = place.behind(draft.token)
        if len(targets) == len(proposed):
            return Judgement(len(proposed), None)
        own, behind = targets[len(proposed)].distribution, proposed[-1].behind
        if behind is None:
            raise ValueError("the drafter's distribution is not known where a bonus is due")
        law = self._settled(own) if self.paper else self._shifted(own, behind)
        return Judgement(len(proposed), bonus(law, self.draws(place)))

    def _shifted(self, verifier: Distribution, drafter: Distribution) -> Distribution:
        return self._settled(augmented(verifier, drafter, self.eta))

    def _settled(self, distribution: Distribution) -> Distribution:
        return likeliest(distribution) if self.greedy else distribution


@dataclass(frozen=True, slots=True)
class RapidScheme:
    """Implements `Scheme`."""

    config: RoundsConfig
    token_bytes: Mapping[int | None, float]
    drafter: Drafter
    drafts: SparseDrafts | LatticeDrafts
    verifier: Judging
    judge: RapidJudge

    @property
    def cut(self) -> Warp | None:
        return self.verifier.cut


def rapid_scheme(opening: Open, request: RapidRequest, vocabulary: int) -> RapidScheme:
    """The scheme of one answer. Raises `RequestError` for proposals that no message holds."""
    config = replace(RoundsConfig.of(opening, vocabulary, ahead=False), lookahead=True, defers=False)
    draws = seeded(opening.seed)
    own = draft_temperature(opening, request)
    # At temperature 0 nothing is drawn by a ratio; what travels then is what the shift needs, at temperature 1.
    warmth = (own or 1.0) if opening.temperature == 0 else own
    warp = Warp(warmth, request.top_k, opening.top_p)
    drawing: SparseDrawing | LatticeDrawing
    drafts: SparseDrafts | LatticeDrafts
    check: Callable[[bytes], None]
    decode: Callable[[bytes], list[Distribution]]
    if request.draft_codec == "lattice":
        listed = lattice_bytes(request, vocabulary)
        config = replace(config, most=most_units(request, finest(listed), behind=1))
        sizes: dict[int | None, float] = {each: size + TOKEN_BYTES for each, size in listed.items()}
        drawing = LatticeDrawing(warp, first_resolution(listed))
        drafts = LatticeDrafts(draws, drawing, vocabulary, request.index_code, named=False)
        check = partial(_claimed, request.index_code, vocabulary, frozenset(resolutions(listed)))
        decode = partial(_of_lattice, request.index_code, vocabulary)
    else:
        # On one device nothing travels, and messages have their own bound only.
        payload = LARGEST_PROPOSAL if request.verifier == "device" else largest_payload(vocabulary)
        config = replace(config, most=most_sparse(request, vocabulary, payload, behind=1))
        sizes = {None: sparse_bytes(request.top_k, vocabulary)}
        drawing, drafts, decode = SparseDrawing(warp), SparseDrafts(draws), partial(_of_codes, vocabulary)
        check = _nothing
    drafter = Greedy(drawing) if own == 0 else drawing
    verifying = Judging(Warp(opening.temperature or 1.0, request.top_k, opening.top_p), travels=False)
    paper = request.residual == "paper"
    judge = RapidJudge(draws, config, check, decode, request.eta, opening.temperature == 0, paper)
    return RapidScheme(config, sizes, drafter, drafts, verifying, judge)


def _nothing(payload: bytes) -> None:
    """Refuse nothing: codes are read as quickly as they come."""


def _claimed(code: IndexCode, vocabulary: int, resolutions: Collection[int], payload: bytes) -> None:
    check_proposed(payload, code, vocabulary, MOST_PROPOSED + 1, resolutions)


def _of_codes(vocabulary: int, payload: bytes) -> list[Distribution]:
    return [coded(each.ids, each.codes) for each in decode_sparse(payload, vocabulary, MOST_PROPOSED + 1)]


def _of_lattice(code: IndexCode, vocabulary: int, payload: bytes) -> list[Distribution]:
    most = MOST_PROPOSED + 1
    listed = decode_lattice(payload, code, vocabulary, most, without=most)
    return [renormalised(entries.ids, entries.counts.astype(np.float64)) for entries, _ in listed]
