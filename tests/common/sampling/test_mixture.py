"""Output aggregation of one side's documents."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from common.sampling.mixture import aggregate_documents

GENERATOR = torch.Generator().manual_seed(4)
LOGITS = 3 * torch.randn(4, 1_000, generator=GENERATOR)
SCORES = np.array([0.5, -1.0, 2.0, 0.0])


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_is_equation_2(temperature: float) -> None:
    mixture = aggregate_documents(LOGITS, SCORES, temperature, 1_000)
    rows = softmax(LOGITS.double().numpy() / temperature, axis=1)
    assert np.allclose(mixture.probabilities.numpy(), softmax(SCORES) @ rows, rtol=1e-5, atol=1e-9)
    assert mixture.probabilities.dtype == torch.float32
    assert mixture.probabilities.sum() == pytest.approx(1.0, abs=1e-5)
    assert np.allclose(mixture.weights, softmax(SCORES))
    assert mixture.evidence == np.float32(logsumexp(SCORES))


def test_the_mixture_of_all_documents_is_that_of_both_sides() -> None:
    """Eq. 4 is Eq. 2 with the documents in two blocks: the evidences carry all that is needed."""
    whole = aggregate_documents(LOGITS, SCORES, 1.0)
    one, other = (aggregate_documents(LOGITS[part], SCORES[part], 1.0) for part in (slice(0, 1), slice(1, 4)))
    eta = softmax([one.evidence, other.evidence])
    both = eta[0] * one.probabilities + eta[1] * other.probabilities
    assert torch.allclose(both.float(), whole.probabilities, atol=1e-6)


def test_temperature_zero_keeps_the_distribution() -> None:
    cold, plain = (aggregate_documents(LOGITS, SCORES, temperature) for temperature in (0.0, 1.0))
    assert torch.equal(cold.probabilities, plain.probabilities)


def test_padding_of_the_output_layer_is_no_token() -> None:
    padded = torch.cat([LOGITS, torch.full((4, 24), 50.0)], dim=1)
    cut = aggregate_documents(padded, SCORES, 1.0, 1_000)
    assert torch.equal(cut.probabilities, aggregate_documents(LOGITS, SCORES, 1.0, 1_000).probabilities)


def test_logits_are_not_changed() -> None:
    before = LOGITS.clone()
    aggregate_documents(LOGITS, SCORES, 0.5)
    assert torch.equal(LOGITS, before)


def test_half_precision_models() -> None:
    mixture = aggregate_documents(LOGITS.to(torch.bfloat16), SCORES, 1.0)
    exact = aggregate_documents(LOGITS.to(torch.bfloat16).float(), SCORES, 1.0)
    assert torch.equal(mixture.probabilities, exact.probabilities)


def test_extreme_scores_are_stable() -> None:
    mixture = aggregate_documents(LOGITS, np.array([5_000.0, 4_000.0, -9_000.0, 5_000.0]), 1.0)
    assert mixture.weights.tolist() == [0.5, 0.0, 0.0, 0.5]
    assert mixture.evidence == np.float32(5_000 + np.log(2))


class TestContributions:
    def test_are_shares_of_the_token(self) -> None:
        mixture = aggregate_documents(LOGITS, SCORES, 1.0)
        rows = torch.softmax(LOGITS.double(), -1).numpy()
        for token in (0, 500, 999):
            expected = softmax(SCORES) * rows[:, token]
            shares = mixture.contributions(token)
            assert shares == pytest.approx(expected / expected.sum(), rel=1e-5)
            assert shares.sum() == pytest.approx(1.0)

    def test_of_an_impossible_token(self) -> None:
        """The target may come from the other side alone."""
        logits = torch.tensor([[0.0, 0.0, float("-inf")]])
        assert aggregate_documents(logits, np.zeros(1), 1.0).contributions(2).tolist() == [0.0]


@pytest.mark.parametrize(
    ("logits", "scores", "vocabulary"),
    [
        (torch.zeros(0, 5), np.zeros(0), 5),
        (torch.zeros(2, 5), np.zeros(3), 5),
        (torch.zeros(5), np.zeros(5), 5),
        (torch.zeros(2, 5), np.zeros(2), 6),
        (torch.zeros(2, 5), np.array([0.0, np.nan]), 5),
    ],
)
def test_refuses_what_does_not_fit(logits: torch.Tensor, scores: NDArray[np.float64], vocabulary: int) -> None:
    with pytest.raises(ValueError):
        aggregate_documents(logits, scores, 1.0, vocabulary)
