"""Information: by how much documents move a prediction."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax, rel_entr, softmax

from common.sampling.mixture import GRID, MOST, _told_by_accelerator, _told_by_processor, distributions, information

LOGITS = 3 * torch.randn(5, 1_000, generator=torch.Generator().manual_seed(4))


def test_is_the_divergence_from_the_row_without_a_document() -> None:
    rows = softmax(LOGITS.double().numpy(), axis=1)
    exact = rel_entr(rows[:-1], rows[-1:]).sum(axis=1)
    found = information(LOGITS)
    assert np.abs(found - exact).max() <= 0.51 * GRID
    assert (found % GRID == 0).all()


def divergences(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """The definition, in float64."""
    logs = log_softmax(logits.astype(np.float64), axis=1)
    with np.errstate(invalid="ignore", over="ignore"):
        shares = np.where(np.isneginf(logs[:-1]), 0.0, np.exp(logs[:-1]) * (logs[:-1] - logs[-1:]))
    return np.asarray(shares.sum(axis=1).clip(0.0, MOST))


@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 24, 255, 256, 257, 1_001, 4_097]),
    st.floats(0.0, 5.0),
    st.sampled_from([0.0, 0.1, 3.0]),
    st.sampled_from([0.0, 40.0, 3_000.0]),
    st.booleans(),
)
@example(1, 151_936, 5.0, 3.0, 40.0, True)
def test_it_is_its_definition(
    seed: int, size: int, spread: float, apart: float, offset: float, impossible: bool
) -> None:
    """Of rows that differ much or not at all, by a number that is common to all tokens, and by what they rule out."""
    generator = np.random.default_rng(seed)
    logits = spread * generator.normal(size=(1, size)) + apart * generator.normal(size=(4, size))
    ruled_out = impossible & (generator.random((4, size)) < 0.1)
    ruled_out[:, 0] = False
    rows = (logits + np.rint(offset * generator.normal(size=(4, 1)))).astype(np.float32)
    rows[ruled_out] = -np.inf
    told = torch.from_numpy(rows)
    found = information(told)
    assert np.abs(found - divergences(rows)).max() <= 0.55 * GRID + 1e-6 * offset
    assert found.tobytes() == information(told, distributions(told)).tobytes()


def test_an_accelerator_tells_what_a_processor_does() -> None:
    logits = LOGITS.clone()
    logits[0, :9] = logits[4, 5:20] = -torch.inf
    for last in (4, 3):
        which = [0, 1, 2, last]
        rows, offsets = distributions(logits[which])[:-1], torch.arange(3).double()
        expected = _told_by_processor(rows, logits[which], offsets)
        assert np.allclose(_told_by_accelerator(rows, logits[which], offsets), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("row", [1, 4])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_broken_row_tells_no_number(row: int, broken: float) -> None:
    logits = LOGITS.clone()
    logits[row, 77] = broken
    assert np.isnan(information(logits)).tolist() == [row in (4, document) for document in range(4)]


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
