"""Information that documents bring: how far each one moves the model's prediction (after CAD and PCED).

A document that says nothing about the next token leaves the model where it was without any; one that holds the fact
moves it far. So this tells at every position whose word counts, without training and without a second model.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.compiled import divergence
from common.sampling.grid import on_grid
from common.sampling.mixture import distributions

MOST: Final = 64.0
"""Of a document that makes certain what the model thought impossible: finite, so that it stays a weight."""


def information(logits: torch.Tensor, rows: torch.Tensor | None = None) -> NDArray[np.float64]:
    """KL(p_d ‖ p) of each document, [docs], in nats: of the prediction with it from the one without any.

    `logits` `[docs + 1, vocab]` are one row for each document, and last the row that has none; `rows` are their
    distributions, if these are known.
    """
    if rows is None:
        rows = distributions(logits)
    numbers = logits.float()
    # ln Σ exp of a row: the largest logit and the largest probability are the same token's.
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
    # Where a row rules a token out its share is 0, however far that was moved.
    shares = torch.where(rows == 0.0, 0.0, rows.double() * moved)
    return np.asarray(shares.sum(dim=-1).cpu().numpy())
