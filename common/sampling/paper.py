"""The paper's sampler of one session: drafts, received drafts and their aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.algorithm1 import aggregate, draw_draft, most_probable
from common.sampling.draws import SeededDraws
from common.sampling.mixture import sharpened
from common.sampling.truncation import Distribution, renormalised, truncate
from proto.errors import malformed
from proto.fields import Side
from proto.payloads.raw import RawEntries
from proto.payloads.top_p import TopPEntries

PaperEntries = TopPEntries | RawEntries

_MOST_LISTED: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class PaperDraft:
    """A drafted token, what is sent of it, and the distribution that it was drawn from."""

    token: int
    entries: PaperEntries
    distribution: Distribution

    @property
    def listed(self) -> NDArray[np.integer]:
        """The most probable of its tokens, increasing."""
        ids = self.distribution.ids
        if len(ids) <= _MOST_LISTED:
            return ids
        return np.sort(ids[np.argpartition(self.distribution.probabilities, -_MOST_LISTED)[-_MOST_LISTED:]])


@dataclass(frozen=True, slots=True)
class Outcome:
    """The target token and whether each draft was it (Algorithm 1: x, S^l, S^r)."""

    token: int
    device_accepted: bool
    cloud_accepted: bool


class PaperSampler:
    """Draws and aggregates the drafts of one answer; the same settings on both sides.

    `seed` has 64 bits. `vocabulary` counts the tokenizer's tokens. Codec `raw` sends the whole distribution:
    `top_p` counts for `top-p` alone. Temperature 0 takes the most probable token in place of every draw.
    """

    def __init__(
        self, seed: int, temperature: float, top_p: float, codec: Literal["top-p", "raw"], vocabulary: int
    ) -> None:
        if not 0.0 < top_p <= 1.0:
            raise ValueError(f"top_p must be above 0 and at most 1, not {top_p}")
        self._seed = seed
        self._temperature = temperature
        self._top_p = top_p
        self._codec = codec
        self._vocabulary = vocabulary

    def draft(self, side: Side, position: int, probabilities: torch.Tensor) -> PaperDraft:
        """A draft from `side`'s mixture, float [vocab], which is sharpened to the session's temperature first.

        Raises `ValueError` for another shape and for a mixture without a positive probability.
        """
        if probabilities.shape != (self._vocabulary,):
            raise ValueError(f"a mixture must be [{self._vocabulary}], not {tuple(probabilities.shape)}")
        probabilities = sharpened(probabilities, self._temperature)
        if self._codec == "raw":
            return self._raw_draft(side, position, probabilities.to(torch.float32).cpu().numpy())
        ids, weights = truncate(probabilities, self._top_p)
        distribution = renormalised(ids, weights)
        token = self._draw(side, position, distribution)
        choice = int(np.searchsorted(ids, token))
        return PaperDraft(token, TopPEntries(ids, weights, choice), distribution)

    def receive(self, side: Side, position: int, entries: PaperEntries) -> PaperDraft:
        """The draft that `side` sent. Raises `ProtocolError` for a token that the seed doesn't draw."""
        if isinstance(entries, RawEntries) != (self._codec == "raw"):
            raise malformed(f"the session's codec is {self._codec}")
        if isinstance(entries, RawEntries):
            ids: NDArray[np.integer] = np.arange(len(entries.probabilities))
            distribution, told = renormalised(ids, entries.probabilities), entries.token
        else:
            distribution = renormalised(entries.ids, entries.weights)
            told = int(entries.ids[entries.choice])
        if told != self._draw(side, position, distribution):
            raise malformed("the drafted token is not the one that the session's seed draws")
        return PaperDraft(told, entries, distribution)

    def aggregate(self, position: int, device: PaperDraft, cloud: PaperDraft, eta_device: float) -> Outcome:
        """The target, by Algorithm 1; at temperature 0 the argmax of the mixture of what was sent."""
        if self._temperature > 0:
            token = aggregate(
                device.token,
                device.distribution,
                cloud.token,
                cloud.distribution,
                eta_device,
                SeededDraws(self._seed, position),
            )
        else:
            token = most_probable(device.distribution, cloud.distribution, eta_device)
        return Outcome(token, token == device.token, token == cloud.token)

    def _raw_draft(self, side: Side, position: int, probabilities: NDArray[np.float32]) -> PaperDraft:
        distribution = renormalised(np.arange(len(probabilities)), probabilities)
        token = self._draw(side, position, distribution)
        return PaperDraft(token, RawEntries(probabilities, token), distribution)

    def _draw(self, side: Side, position: int, distribution: Distribution) -> int:
        if self._temperature > 0:
            return draw_draft(side, distribution, SeededDraws(self._seed, position))
        return int(distribution.ids[distribution.probabilities.argmax()])
