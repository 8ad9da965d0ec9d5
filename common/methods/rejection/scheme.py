"""Judges and schemes of dsd, dssd and qsv, which verify by rejection."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from common.methods.drafted.distributions import (
    TOKEN_BYTES,
    Drawing,
    DrawnToken,
    LatticeDrafts,
    LatticeDrawing,
    Proposal,
    SparseDrafts,
    SparseDrawing,
    TargetView,
    VerifierDrawing,
    check_proposed,
    finest,
    first_resolution,
    from_support,
    lattice_bytes,
    most_sparse,
    most_units,
    resolutions,
    sparse_bytes,
)
from common.methods.drafted.drafting import Judgement, RoundsConfig
from common.methods.drafted.method import (
    draft_temperature,
)
from common.methods.drafted.payloads import IndexCode, SparseEntries, decode_lattice, decode_sparse, encode_sparse
from common.methods.rejection.method import QsvRequest, SplitRequest
from common.sampling.compiled import DrawPoint, DrawsAt, seeded
from common.sampling.rejection import Warp, accepts, bonus, coded, replacement
from common.sampling.truncation import renormalised
from common.transport.sending import largest_payload
from proto.errors import malformed
from proto.messages import MOST_PROPOSED, Open, Propose

# --- judges
# The payloads differ (DSSD, Algorithms 1 and 2; QSV, §3).

_PROBABILITY: Final = struct.Struct("<d")


def judge(draws: DrawsAt, place: DrawPoint, proposed: Sequence[Proposal], targets: Sequence[TargetView]) -> Judgement:
    """The verdict on tokens from `place` on, with a drawn replacement or bonus."""
    accepted, behind = count_accepted(draws, place, proposed, targets)
    if accepted == len(proposed):
        drawn = [bonus(target.distribution, draws(behind)) for target in targets[accepted:]]
        return Judgement(accepted, drawn[0] if drawn else None)
    drafter = proposed[accepted].distribution
    if drafter is None:
        raise ValueError("the drafter's distribution is not known here")
    return Judgement(accepted, replacement(targets[accepted].distribution, drafter, draws(behind)))


def count_accepted(
    draws: DrawsAt, place: DrawPoint, proposed: Sequence[Proposal], targets: Sequence[TargetView]
) -> tuple[int, DrawPoint]:
    """The number of accepted tokens, and the next place."""
    for accepted, (draft, target) in enumerate(zip(proposed, targets, strict=False)):
        if not accepts(draft.token, draft.probability, target.distribution, draws(place)):
            return accepted, place
        place = place.behind(draft.token)
    return len(proposed), place


class Quick:
    """A part of `Judge` for quickly read proposals."""

    slow: ClassVar[bool] = False

    def check(self, message: Propose) -> None:
        """Refuse nothing: `read` does."""


class WholeDistributions:
    """A part of `Judge` for proposed distributions."""

    slow: ClassVar[bool] = True
    draws: DrawsAt

    def judge(self, place: DrawPoint, proposed: Sequence[Proposal], targets: Sequence[TargetView]) -> Judgement:
        return judge(self.draws, place, proposed, targets)


# --- dsd: q up


@dataclass(frozen=True, slots=True)
class SparseJudge(WholeDistributions, Quick):
    """Implements `Judge` for whole distributions."""

    draws: DrawsAt
    vocabulary: int

    def read(self, message: Propose) -> Sequence[Proposal]:
        listed = decode_sparse(message.payload, self.vocabulary, MOST_PROPOSED)
        if len(listed) != len(message.tokens):
            raise malformed("a proposal must have a distribution for each of its tokens")
        return [
            from_support(token, coded(each.ids, each.codes)) for token, each in zip(message.tokens, listed, strict=True)
        ]


# --- dssd: q(x) up, p down for a rejected token


@dataclass(frozen=True, slots=True)
class ScalarDrafts(Drawing):
    """Implements `Drafts`: tokens with probabilities. The device draws replacements."""

    vocabulary: int

    def pack(self, views: Sequence[DrawnToken[SparseEntries]], length: int) -> tuple[tuple[int, ...], bytes]:
        probabilities = [view.distribution.of(view.token) for view in views]
        return tuple(view.token for view in views), b"".join(map(_PROBABILITY.pack, probabilities))

    def settle(self, place: DrawPoint, view: DrawnToken[SparseEntries], payload: bytes) -> int:
        (entries,) = decode_sparse(payload, self.vocabulary, 1)
        verifier, draws = coded(entries.ids, entries.codes), self.draws(place)
        if accepts(view.token, view.distribution.of(view.token), verifier, draws):
            raise malformed("a rejected token must be one that the verifier's distribution does not accept")
        return replacement(verifier, view.distribution, draws)


@dataclass(frozen=True, slots=True)
class ScalarJudge(Quick):
    """Implements `Judge` for one probability per token."""

    draws: DrawsAt

    def read(self, message: Propose) -> Sequence[Proposal]:
        if len(message.payload) != _PROBABILITY.size * len(message.tokens):
            raise malformed("a proposal must have a probability for each of its tokens")
        values = [value for (value,) in _PROBABILITY.iter_unpack(message.payload)]
        if not all(0.0 < value <= 1.0 for value in values):  # NaN fails the comparison
            raise malformed("probabilities of proposed tokens must be above 0 and at most 1")
        return [Proposal(token, value) for token, value in zip(message.tokens, values, strict=True)]

    def judge(self, place: DrawPoint, proposed: Sequence[Proposal], targets: Sequence[TargetView]) -> Judgement:
        accepted, _ = count_accepted(self.draws, place, proposed, targets)
        if accepted == len(proposed):
            return judge(self.draws, place, proposed, targets)
        entries = targets[accepted].entries
        if entries is None:
            raise ValueError("the verifier's distribution can't travel")
        return Judgement(accepted, None, encode_sparse([entries]))


# --- qsv: q rounded to a lattice up


@dataclass(frozen=True, slots=True)
class LatticeJudge(WholeDistributions):
    """Implements `Judge` for lattice distributions of `resolutions`."""

    draws: DrawsAt
    vocabulary: int
    code: IndexCode
    resolutions: Collection[int]
    named: bool = True

    def check(self, message: Propose) -> None:
        check_proposed(message.payload, self.code, self.vocabulary, MOST_PROPOSED, self.resolutions)

    def read(self, message: Propose) -> Sequence[Proposal]:
        listed = decode_lattice(
            message.payload, self.code, self.vocabulary, MOST_PROPOSED, without=0 if self.named else MOST_PROPOSED
        )
        if len(message.tokens) != (0 if self.named else len(listed)):
            raise malformed("the tokens of a proposal must be named in one place")
        proposals = []
        for place, (entries, token) in enumerate(listed):
            distribution = renormalised(entries.ids, entries.counts.astype(np.float64))
            if token is not None:
                proposals.append(from_support(token, distribution))
            else:
                token = message.tokens[place]
                # Drawn before the rounding: as if its q were nearly 0.
                proposals.append(Proposal(token, distribution.of(token) or np.finfo(np.float64).tiny, distribution))
        return proposals


# --- scheme


@dataclass(frozen=True, slots=True)
class RejectionScheme:
    """Implements `Scheme`."""

    config: RoundsConfig
    token_bytes: Mapping[int | None, float]
    drafter: SparseDrawing | LatticeDrawing
    drafts: SparseDrafts | ScalarDrafts | LatticeDrafts
    verifier: VerifierDrawing
    judge: SparseJudge | ScalarJudge | LatticeJudge

    @property
    def cut(self) -> Warp | None:
        return self.verifier.cut


def rejection_scheme(opening: Open, request: SplitRequest | QsvRequest, vocabulary: int) -> RejectionScheme:
    """Make an answer's scheme. Raises `RequestError` for proposals too large for messages."""
    config = RoundsConfig.of(opening, vocabulary, request.ahead)
    draws = seeded(opening.seed)
    verifying = Warp(opening.temperature, request.top_k, opening.top_p)
    drafting = Warp(draft_temperature(opening, request), request.top_k, opening.top_p)
    if isinstance(request, QsvRequest):
        sizes, exact = lattice_bytes(request, vocabulary), request.order == "quantise-sample"
        if request.ahead:  # its proposals share one resolution
            first = first_resolution(sizes)
            sizes = {first: sizes[first]}
        config = replace(config, most=most_units(request, finest(sizes)))
        drawing = LatticeDrawing(drafting, first_resolution(sizes), exact)
        drafts = LatticeDrafts(draws, drawing, vocabulary, request.index_code, exact)
        judge = LatticeJudge(draws, vocabulary, request.index_code, frozenset(resolutions(sizes)), exact)
        return RejectionScheme(config, sizes, drawing, drafts, VerifierDrawing(verifying, travels=False), judge)
    judging, sparse = VerifierDrawing(verifying, travels=True), SparseDrawing(drafting)
    if opening.method == "dssd":
        scalar: dict[int | None, float] = {None: TOKEN_BYTES + 8.0}
        return RejectionScheme(config, scalar, sparse, ScalarDrafts(draws, vocabulary), judging, ScalarJudge(draws))
    config = replace(config, most=most_sparse(request, vocabulary, largest_payload(vocabulary)))
    whole: dict[int | None, float] = {None: sparse_bytes(request.top_k, vocabulary)}
    return RejectionScheme(config, whole, sparse, SparseDrafts(draws), judging, SparseJudge(draws, vocabulary))
