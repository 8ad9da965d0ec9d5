"""One side's aggregation: a mixture of its documents' next-token distributions (DRAGON Eq. 2).

p_t = Σ_d w_d softmax(logits_d),   w = softmax_d R(d, x_<t),   log h_t = logsumexp_d R(d, x_<t)

The temperature comes later: it sharpens the mixture of both sides' documents, see `common.sampling.race`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.compiled import add_shares, divergence, softmax_of


@dataclass(frozen=True, slots=True)
class Weights:
    shares: NDArray[np.float64]  # [docs], sum 1
    evidence: float  # log h_t, exact in float32


def weigh(scores: NDArray[np.float64]) -> Weights:
    """Weights from document scores R(d, x_<t) [docs] (Appendix A.1).

    Raises `ValueError` for no document and for scores that are not finite.
    """
    if scores.ndim != 1 or not len(scores):
        raise ValueError(f"scores {scores.shape} must be of 1 document or more")
    shares = np.empty(len(scores))
    evidence = softmax_of(np.ascontiguousarray(scores, np.float64), shares)
    if math.isnan(evidence):
        raise ValueError("document scores must be finite")
    return Weights(shares, float(np.float32(evidence)))


def evidence_of(scores: NDArray[np.float64]) -> float:
    """log h_t = logsumexp of document scores [docs] (Appendix A.1), in float32 precision."""
    return weigh(scores).evidence


def distributions(logits: torch.Tensor, memory: torch.Tensor | None = None) -> torch.Tensor:
    """Next-token distributions of `logits` `[rows, vocab]`, in float32, optionally in `memory`."""
    return torch.softmax(logits, dim=-1, dtype=torch.float32, out=memory)


def mix(logits: torch.Tensor, weights: Sequence[Weights]) -> tuple[torch.Tensor, torch.Tensor]:
    """Mixtures `[mixtures, vocab]` from `logits` `[rows, vocab]`, and the rows' distributions.

    Each mixture takes as many consecutive rows as its weights have documents. All are float32. Raises `ValueError` for
    shapes that don't fit.
    """
    counts = [len(each.shares) for each in weights]
    if logits.ndim != 2 or sum(counts) != len(logits) or not counts:
        raise ValueError(f"logits {tuple(logits.shape)} don't fit the weights of {counts} documents")
    rows = distributions(logits)
    return mixed(rows.split(counts), weights), rows


def mixed(rows: Sequence[torch.Tensor], weights: Sequence[Weights]) -> torch.Tensor:
    """Float32 mixtures `[mixtures, vocab]` of documents' distributions `[docs, vocab]`.

    Raises `ValueError` if a mixture's rows don't match its weights.
    """
    if (there := [len(each) for each in rows]) != (counts := [len(each.shares) for each in weights]):
        raise ValueError(f"{there} rows don't fit the weights of {counts} documents")
    shares = [each.shares.astype(np.float32) for each in weights]
    return _mixed_by_processor(rows, shares) if rows[0].device.type == "cpu" else _mixed_by_accelerator(rows, shares)


# Document by document: a matrix product's order of sums depends on their number.
def _mixed_by_processor(rows: Sequence[torch.Tensor], shares: Sequence[NDArray[np.float32]]) -> torch.Tensor:
    mixtures = np.empty((len(rows), rows[0].shape[1]), np.float32)
    for each, own, mixture in zip(rows, shares, mixtures, strict=True):
        add_shares(each.contiguous().numpy(), own, mixture)
    return torch.from_numpy(mixtures)


def _mixed_by_accelerator(rows: Sequence[torch.Tensor], shares: Sequence[NDArray[np.float32]]) -> torch.Tensor:
    weights = torch.from_numpy(np.concatenate(shares)).to(rows[0].device)
    weighted = torch.cat(list(rows)) * weights[:, None]
    counts = [len(each) for each in rows]
    if len(set(counts)) == 1:
        return _sum(weighted.view(len(counts), counts[0], -1))
    return torch.cat([_sum(part[None]) for part in torch.split(weighted, counts)])


def _sum(rows: torch.Tensor) -> torch.Tensor:
    total = rows[:, 0].clone()
    for document in range(1, rows.shape[1]):
        total += rows[:, document]
    return total


@dataclass(frozen=True, slots=True, eq=False)
class Attribution:
    """Each document's share of a draft's listed tokens.

    A document contributes the probability beyond the model's without any document. The rest belongs to none: the model
    would have said it anyway.
    """

    ids: NDArray[np.int64]  # [n], increasing
    probabilities: NDArray[np.float32]  # [docs, n], one distribution per document
    weights: NDArray[np.float64]  # [docs], sum 1
    without: NDArray[np.float32] | None = None  # [n], without a document; None: unknown, counted as 0

    def contributions(self, token: int) -> NDArray[np.float64]:
        """Each document's share of a token, then that of no document, [docs + 1].

        The sum is 1, or 0 if the probability is 0. An unlisted token is improbable; its shares are the weights.
        """
        place = int(self.ids.searchsorted(token))
        shares = np.zeros(len(self.weights) + 1)
        if place == len(self.ids) or int(self.ids[place]) != token:
            shares[:-1] = self.weights
            return shares
        chances = self.probabilities[:, place].astype(np.float64)
        if self.without is not None:
            anyway = np.minimum(chances, float(self.without[place]))
            shares[-1] = (self.weights * anyway).sum()
            chances -= anyway
        shares[:-1] = self.weights * chances
        total = float(shares.sum())
        return shares / total if total > 0 else shares


def attribute(
    rows: torch.Tensor, weights: Weights, ids: NDArray[np.integer], without: torch.Tensor | None = None
) -> Attribution:
    """The shares of documents with distributions `rows` `[docs, vocab]` in tokens `ids` [n].

    `ids` increase. `without` [vocab] is the distribution without any document, if known.
    """
    listed = ids.astype(np.int64)
    anyway = None if without is None else _at(without, listed)
    return Attribution(listed, _at(rows, listed), weights.shares, anyway)


def _at(numbers: torch.Tensor, ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """`numbers` are `[..., vocab]`, the result is `[..., n]`."""
    if numbers.device.type == "cpu":
        return np.asarray(numbers.numpy()[..., ids])
    return np.asarray(numbers[..., torch.from_numpy(ids).to(numbers.device)].cpu().numpy())


def sharpened(probabilities: torch.Tensor, temperature: float) -> torch.Tensor:
    """p ** (1 / temperature), renormalised, of [vocab]; unchanged at 0 and 1."""
    if temperature in (0.0, 1.0):
        return probabilities
    return torch.softmax(probabilities.log() / temperature, dim=-1)


# --- information
# Information from documents: how far each moves the model's prediction (after CAD and PCED).
#
# An uninformative document leaves it unchanged; one with the fact moves it far. So this shows at every position which
# document counts, without training or a second model.

GRID: Final = 2.0**-10
"""Scores are multiples of this. It changes a weight by less than a thousandth, and removes nearly all differences in
the last bits between two computations.
"""


def on_grid(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    rounded: NDArray[np.float64] = np.round(scores / GRID) * GRID
    return rounded


MOST: Final = 64.0
"""Score for making an impossible token certain: finite, so that it stays a weight."""


def information(logits: torch.Tensor, rows: torch.Tensor | None = None) -> NDArray[np.float64]:
    """KL(p_d ‖ p) of each document, [docs], in nats.

    `logits` `[docs + 1, vocab]` have one row per document, and a last row without documents. `rows` are their
    distributions, if known.
    """
    if rows is None:
        rows = distributions(logits)
    numbers = logits.float()
    # ln Σ exp of a row: the largest logit and the largest probability belong to the same token.
    sums = numbers.amax(dim=-1).double() - rows.amax(dim=-1).double().log()
    offsets = sums[:-1] - sums[-1]
    told = _told_by_processor if rows.device.type == "cpu" else _told_by_accelerator
    return on_grid(told(rows[:-1], numbers, offsets).clip(0.0, MOST))


def _told_by_processor(rows: torch.Tensor, logits: torch.Tensor, offsets: torch.Tensor) -> NDArray[np.float64]:
    documents = zip(rows.numpy(), logits.numpy()[:-1], offsets.tolist(), strict=True)
    without = logits.numpy()[-1]
    return np.array([divergence(row, own, without, offset) for row, own, offset in documents])


def _told_by_accelerator(rows: torch.Tensor, logits: torch.Tensor, offsets: torch.Tensor) -> NDArray[np.float64]:
    moved = logits[:-1].double() - logits[-1:].double() - offsets[:, None]
    # A token with probability 0 in the row has share 0, whatever its logits.
    shares = torch.where(rows == 0.0, 0.0, rows.double() * moved)
    return np.asarray(shares.sum(dim=-1).cpu().numpy())
