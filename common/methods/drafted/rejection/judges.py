"""Accepts or replaces proposed tokens; the methods differ in what travels (DSSD, Algorithms 1 and 2; QSV, §3)."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from common.draft_policy.values import Plan
from common.methods.drafted.machine.values import Judgement
from common.methods.drafted.rejection.drawing import Drafted, Entries, Judged, LatticeDrawing, Undrawn
from common.sampling.draws import DrawsAt, Place
from common.sampling.rejection import accepts, bonus, replacement
from common.sampling.truncation import Distribution, renormalised
from common.sampling.warping import coded
from proto.errors import malformed
from proto.limits import MOST_PROPOSED
from proto.payloads.lattice import IndexCode, LatticeEntries, decode_lattice, encode_lattice, lattice_claims
from proto.payloads.sparse import SparseEntries, decode_sparse, encode_sparse
from proto.rounds import Propose

_PROBABILITY: Final = struct.Struct("<d")


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A proposed token, q of it, and q as far as the verifier knows it."""

    token: int
    probability: float
    distribution: Distribution | None = None


def judge(draws: DrawsAt, place: Place, proposed: Sequence[Proposal], targets: Sequence[Judged]) -> Judgement:
    """The verdict on tokens proposed from `place` on; the token instead of a rejected one is drawn here."""
    accepted, behind = held(draws, place, proposed, targets)
    if accepted == len(proposed):
        drawn = [bonus(target.distribution, draws(behind)) for target in targets[accepted:]]
        return Judgement(accepted, drawn[0] if drawn else None)
    drafter = proposed[accepted].distribution
    if drafter is None:
        raise ValueError("the drafter's distribution is not known here")
    return Judgement(accepted, replacement(targets[accepted].distribution, drafter, draws(behind)))


def held(draws: DrawsAt, place: Place, proposed: Sequence[Proposal], targets: Sequence[Judged]) -> tuple[int, Place]:
    """Number of first tokens that hold, and the place behind these."""
    for accepted, (draft, target) in enumerate(zip(proposed, targets, strict=False)):
        if not accepts(draft.token, draft.probability, target.distribution, draws(place)):
            return accepted, place
        place = place.behind(draft.token)
    return len(proposed), place


class Quick:
    """The part of `Judge` of methods whose proposals are read in no time."""

    slow: ClassVar[bool] = False

    def check(self, message: Propose) -> None:
        """Refuse nothing: reading does."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """The part of `Drafts` of methods that draw from the drafter's distribution."""

    draws: DrawsAt

    def planned(self, plan: Plan) -> None:
        """Drafts are the same in every plan."""

    def drawn(self, place: Place, view: Undrawn[Entries]) -> Drafted[Entries]:
        return view.drawn(self.draws(place))


class Named(Drawing):
    """The part of `Drafts` of methods whose verdicts always name a token."""

    __slots__ = ()

    def settle(self, place: Place, view: object, payload: bytes) -> int:
        raise malformed("a verdict must name the token that takes a rejected one's place")


# --- dsd: q up


class SparseDrafts(Named):
    """Implements `Drafts`: each token with the distribution that it was drawn from."""

    __slots__ = ()

    def pack(self, views: Sequence[Drafted[SparseEntries]], length: int) -> tuple[tuple[int, ...], bytes]:
        return tuple(view.token for view in views[:length]), encode_sparse([view.entries for view in views])


@dataclass(frozen=True, slots=True)
class SparseJudge(Quick):
    """Implements `Judge` for proposals with whole distributions."""

    slow: ClassVar[bool] = True

    draws: DrawsAt
    vocabulary: int

    def read(self, message: Propose) -> Sequence[Proposal]:
        listed = decode_sparse(message.payload, self.vocabulary, MOST_PROPOSED)
        if len(listed) != len(message.tokens):
            raise malformed("a proposal must have a distribution for each of its tokens")
        return [
            from_support(token, coded(each.ids, each.codes)) for token, each in zip(message.tokens, listed, strict=True)
        ]

    def judge(self, place: Place, proposed: Sequence[Proposal], targets: Sequence[Judged]) -> Judgement:
        return judge(self.draws, place, proposed, targets)


# --- dssd: q(x) up, p down for a rejected token


@dataclass(frozen=True, slots=True)
class ScalarDrafts(Drawing):
    """Implements `Drafts`: each token with its probability. The device draws in place of a rejected one."""

    vocabulary: int

    def pack(self, views: Sequence[Drafted[SparseEntries]], length: int) -> tuple[tuple[int, ...], bytes]:
        probabilities = [view.distribution.of(view.token) for view in views]
        return tuple(view.token for view in views), b"".join(map(_PROBABILITY.pack, probabilities))

    def settle(self, place: Place, view: Drafted[SparseEntries], payload: bytes) -> int:
        (entries,) = decode_sparse(payload, self.vocabulary, 1)
        verifier, draws = coded(entries.ids, entries.codes), self.draws(place)
        if accepts(view.token, view.distribution.of(view.token), verifier, draws):
            raise malformed("a rejected token must be one that the verifier's distribution does not accept")
        return replacement(verifier, view.distribution, draws)


@dataclass(frozen=True, slots=True)
class ScalarJudge(Quick):
    """Implements `Judge` for proposals with a probability for each token."""

    draws: DrawsAt

    def read(self, message: Propose) -> Sequence[Proposal]:
        if len(message.payload) != _PROBABILITY.size * len(message.tokens):
            raise malformed("a proposal must have a probability for each of its tokens")
        values = [value for (value,) in _PROBABILITY.iter_unpack(message.payload)]
        if not all(0.0 < value <= 1.0 for value in values):  # NaN fails the comparison
            raise malformed("probabilities of proposed tokens must be above 0 and at most 1")
        return [Proposal(token, value) for token, value in zip(message.tokens, values, strict=True)]

    def judge(self, place: Place, proposed: Sequence[Proposal], targets: Sequence[Judged]) -> Judgement:
        accepted, _ = held(self.draws, place, proposed, targets)
        if accepted == len(proposed):
            return judge(self.draws, place, proposed, targets)
        entries = targets[accepted].entries
        if entries is None:
            raise ValueError("the verifier's distribution can't travel")
        return Judgement(accepted, None, encode_sparse([entries]))


# --- qsv: q rounded to a lattice up


@dataclass(frozen=True, slots=True)
class LatticeDrafts(Named):
    """Implements `Drafts`: each token within the lattice distribution that it was drawn from."""

    drawing: LatticeDrawing
    vocabulary: int
    code: IndexCode
    named: bool = True  # the token has a unit of its distribution, so that its place there says which it is

    def planned(self, plan: Plan) -> None:
        if plan.resolution is not None:
            self.drawing.resolution = plan.resolution

    def pack(self, views: Sequence[Drafted[LatticeEntries]], length: int) -> tuple[tuple[int, ...], bytes]:
        tokens = tuple(view.token for view in views[:length])
        listed = [(view.entries, view.token if self.named else None) for view in views]
        payload = encode_lattice(listed, self.code, self.vocabulary)
        return (() if self.named else tokens), payload


@dataclass(frozen=True, slots=True)
class LatticeJudge:
    """Implements `Judge` for proposals with lattice distributions, of one of the `resolutions`."""

    slow: ClassVar[bool] = True

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
                # One without a unit was drawn before the rounding: it is as if q of it were nearly 0.
                proposals.append(Proposal(token, distribution.of(token) or np.finfo(np.float64).tiny, distribution))
        return proposals

    def judge(self, place: Place, proposed: Sequence[Proposal], targets: Sequence[Judged]) -> Judgement:
        return judge(self.draws, place, proposed, targets)


def check_proposed(payload: bytes, code: IndexCode, vocabulary: int, most: int, resolutions: Collection[int]) -> None:
    """Refuse a lattice payload by its claims; `most` are positions. Raises `ProtocolError`."""
    resolution, _, _ = lattice_claims(payload, code, vocabulary, most)
    if resolution not in resolutions:
        raise malformed("the lattice of a proposal must be one of those that its answer was opened with")


def from_support(token: int, distribution: Distribution) -> Proposal:
    """A token that was drawn from `distribution`. Raises `ProtocolError` for one that can't have been."""
    probability = distribution.of(token)
    if not probability:
        raise malformed("a proposed token must be one of its distribution")
    return Proposal(token, probability, distribution)
