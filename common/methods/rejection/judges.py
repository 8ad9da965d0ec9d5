"""Accepts or replaces proposed tokens; the methods differ in what travels (DSSD, Algorithms 1 and 2; QSV, §3)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from common.draft_policy.values import Plan
from common.methods.rejection.drawing import Drafted, Judged, LatticeDrawing
from common.rounds.values import Judgement
from common.sampling.draws import DrawsAt
from common.sampling.rejection import accepts, bonus, replacement
from common.sampling.truncation import Distribution, renormalised
from common.sampling.warping import coded
from proto.errors import malformed
from proto.limits import MOST_PROPOSED
from proto.payloads.lattice import IndexCode, LatticeEntries, decode_lattice, encode_lattice
from proto.payloads.sparse import SparseEntries, decode_sparse, encode_sparse
from proto.rounds import Propose

_PROBABILITY: Final = struct.Struct("<d")


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """A proposed token, q of it, and q as far as the verifier knows it."""

    token: int
    probability: float
    distribution: Distribution | None = None


def judge(draws: DrawsAt, position: int, proposed: Sequence[Proposal], targets: Sequence[Judged]) -> Judgement:
    """The verdict on tokens proposed from `position` on; the token in place of a rejected one is drawn here."""
    place = first_rejected(draws, position, proposed, targets)
    if place == len(proposed):
        behind = targets[place:]
        drawn = [bonus(target.distribution, draws(position + place)) for target in behind]
        return Judgement(place, drawn[0] if drawn else None)
    drafter = proposed[place].distribution
    if drafter is None:
        raise ValueError("the drafter's distribution is not known here")
    return Judgement(place, replacement(targets[place].distribution, drafter, draws(position + place)))


def first_rejected(draws: DrawsAt, position: int, proposed: Sequence[Proposal], targets: Sequence[Judged]) -> int:
    """The place of the first token that does not hold; the number of tokens if all do."""
    for place, (draft, target) in enumerate(zip(proposed, targets, strict=False)):
        if not accepts(draft.token, draft.probability, target.distribution, draws(position + place)):
            return place
    return len(proposed)


class Plain:
    """The part of `Drafts` of methods whose drafts are the same in every plan."""

    def planned(self, plan: Plan) -> None:
        pass


class Named(Plain):
    """The part of `Drafts` of methods whose verdicts always name a token."""

    def settle(self, position: int, view: object, payload: bytes) -> int:
        raise malformed("a verdict must name the token that takes a rejected one's place")


# --- dsd: q up


class SparseDrafts(Named):
    """Implements `Drafts`: each token with the distribution that it was drawn from."""

    def pack(self, views: Sequence[Drafted[SparseEntries]], length: int) -> tuple[tuple[int, ...], bytes]:
        return tuple(view.token for view in views[:length]), encode_sparse([view.entries for view in views])


@dataclass(frozen=True, slots=True)
class SparseJudge:
    """Implements `Judge` for proposals with whole distributions."""

    draws: DrawsAt
    vocabulary: int

    def read(self, message: Propose) -> Sequence[Proposal]:
        listed = decode_sparse(message.payload, self.vocabulary, MOST_PROPOSED)
        if len(listed) != len(message.tokens):
            raise malformed("a proposal must have a distribution for each of its tokens")
        return [
            from_support(token, coded(each.ids, each.codes)) for token, each in zip(message.tokens, listed, strict=True)
        ]

    def judge(self, position: int, proposed: Sequence[Proposal], targets: Sequence[Judged]) -> Judgement:
        return judge(self.draws, position, proposed, targets)


# --- dssd: q(x) up, p down for a rejected token


@dataclass(frozen=True, slots=True)
class ScalarDrafts(Plain):
    """Implements `Drafts`: each token with its probability. The device draws in place of a rejected one."""

    draws: DrawsAt
    vocabulary: int

    def pack(self, views: Sequence[Drafted[SparseEntries]], length: int) -> tuple[tuple[int, ...], bytes]:
        probabilities = [view.distribution.of(view.token) for view in views]
        return tuple(view.token for view in views), b"".join(map(_PROBABILITY.pack, probabilities))

    def settle(self, position: int, view: Drafted[SparseEntries], payload: bytes) -> int:
        (entries,) = decode_sparse(payload, self.vocabulary, 1)
        verifier, draws = coded(entries.ids, entries.codes), self.draws(position)
        if accepts(view.token, view.distribution.of(view.token), verifier, draws):
            raise malformed("a rejected token must be one that the verifier's distribution does not accept")
        return replacement(verifier, view.distribution, draws)


@dataclass(frozen=True, slots=True)
class ScalarJudge:
    """Implements `Judge` for proposals with a probability for each token."""

    draws: DrawsAt

    def read(self, message: Propose) -> Sequence[Proposal]:
        if len(message.payload) != _PROBABILITY.size * len(message.tokens):
            raise malformed("a proposal must have a probability for each of its tokens")
        values = [value for (value,) in _PROBABILITY.iter_unpack(message.payload)]
        if not all(0.0 < value <= 1.0 for value in values):  # NaN fails the comparison
            raise malformed("probabilities of proposed tokens must be above 0 and at most 1")
        return [Proposal(token, value) for token, value in zip(message.tokens, values, strict=True)]

    def judge(self, position: int, proposed: Sequence[Proposal], targets: Sequence[Judged]) -> Judgement:
        place = first_rejected(self.draws, position, proposed, targets)
        if place == len(proposed):
            return judge(self.draws, position, proposed, targets)
        entries = targets[place].entries
        if entries is None:
            raise ValueError("the verifier's distribution can't travel")
        return Judgement(place, None, encode_sparse([entries]))


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
    """Implements `Judge` for proposals with lattice distributions."""

    draws: DrawsAt
    vocabulary: int
    code: IndexCode
    named: bool = True

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

    def judge(self, position: int, proposed: Sequence[Proposal], targets: Sequence[Judged]) -> Judgement:
        return judge(self.draws, position, proposed, targets)


def from_support(token: int, distribution: Distribution) -> Proposal:
    """A token that was drawn from `distribution`. Raises `ProtocolError` for one that can't have been."""
    probability = distribution.of(token)
    if not probability:
        raise malformed("a proposed token must be one of its distribution")
    return Proposal(token, probability, distribution)
