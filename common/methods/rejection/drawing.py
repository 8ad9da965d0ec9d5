"""How both sides draw: a mixture is warped and rounded by its owner, once, before it is used for anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.drafting import Race
from common.sampling.draws import DrawsAt
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
    def listed(self) -> NDArray[np.integer]:
        return np.asarray([self.token])

    @property
    def confidence(self) -> float:
        return float(self.distribution.probabilities.max())


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

    draws: DrawsAt
    warp: Warp

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Drafted[SparseEntries]:
        ids, codes, distribution = rounded(self.warp(probabilities))
        token = propose(distribution, self.draws(position))
        return Drafted(token, distribution, SparseEntries(ids, codes))


@dataclass(slots=True)
class LatticeDrawing:
    """Implements `Drafter` for a drafter whose distributions are rounded to a lattice."""

    draws: DrawsAt
    warp: Warp
    resolution: int  # of the drafts of one proposal; the next one may have another
    quantised_first: bool = True  # else the token is drawn before the rounding, which is not exact

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Drafted[LatticeEntries]:
        exact = self.warp(probabilities)
        counts = quantise(exact.probabilities, self.resolution)
        kept = counts > 0
        distribution = renormalised(exact.ids[kept], counts[kept].astype(np.float64))
        token = propose(distribution if self.quantised_first else exact, self.draws(position))
        entries = LatticeEntries(distribution.ids.astype(np.uint32), counts[kept].astype(np.uint32))
        return Drafted(token, distribution, entries)


@dataclass(frozen=True, slots=True)
class Judging:
    """Implements `Drafter` for the verifier, which draws nothing here; `travels`: its distributions may have to."""

    warp: Warp
    travels: bool

    def race(self, position: int) -> Race | None:
        return None

    def drafted(self, position: int, probabilities: torch.Tensor, found: Found | None) -> Judged:
        exact = self.warp(probabilities)
        if not self.travels:
            return Judged.of(exact, None)
        ids, codes, distribution = rounded(exact)
        return Judged.of(distribution, SparseEntries(ids, codes))
