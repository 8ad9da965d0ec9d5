"""Distributions that both sides draw from: a mixture is warped and rounded by its owner, once, before any use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.drafting import Race
from common.sampling.draws import Draws
from common.sampling.fastest import Found
from common.sampling.lattice import quantise
from common.sampling.rejection import propose
from common.sampling.truncation import Distribution, renormalised
from common.sampling.warping import Warp, rounded
from proto.payloads.lattice import LatticeEntries
from proto.payloads.sparse import SparseEntries

_ATTRIBUTED: Final = 1e-3  # probability of a token whose documents' shares are kept

Entries = TypeVar("Entries", SparseEntries, LatticeEntries)


@dataclass(frozen=True, slots=True, eq=False)
class Drafted(Generic[Entries]):
    """A drafted token with the distribution that it was drawn from, as it travels."""

    token: int
    distribution: Distribution
    entries: Entries

    @property
    def confidence(self) -> float:
        return float(self.distribution.probabilities.max())


@dataclass(frozen=True, slots=True, eq=False)
class Undrawn(Generic[Entries]):
    """The drafter's distribution at a position, as it travels. What is drawn from it depends on the place."""

    distribution: Distribution
    entries: Entries
    source: Distribution  # that a token is drawn from: the same, but of a greedy drafter, or one that rounds too late

    @property
    def token(self) -> int:
        """The most probable one."""
        return int(self.source.ids[self.source.probabilities.argmax()])

    @property
    def listed(self) -> NDArray[np.integer]:
        return np.empty(0, np.int64)  # a drafter's documents are nobody's business

    def drawn(self, draws: Draws) -> Drafted[Entries]:
        """The draft of one place."""
        return Drafted(propose(self.source, draws), self.distribution, self.entries)


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """The verifier's distribution at a position; `entries` is how it travels, where it may have to."""

    distribution: Distribution
    entries: SparseEntries | None
    token: int  # its most probable one
    listed: NDArray[np.integer]

    @classmethod
    def of(cls, distribution: Distribution, entries: SparseEntries | None) -> Judged:
        probabilities = distribution.probabilities
        most = int(distribution.ids[probabilities.argmax()])
        return cls(distribution, entries, most, distribution.ids[probabilities >= _ATTRIBUTED])


@dataclass(frozen=True, slots=True)
class SparseDrawing:
    """Implements `Drafter` for a drafter whose distributions travel with 16-bit codes."""

    warp: Warp

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Undrawn[SparseEntries]:
        ids, codes, distribution = rounded(self.warp(probabilities))
        return Undrawn(distribution, SparseEntries(ids, codes), distribution)


@dataclass(slots=True)
class LatticeDrawing:
    """Implements `Drafter` for a drafter whose distributions are rounded to a lattice."""

    warp: Warp
    resolution: int  # of the drafts of one proposal; the next one may have another
    quantised_first: bool = True  # else the token is drawn before the rounding, which is not exact

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Undrawn[LatticeEntries]:
        exact = self.warp(probabilities)
        counts = quantise(exact.probabilities, self.resolution)
        kept = counts > 0
        distribution = renormalised(exact.ids[kept], counts[kept].astype(np.float64))
        entries = LatticeEntries(distribution.ids.astype(np.uint32), counts[kept].astype(np.uint32))
        return Undrawn(distribution, entries, distribution if self.quantised_first else exact)


@dataclass(frozen=True, slots=True)
class Judging:
    """Implements `Drafter` for the verifier, which draws nothing here; `travels`: its distributions may have to."""

    warp: Warp
    travels: bool

    @property
    def cut(self) -> Warp | None:
        """The warp, if there are tokens that it does not keep."""
        return self.warp if self.warp.top_k or self.warp.top_p < 1 else None

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Judged:
        exact = self.warp(probabilities)
        if not self.travels:
            return Judged.of(exact, None)
        ids, codes, distribution = rounded(exact)
        return Judged.of(distribution, SparseEntries(ids, codes))
