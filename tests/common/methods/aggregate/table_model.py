"""A language model in a hash: distributions over a small vocabulary that depend on the whole prefix.

Both sides' documents agree on most of the mass, as documents on one question do, and differ in the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.values import View
from common.methods.paper.sampler import PaperSampler
from common.sampling.certificate import NO_EVIDENCE
from common.sampling.race import RaceSampler
from proto.codes import digest
from proto.messages import Side

EOS = 0


@dataclass(frozen=True)
class TableModel:
    """p(. | side, prefix) and the evidence of a side, drawn once per (seed, side, prefix)."""

    vocabulary: int
    seed: int
    disagreement: float = 0.3
    end: float = 0.02  # probability of EOS
    empty: frozenset[Side] = frozenset()  # sides without documents

    def distribution(self, side: Side, prefix: Sequence[int]) -> tuple[NDArray[np.float64], float]:
        return self._distribution(side, tuple(prefix))

    @lru_cache(maxsize=2**15)  # noqa: B019  # roll-backs and every other placement ask for the same again
    def _distribution(self, side: Side, prefix: tuple[int, ...]) -> tuple[NDArray[np.float64], float]:
        shared = np.random.default_rng((self.seed, digest(prefix)))
        own = np.random.default_rng((self.seed, digest(prefix), 1 if side == "device" else 2))
        common, private = (self._draw(generator) for generator in (shared, own))
        mixed = (1 - self.disagreement) * common + self.disagreement * private
        mixed = np.concatenate([[self.end], mixed[1:] / mixed[1:].sum() * (1 - self.end)])
        mixed.setflags(write=False)
        return mixed, NO_EVIDENCE if side in self.empty else float(np.float32(own.normal()))

    def mixture(self, prefix: Sequence[int]) -> NDArray[np.float64]:
        """The law of the answer's next token."""
        (device, log_h_device), (cloud, log_h_cloud) = (self.distribution(side, prefix) for side in ("device", "cloud"))
        weight = 1 / (1 + np.exp(log_h_cloud - log_h_device))
        result: NDArray[np.float64] = weight * device + (1 - weight) * cloud
        return result

    def _draw(self, generator: np.random.Generator) -> NDArray[np.float64]:
        return generator.dirichlet(np.full(self.vocabulary, 0.4))


@dataclass(frozen=True)
class TablePredictor:
    """One side's half of a `TableModel`, drafting with a real sampler."""

    model: TableModel
    side: Side
    aggregation: RaceSampler | PaperSampler

    def predict(self, position: int, prefix: Sequence[int]) -> tuple[View, float]:
        probabilities, evidence = self.model.distribution(self.side, prefix)
        tensor = torch.from_numpy(probabilities.astype(np.float32))
        return self.aggregation.drafted(position, tensor, None), evidence
