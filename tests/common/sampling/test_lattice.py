"""Reznik's quantiser: exact sums, the nearest lattice point, ties by id, and the same as its definition."""

from __future__ import annotations

from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from common.sampling.rejection import _LANES, quantise
from proto.messages import MOST_RESOLUTION

WIDE = 4 * _LANES  # from here on most of a vocabulary is left out of account


def literal(probabilities: NDArray[np.float64], resolution: int) -> list[int]:
    """The definition, token by token."""
    total = float(probabilities.sum())
    shares = [float(each) / total * resolution for each in probabilities]
    counts = [floor(share + 0.5) for share in shares]
    errors = [count - share for count, share in zip(counts, shares, strict=True)]
    excess = sum(counts) - resolution
    if excess > 0:
        for token in sorted(range(len(errors)), key=lambda token: (-errors[token], token))[:excess]:
            counts[token] -= 1
    else:
        for token in sorted(range(len(errors)), key=lambda token: (errors[token], token))[:-excess]:
            counts[token] += 1
    return counts


def softmax(size: int, spread: float, seed: int) -> NDArray[np.float64]:
    logits = spread * np.random.default_rng(seed).normal(size=size)
    weights = np.exp(logits - logits.max())
    return np.asarray(weights / weights.sum())


def test_golden() -> None:
    assert quantise(np.array([0.2, 0.3, 0.5]), 4).tolist() == [1, 1, 2]
    counts = quantise(np.array([0.2, 0.3, 0.5], np.float32), 4)
    assert counts.tolist() == [1, 1, 2] and counts.dtype == np.int64


@pytest.mark.parametrize(
    ("probabilities", "resolution", "counts"),
    [
        ([0.25, 0.25, 0.25, 0.25], 2, [0, 0, 1, 1]),  # half a unit each: all get one, the first two lose it
        ([0.25, 0.25, 0.25, 0.25], 1, [1, 0, 0, 0]),  # a quarter each: none gets one, the first gains it
        ([0.125] * 8, 3, [1, 1, 1, 0, 0, 0, 0, 0]),
        ([0.0, 0.5, 0.0, 0.5], 1, [0, 0, 0, 1]),
        ([3.0, 0.0, 1.0], 4, [3, 0, 1]),
        ([7.0], 5, [5]),
    ],
)
def test_ties_go_by_id(probabilities: list[float], resolution: int, counts: list[int]) -> None:
    assert quantise(np.array(probabilities), resolution).tolist() == counts


@given(
    st.lists(st.one_of(st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e-12]), st.floats(0, 1)), min_size=1, max_size=60),
    st.integers(1, MOST_RESOLUTION),
)
def test_it_is_its_definition(weights: list[float], resolution: int) -> None:
    probabilities = np.array([*weights, 0.125])
    counts = quantise(probabilities, resolution)
    assert counts.tolist() == literal(probabilities, resolution)
    assert counts.sum() == resolution and counts.min() >= 0


def coarse(seed: int) -> NDArray[np.float64]:
    """Probabilities with few values: most tokens that could get a unit are equal to others."""
    return np.asarray(np.exp(np.rint(np.random.default_rng(seed).normal(size=WIDE + 77))))


def nearly_equal(kinds: int) -> NDArray[np.float64]:
    """Neighbours just below a power of two, whose quotients are just above one: the division makes them equal."""
    steps = np.random.default_rng(kinds).integers(0, kinds, 2 * WIDE - 1)
    return np.asarray(1.99 + steps * 2.0**-52)


def crowded(resolution: int) -> NDArray[np.float64]:
    """More tokens with half a unit than there are units, and some of more with an error that is larger."""
    shares = np.repeat([1.5, 0.6, 0.55, 0.0], [resolution // 5, resolution - resolution // 5, resolution // 3, WIDE])
    return np.random.default_rng(resolution).permutation(shares)


def at_the_end(seed: int) -> NDArray[np.float64]:
    """All that counts is behind the last whole row."""
    return np.concatenate((np.full(WIDE, 1e-9), softmax(100, 1.0, seed)))


ADVERSARIAL = {
    "flat": np.ones(WIDE),
    "one-hot": np.eye(1, WIDE + 1, WIDE)[0],
    "two": np.array([0.5] + [0.0] * WIDE + [0.5]),
    "halves": np.repeat([1.0, 0.0], WIDE),
    "coarse": coarse(1),
    "two nearly equal": nearly_equal(2),
    "three nearly equal": nearly_equal(3),
    "crowded by 60": crowded(60),
    "crowded by all": crowded(MOST_RESOLUTION),
    "at the end": at_the_end(3),
    "subnormal": np.where(np.arange(WIDE) % 3 == 0, 5e-324, 1e-323),
    "beside subnormal": np.concatenate((np.full(WIDE, 5e-324), [1.0, 2.0])),
    "in one lane": np.where(np.arange(WIDE) % _LANES == 0, 1.0, 1e-6),
    "sorted": np.sort(softmax(WIDE, 3.0, 4)),
}


@pytest.mark.parametrize("resolution", [1, 2, 16, 60, 255, MOST_RESOLUTION])
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_it_is_its_definition_over_wide_vocabularies(name: str, resolution: int) -> None:
    assert quantise(ADVERSARIAL[name], resolution).tolist() == literal(ADVERSARIAL[name], resolution)


@pytest.mark.parametrize("spread", [0.0, 2.5, 8.0])
def test_it_is_its_definition_over_the_largest_vocabulary(spread: float) -> None:
    probabilities = softmax(151_936, spread, 6).astype(np.float32).astype(np.float64)
    for resolution in (16, MOST_RESOLUTION):
        assert quantise(probabilities, resolution).tolist() == literal(probabilities, resolution)


@given(st.sampled_from([3, 2048, 9000]), st.floats(0, 8), st.integers(0, 999), st.integers(1, MOST_RESOLUTION))
def test_nothing_is_nearer(size: int, spread: float, seed: int, resolution: int) -> None:
    """A unit that went from one token to another would never leave a smaller sum of squared errors."""
    probabilities = softmax(size, spread, seed)
    counts = quantise(probabilities, resolution)
    errors = counts - probabilities / probabilities.sum() * resolution
    assert counts.sum() == resolution
    assert np.abs(errors).max() < 1
    assert errors[counts > 0].max() - errors.min() <= 1 + 1e-9


@pytest.mark.parametrize(
    "probabilities",
    [[], [0.0, 0.0], [0.5, float("nan")], [0.5, -0.1], [1.0, float("inf")], [1e308, 1e308], [float("-inf"), 1.0]],
)
def test_what_is_no_distribution(probabilities: list[float]) -> None:
    with pytest.raises(ValueError, match="probabilities to quantise must"):
        quantise(np.array(probabilities), 4)


@pytest.mark.parametrize("resolution", [0, -3, MOST_RESOLUTION + 1])
def test_what_is_no_resolution(resolution: int) -> None:
    with pytest.raises(ValueError, match=f"must be 1 to {MOST_RESOLUTION}"):
        quantise(np.array([0.5, 0.5]), resolution)
