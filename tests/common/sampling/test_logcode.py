"""The tensor twin of the 16-bit logarithmic code."""

from __future__ import annotations

import numpy as np
import torch

from common.sampling.logcode import dequantise, quantise
from proto import logcode


def large_mixture(spread: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.softmax(spread * torch.randn(151_936, generator=generator), dim=-1)


def test_every_code_has_the_bits_of_the_wire() -> None:
    codes = np.arange(2**16)
    values = dequantise(torch.from_numpy(codes.astype(np.uint16))).numpy()
    assert np.array_equal(values, logcode.decode(codes.astype(np.uint16)))


def test_rounds_like_the_wire() -> None:
    generator = np.random.default_rng(1)
    probabilities = np.exp2(-generator.uniform(0, 34, 100_000)).astype(np.float32)
    expected = logcode.encode(probabilities).astype(int)
    difference = np.abs(quantise(torch.from_numpy(probabilities)).numpy().astype(int) - expected)
    assert difference.max() <= 1
    assert difference.mean() < 0.005  # near the middle between two codes only


def test_every_value_is_its_own_code() -> None:
    codes = torch.arange(2**16, dtype=torch.int32).to(torch.uint16)
    assert torch.equal(quantise(dequantise(codes)), codes)


def test_relative_error() -> None:
    probabilities = torch.exp2(-31.99 * torch.rand(100_000, generator=torch.Generator().manual_seed(2)))
    rounded = dequantise(quantise(probabilities))
    assert ((rounded - probabilities).abs() / probabilities).max() <= 1.01 * logcode.RELATIVE_ERROR


def test_what_is_no_probability_is_zero() -> None:
    values = torch.tensor([0.0, -0.0, -0.5, float("nan"), 2.0**-40, 1.0, 1.0000001, 2.0**-149])
    assert quantise(values).tolist() == [0, 0, 0, 0, 0, logcode.LARGEST, logcode.LARGEST, 0]


def test_the_mixture_is_left_alone() -> None:
    mixture = large_mixture(1.0)
    before = mixture.clone()
    quantise(mixture)
    assert torch.equal(mixture, before)


def test_total_variation_of_a_large_vocabulary() -> None:
    """The law of the answer is that of the rounded mixtures: it must not be far from the exact ones."""
    for spread in (0.5, 2.0, 4.0):
        exact = large_mixture(spread).to(torch.float64)
        exact /= exact.sum()
        rounded = dequantise(quantise(exact))
        distance = 0.5 * (rounded / rounded.sum() - exact).abs().sum()
        assert distance < 1e-4
