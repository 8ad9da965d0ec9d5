"""Running estimates of how probable it is that a proposed position is accepted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from common.draft_policy.values import Outcome

PRIOR_ACCEPTANCE: Final = 0.7
PRIOR_POSITIONS: Final = 4.0  # that the prior counts as much as
MEMORY: Final = 200.0  # judged positions after which an outcome counts 1/e
MEMORY_OF_RESTED: Final = 16.0  # judged positions that those before a rest count as, at most
COARSENESS: Final = 1 / 3  # of the rejections at a resolution, that the finest would avoid
BINS: Final = 10  # of confidences


@dataclass(slots=True)
class _Share:
    """Accepted and judged positions, the older ones counting less."""

    accepted: float = 0.0
    judged: float = 0.0

    def fade(self, kept: float) -> None:
        self.accepted *= kept
        self.judged *= kept

    def of(self, prior: float, weight: float) -> float:
        return (self.accepted + weight * prior) / (self.judged + weight)


class PositionAcceptance:
    """α: how probable it is that a proposed position is accepted, given that those before it were.

    For each resolution apart. Of one that was not tried, the most tried one is the measure: a third of its
    rejections are put down to coarseness, which falls with the root of the resolution, and coarser ones are believed to
    be as good. That is optimism, and it makes them tried while their bytes could be worth it.
    """

    def __init__(self, prior: float = PRIOR_ACCEPTANCE, weight: float = PRIOR_POSITIONS) -> None:
        if not (0.0 < prior < 1.0 and weight > 0.0):
            raise ValueError(f"a prior acceptance is in (0, 1) and counts more than 0 positions, got {prior}, {weight}")
        self._prior, self._weight = prior, weight
        self._shares: dict[int | None, _Share] = {}

    def observe(self, outcome: Outcome) -> None:
        """Take in a round: its accepted positions, and the rejected one; those behind it were not judged."""
        judged = outcome.accepted + outcome.rejected
        kept = math.exp(-judged / MEMORY)
        known = sum(share.judged for share in self._shares.values())
        if outcome.rested and known > 0.0:
            kept = min(kept, MEMORY_OF_RESTED / known)
        for share in self._shares.values():
            share.fade(kept)
        share = self._shares.setdefault(outcome.resolution, _Share())
        share.accepted += outcome.accepted
        share.judged += judged

    @property
    def overall(self) -> float:
        """α of all resolutions together."""
        shares = self._shares.values()
        together = _Share(sum(one.accepted for one in shares), sum(one.judged for one in shares))
        return together.of(self._prior, self._weight)

    def of(self, resolution: int | None) -> float:
        """α of a resolution (None: without lattice)."""
        if resolution is None:
            return self.overall
        tried, most = max(
            ((at, share) for at, share in self._shares.items() if at is not None),
            key=lambda one: one[1].judged,
            default=(resolution, _Share()),
        )
        finer = max(0.0, 1.0 - math.sqrt(tried / resolution))
        hoped = 1.0 - (1.0 - most.of(self._prior, self._weight)) * (1.0 - COARSENESS * finer)
        if resolution == tried:
            return hoped
        return self._shares.get(resolution, _Share()).of(hoped, self._weight)


class ConfidenceAcceptance:
    """α by confidence: what the drafter's largest probability at a position says of its acceptance."""

    def __init__(self) -> None:
        self._bins = [_Share() for _ in range(BINS)]

    def observe(self, outcome: Outcome) -> None:
        """Take in a round that tells its positions' confidences."""
        judged = outcome.accepted + outcome.rejected
        for share in self._bins:
            share.fade(math.exp(-judged / (MEMORY * BINS)))
        for place, confidence in enumerate(outcome.confidences[:judged]):
            share = self._bin(confidence)
            share.accepted += place < outcome.accepted
            share.judged += 1.0

    def of(self, confidence: float, prior: float) -> float:
        """α at a position of this confidence; `prior` where little is known."""
        return self._bin(confidence).of(prior, PRIOR_POSITIONS)

    def _bin(self, confidence: float) -> _Share:
        return self._bins[min(BINS - 1, max(0, int(confidence * BINS)))]
