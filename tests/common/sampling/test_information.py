"""Information: by how much documents move a prediction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import rel_entr, softmax

from common.sampling.grid import GRID
from common.sampling.information import MOST, information

LOGITS = 3 * torch.randn(5, 1_000, generator=torch.Generator().manual_seed(4))


def test_is_the_divergence_from_the_row_without_a_document() -> None:
    rows = softmax(LOGITS.double().numpy(), axis=1)
    exact = rel_entr(rows[:-1], rows[-1:]).sum(axis=1)
    found = information(LOGITS)
    assert np.abs(found - exact).max() <= 0.51 * GRID
    assert (found % GRID == 0).all()


def test_a_document_that_changes_nothing_tells_nothing() -> None:
    assert information(LOGITS[[4, 4, 4]]).tolist() == [0.0, 0.0]


def test_a_document_is_worth_the_same_beside_others() -> None:
    together = information(LOGITS)
    assert [float(information(LOGITS[[row, 4]])[0]) for row in range(4)] == together.tolist()


def test_what_was_impossible_before_stays_a_number() -> None:
    rows = torch.zeros(3, 4)
    rows[0, 1] = rows[2, 0] = -torch.inf  # the document rules one token out, no document another
    found = information(rows)
    assert found.tolist() == [MOST, MOST]
    assert information(rows[[0, 1]])[0] == pytest.approx(np.log(4 / 3), abs=GRID)
    rows[:2, 1] = -200.0  # a probability that is none in float32, of a token that is impossible without a document
    rows[2, 1] = -torch.inf
    assert np.isfinite(information(rows)).all()
