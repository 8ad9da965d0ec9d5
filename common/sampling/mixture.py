"""Output aggregation of one side: its documents' next-token distributions become one mixture (DRAGON Eq. 2).

p_t = Σ_d w_d softmax(logits_d / temperature),   w = softmax_d R(d, x_<t),   log h_t = logsumexp_d R(d, x_<t)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Mixture:
    """One side's next-token distribution and where it comes from."""

    probabilities: torch.Tensor  # float32 [vocab]
    rows: torch.Tensor  # float32 [docs, vocab], one distribution per document
    weights: NDArray[np.float64]  # [docs], sum 1
    evidence: float  # log h_t, exact in float32

    def contributions(self, token: int) -> NDArray[np.float64]:
        """Each document's share of the token's probability, [docs]: sum 1, or all 0 if that is 0."""
        joint = self.weights * self.rows[:, token].to(torch.float64).cpu().numpy()
        total = float(joint.sum())
        shares: NDArray[np.float64] = joint / total if total > 0 else joint
        return shares


def aggregate_documents(
    logits: torch.Tensor, scores: NDArray[np.float64], temperature: float, vocabulary: int | None = None
) -> Mixture:
    """The mixture of `logits` [docs, >= vocabulary] with document `scores` R(d, x_<t) [docs].

    Models pad their output layer; columns from `vocabulary` on are no tokens and are cut. At temperature 0
    the mixture is that of temperature 1: the most probable token is taken from it later.
    Raises `ValueError` for shapes that don't fit, no document, and scores that are not finite.
    """
    if logits.ndim != 2 or not len(logits) or scores.shape != logits.shape[:1]:
        raise ValueError(f"logits {tuple(logits.shape)} and scores {scores.shape} must both be of 1 document or more")
    if vocabulary is not None and logits.shape[1] < vocabulary:
        raise ValueError(f"logits for {logits.shape[1]} tokens don't cover a vocabulary of {vocabulary}")
    if not np.isfinite(scores).all():
        raise ValueError("document scores must be finite")
    highest = float(scores.max())
    exponentials = np.exp(scores - highest)  # Appendix A.1
    total = float(exponentials.sum())
    weights = exponentials / total
    scaled = logits[:, :vocabulary].to(torch.float32)
    if temperature > 0 and temperature != 1:
        scaled = scaled / temperature
    rows = torch.softmax(scaled, dim=-1)
    mixing = torch.from_numpy(weights).to(device=rows.device, dtype=torch.float32)
    return Mixture(torch.mv(rows.T, mixing), rows, weights, _evidence(highest, total))


def evidence_of(scores: NDArray[np.float64]) -> float:
    """log h_t = logsumexp of document scores [docs] (Appendix A.1), rounded to float32 as it travels."""
    highest = float(scores.max())
    return _evidence(highest, float(np.exp(scores - highest).sum()))


def _evidence(highest: float, total: float) -> float:
    return float(np.float32(highest + np.log(total)))
