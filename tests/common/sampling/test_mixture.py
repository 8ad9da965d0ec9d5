"""Output aggregation of one side's documents."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax

from common.sampling.mixture import (
    Attribution,
    _mixed_by_accelerator,
    _mixed_by_processor,
    attribute,
    distributions,
    mix,
    mixed,
    sharpened,
    weigh,
)

GENERATOR = torch.Generator().manual_seed(4)
LOGITS = 3 * torch.randn(4, 1_000, generator=GENERATOR)
SCORES = np.array([0.5, -1.0, 2.0, 0.0])


def test_is_equation_2() -> None:
    (mixture,), rows = mix(LOGITS, [weigh(SCORES)])
    expected = softmax(LOGITS.double().numpy(), axis=1)
    assert np.allclose(mixture.numpy(), softmax(SCORES) @ expected, rtol=1e-5, atol=1e-9)
    assert np.allclose(rows.numpy(), expected, rtol=1e-5, atol=1e-9)
    assert mixture.dtype == torch.float32
    assert mixture.sum() == pytest.approx(1.0, abs=1e-5)
    assert np.allclose(weigh(SCORES).shares, softmax(SCORES))
    assert weigh(SCORES).evidence == np.float32(logsumexp(SCORES))


def test_the_mixture_of_all_documents_is_that_of_both_sides() -> None:
    """Eq. 4 is Eq. 2 with the documents in two blocks: the evidences carry all that is needed."""
    (whole,), _ = mix(LOGITS, [weigh(SCORES)])
    parts = [weigh(SCORES[:1]), weigh(SCORES[1:])]
    mixtures, _ = mix(LOGITS, parts)
    eta = softmax([part.evidence for part in parts])
    assert torch.allclose((eta[0] * mixtures[0] + eta[1] * mixtures[1]).float(), whole, atol=1e-6)


@pytest.mark.parametrize("counts", [(2, 2), (1, 3), (3, 1), (1, 1, 1, 1), (4,)])
def test_mixtures_of_many_answers_are_each_alone(counts: tuple[int, ...]) -> None:
    ends = np.cumsum([0, *counts])
    weights = [weigh(SCORES[start:stop]) for start, stop in pairwise(ends)]
    together, _ = mix(LOGITS, weights)
    for index, each in enumerate(weights):
        (alone,), _ = mix(LOGITS[ends[index] : ends[index + 1]], [each])
        assert torch.allclose(together[index], alone, rtol=1e-6, atol=0)


@pytest.mark.parametrize("counts", [(2, 2), (1, 3), (4,)])
def test_an_accelerator_adds_as_a_processor_does(counts: tuple[int, ...]) -> None:
    rows = torch.softmax(torch.cat([LOGITS] * 5, dim=1), dim=-1).split(counts)  # more tokens than are added at a time
    shares = [weigh(SCORES[:count]).shares.astype(np.float32) for count in counts]
    assert torch.equal(_mixed_by_accelerator(rows, shares), _mixed_by_processor(rows, shares))


def test_distributions_are_written_to_the_memory_that_is_given() -> None:
    memory = torch.full_like(LOGITS, -1.0)
    rows = distributions(LOGITS, memory)
    (expected,), fresh = mix(LOGITS, [weigh(SCORES)])
    assert torch.equal(rows, fresh)
    assert rows.data_ptr() == memory.data_ptr()
    (mixture,) = mixed([rows], [weigh(SCORES)])
    memory.zero_()  # by the next pass
    assert torch.equal(mixture, expected)


@pytest.mark.parametrize("size", [1, 3, 16, 257, 999])
def test_a_distribution_has_the_same_bits_beside_any_others(size: int) -> None:
    """Rows without a document stand between those of the documents."""
    together = distributions(LOGITS[:, :size], torch.empty(len(LOGITS), size))
    for row, made in zip(LOGITS[:, :size], together, strict=True):
        assert torch.equal(distributions(row[None]), made[None])


def test_refuses_rows_that_are_not_those_of_the_weights() -> None:
    with pytest.raises(ValueError, match="fit the weights"):
        mixed(LOGITS.split([1, 3]), [weigh(SCORES[:2]), weigh(SCORES[2:])])


def test_logits_are_not_changed() -> None:
    before = LOGITS.clone()
    mix(LOGITS, [weigh(SCORES)])
    assert torch.equal(LOGITS, before)


def test_half_precision_models() -> None:
    (mixture,), _ = mix(LOGITS.to(torch.bfloat16), [weigh(SCORES)])
    (exact,), _ = mix(LOGITS.to(torch.bfloat16).float(), [weigh(SCORES)])
    assert torch.equal(mixture, exact)


def test_extreme_scores_are_stable() -> None:
    weights = weigh(np.array([5_000.0, 4_000.0, -9_000.0, 5_000.0]))
    assert weights.shares.tolist() == [0.5, 0.0, 0.0, 0.5]
    assert weights.evidence == np.float32(5_000 + np.log(2))


@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
def test_sharpened_is_the_power(temperature: float) -> None:
    (mixture,), _ = mix(LOGITS, [weigh(SCORES)])
    exponent = 1 / temperature if temperature else 1.0
    expected = mixture.double() ** exponent
    assert torch.allclose(sharpened(mixture, temperature).double(), expected / expected.sum(), rtol=1e-4, atol=1e-9)


class TestAttribution:
    def listed(self, ids: list[int]) -> Attribution:
        weights = weigh(SCORES)
        return attribute(mix(LOGITS, [weights])[1], weights, np.asarray(ids))

    def test_are_shares_of_the_token(self) -> None:
        listed = self.listed([0, 500, 999])
        rows = torch.softmax(LOGITS.double(), -1).numpy()
        for token in (0, 500, 999):
            expected = softmax(SCORES) * rows[:, token]
            shares = listed.contributions(token)
            assert shares[:-1] == pytest.approx(expected / expected.sum(), rel=1e-5)
            assert shares[-1] == 0.0
            assert shares.sum() == pytest.approx(1.0)

    def test_what_the_model_says_anyway_is_no_document_s(self) -> None:
        """Of two documents one knows the token, one doesn't; without any, it has a tenth."""
        rows = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.05, 0.9]])
        weights = weigh(np.log([0.5, 0.5]))
        shares = attribute(rows, weights, np.asarray([0]), torch.tensor([0.1, 0.4, 0.5])).contributions(0)
        assert shares == pytest.approx(np.asarray([0.5 * 0.6, 0.0, 0.5 * (0.1 + 0.05)]) / 0.375)
        same = attribute(rows[:1], weigh(np.zeros(1)), np.asarray([0, 1]), rows[0])
        for token in (0, 1):
            assert same.contributions(token).tolist() == [0.0, 1.0]

    def test_of_a_token_that_is_not_listed(self) -> None:
        for token in (1, 600):
            assert self.listed([0, 500]).contributions(token)[:-1] == pytest.approx(softmax(SCORES))

    def test_of_an_impossible_token(self) -> None:
        """The target may come from the other side alone."""
        weights = weigh(np.zeros(1))
        _, rows = mix(torch.tensor([[0.0, 0.0, float("-inf")]]), [weights])
        assert attribute(rows, weights, np.asarray([2])).contributions(2).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("scores", [np.zeros(0), np.zeros((2, 2)), np.array([0.0, np.nan]), np.array([np.inf])])
def test_refuses_scores_that_weigh_nothing(scores: NDArray[np.float64]) -> None:
    with pytest.raises(ValueError):
        weigh(scores)


@pytest.mark.parametrize(("shape", "counts"), [((0, 5), []), ((2, 5), [3]), ((5,), [5]), ((4, 5), [1, 2])])
def test_refuses_what_does_not_fit(shape: tuple[int, ...], counts: list[int]) -> None:
    with pytest.raises(ValueError):
        mix(torch.zeros(shape), [weigh(np.zeros(count)) for count in counts])
