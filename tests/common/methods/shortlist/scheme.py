"""The mathematics: both sides race on the same noise, as in coupled drafting, and the verifier's winner is the answer.

So the answer is the verifier's alone with the same seed, whatever is drafted. What the drafter tells beside a draft is
who else was fast in its race. Where the verifier's winner is one of these, its verdict has a byte instead of a token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.values import View
from common.draft_policy.times import DraftPlan
from common.methods.drafted.drafting import Judgement, RoundsConfig
from common.sampling.compiled import DrawPoint
from common.sampling.race import Found, Race, Racing
from common.sampling.rejection import Warp
from proto.errors import malformed
from proto.messages import Propose
from tests.common.methods.shortlist.payload import ID, decode_lists, encode_lists

TOKEN_BYTES = 3.0  # of a token id in a message


@dataclass(frozen=True, slots=True)
class Drafted:
    """A drafted token, and those behind it in its race, the fastest first."""

    token: int
    runners_up: tuple[int, ...]
    confidence: float = 0.0

    @property
    def listed(self) -> NDArray[np.integer]:
        return np.asarray([self.token])  # of which it is noted what each document had to do with it


@dataclass(frozen=True, slots=True)
class Drafter:
    """Implements `Drafter`: what the engine makes of the draft model's distribution at a position."""

    seed: int
    temperature: float
    runners_up: int

    def race(self, position: int) -> Race:
        return Race(self.seed, position, self.temperature, 1 + self.runners_up)

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Drafted:
        """Raises `ValueError` for a mixture without a positive probability."""
        if found is None or not len(found[0]):
            raise ValueError(f"the mixture at position {position} has no positive probability")
        ids, speeds = found
        first, *others = ids[np.argsort(-speeds, kind="stable")].tolist()
        return Drafted(first, tuple(others), float(probabilities.max()))


@dataclass(frozen=True, slots=True)
class Drafts:
    """Implements `Drafts`: what becomes of a draft on the device."""

    def planned(self, plan: DraftPlan) -> None:
        """A draft is the same in every plan."""

    def drawn(self, place: DrawPoint, view: Drafted) -> Drafted:
        """The race has drawn it."""
        return view

    def pack(self, views: Sequence[Drafted], length: int) -> tuple[tuple[int, ...], bytes]:
        return tuple(view.token for view in views), encode_lists([view.runners_up for view in views])

    def settle(self, place: DrawPoint, view: Drafted, payload: bytes) -> int:
        if len(payload) != 1 or payload[0] >= len(view.runners_up):
            raise malformed("a verdict must name a token, or the place of a runner-up")
        return view.runners_up[payload[0]]


@dataclass(frozen=True, slots=True)
class Judge:
    """Implements `Judge`: what the cloud reads in a proposal, and says of it."""

    slow: ClassVar[bool] = False

    vocabulary: int
    runners_up: int

    def check(self, message: Propose) -> None:
        """Refuse nothing: reading does, as quickly."""

    def read(self, message: Propose) -> Sequence[Drafted]:
        lists = decode_lists(message.payload, len(message.tokens), self.runners_up, self.vocabulary)
        return [Drafted(token, each) for token, each in zip(message.tokens, lists, strict=True)]

    def judge(self, place: DrawPoint, proposed: Sequence[Drafted], targets: Sequence[View]) -> Judgement:
        for accepted, (draft, target) in enumerate(zip(proposed, targets, strict=False)):
            if target.token in draft.runners_up:
                return Judgement(accepted, None, bytes([draft.runners_up.index(target.token)]))
            if target.token != draft.token:
                return Judgement(accepted, target.token)
        return Judgement(len(proposed), targets[-1].token if len(targets) > len(proposed) else None)


@dataclass(frozen=True, slots=True)
class ShortlistScheme:
    """Implements `Scheme`."""

    config: RoundsConfig
    drafter: Drafter
    drafts: Drafts
    verifier: Racing
    judge: Judge

    @property
    def cut(self) -> Warp | None:
        return None  # a race is truncated by the processors

    @property
    def token_bytes(self) -> Mapping[int | None, float]:
        return {None: TOKEN_BYTES + 1.0 + ID.itemsize * self.drafter.runners_up}
