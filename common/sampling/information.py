"""Information that documents bring: how far each one moves the model's prediction (after CAD and PCED).

A document that says nothing about the next token leaves the model where it was without any; one that holds the fact
moves it far. So this tells at every position whose word counts, without training and without a second model.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from common.sampling.grid import on_grid

MOST: Final = 64.0
"""Of a document that makes certain what the model thought impossible: finite, so that it stays a weight."""


def information(logits: torch.Tensor) -> NDArray[np.float64]:
    """KL(p_d ‖ p) of each document, [docs], in nats: of the prediction with it from the one without any.

    `logits` `[docs + 1, vocab]` are one row for each document, and last the row that has none.
    """
    logs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    with_document, without = logs[:-1], logs[-1:]
    # Where a row rules a token out, its share of the sum is 0; where only the other does, no number is large enough.
    likely = with_document.exp()
    shares = torch.where(likely == 0.0, 0.0, likely * (with_document - without))
    nats = shares.sum(dim=-1, dtype=torch.float64).clamp(0.0, MOST)
    return on_grid(nats.cpu().numpy())
