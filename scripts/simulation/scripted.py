"""Predictor and aggregation that replay an acceptance sequence through the real session.

The target of every position is the token `TARGET`. On the right prefix a side drafts it where the sequence says that
its draft is accepted, and a token of its own where it is not. After a wrong prefix it goes on with its own token: the
roll-back that must come discards that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from common.answer.values import View
from common.sampling.view import Decision
from proto.errors import malformed
from proto.messages import Side
from scripts.simulation.acceptance import Answer

TARGET = 0
WRONG: dict[Side, int] = {"device": 1, "cloud": 2}


@dataclass(frozen=True, slots=True)
class Scripted:
    """View of a scripted draft: its token alone."""

    token: int


@dataclass(frozen=True, slots=True)
class ScriptedPredictor:
    """One side's drafts. `alone`: it answers without the other one, so that every draft is the target."""

    side: Side
    answer: Answer
    alone: bool = False

    def predict(self, position: int, prefix: Sequence[int]) -> tuple[View, float]:
        if any(prefix):
            return Scripted(WRONG[self.side]), 0.0
        entry = self.answer[position]
        accepted = self.alone or (entry.device if self.side == "device" else entry.cloud)
        return Scripted(TARGET if accepted else WRONG[self.side]), 0.0


@dataclass(frozen=True, slots=True)
class ScriptedAggregation:
    """Decides as the sequence says. Certificates never fail: of thousands of real positions, few do."""

    answer: Answer

    def pack(self, view: Scripted) -> bytes:
        return bytes([view.token])

    def read(self, side: Side, position: int, payload: bytes) -> Scripted:
        if len(payload) != 1 or payload[0] not in (TARGET, WRONG[side]):
            raise malformed(f"a scripted draft is one byte, not {payload[:8]!r}")
        return Scripted(payload[0])

    def footprint(self, view: Scripted) -> int:
        return 1

    def aggregate(
        self, role: Side, position: int, device: Scripted, cloud: Scripted, evidence: tuple[float, float]
    ) -> Decision:
        return Decision(TARGET)

    def alone(self, view: Scripted) -> None:
        """None: a script has no probabilities."""

    def rivals(self, view: Scripted) -> tuple[()]:
        """None: a script does not tell which tokens come next."""
        return ()

    def check_resolve(self, ids: Sequence[int], depth: int) -> None:
        raise malformed("a scripted draft has nothing to resolve")

    def supply(self, view: Scripted, ids: Sequence[int], depth: int) -> bytes:
        raise malformed("a scripted draft has nothing to resolve")

    def complete(self, view: Scripted, position: int, ids: Sequence[int], depth: int, payload: bytes) -> Scripted:
        raise malformed("a scripted draft has nothing to resolve")
