"""The noise is the same bits everywhere, exponential, and unrelated between seeds, positions and tokens."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from common.sampling.noise import (
    Purpose,
    VocabularyNoise,
    exponential,
    exponential_from_key,
    position_key,
    uniform,
)

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
SEED = 0x0123456789ABCDEF
GOLDEN_NOISE = [0x3F62FC7A, 0x3F01E3D1, 0x404E3800, 0x3E8488FF]
GOLDEN_UNIFORM = "0x1.ca7da8d24617dp-1"
SEEDS = st.integers(0, WORD - 1)
# Fixed seeds make every statistical test deterministic; its noise was not chosen by the result.
SIGNIFICANCE = 1e-4


def bits(noise: NDArray[np.float32]) -> list[int]:
    return [int(word) for word in noise.view(np.uint32)]


def finaliser(word: int) -> int:
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % WORD
    word = (word ^ word >> 27) * 0x94D049BB133111EB % WORD
    return word ^ word >> 31


def unmixed(word: int) -> int:
    """The word whose finaliser is `word`."""
    for bits_, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        word ^= word >> bits_ ^ word >> 2 * bits_
        word = word * pow(factor, -1, WORD) % WORD
    return word


def seed_with_key(key: int) -> int:
    """The seed whose key at position 0 is `key`."""
    return (unmixed(unmixed(key)) - GOLDEN) % WORD


def grid(positions: int, tokens: int, seed: int = SEED) -> NDArray[np.float32]:
    """[positions, tokens]"""
    keys = np.array([position_key(seed, t) for t in range(positions)], dtype=np.uint64)
    return exponential_from_key(keys[:, None], np.arange(tokens))


class TestBounds:
    """Which tokens may be the fastest is told by integers alone, on any torch device."""

    @given(SEEDS, st.integers(0, 2**20), st.integers(1, 700))
    def test_no_speed_is_above_its_bound(self, seed: int, position: int, vocabulary: int) -> None:
        probabilities = torch.rand(vocabulary, generator=torch.Generator().manual_seed(vocabulary))
        bounds = VocabularyNoise(vocabulary).speed_bounds(probabilities, seed, position).numpy().astype(float)
        noise = exponential(seed, position, np.arange(vocabulary)).astype(float)
        speeds = probabilities.numpy() / noise
        assert (speeds <= bounds * (1 + 3e-7)).all()
        # -ln u is at most (1 - u) / u: a bound is close where a token is fast
        assert (bounds * np.exp(-noise) <= speeds * (1 + 1e-6 + 2.0**-30 / noise)).all()

    def test_the_winners_are_among_the_highest_bounds(self) -> None:
        noise = VocabularyNoise(151_936)
        even = torch.full((151_936,), 1 / 151_936)
        for position in range(3):
            bounds = noise.speed_bounds(even, SEED, position)
            fastest = exponential(SEED, position, np.arange(151_936)).argsort()[:32]
            assert set(fastest.tolist()) <= set(torch.topk(bounds, 33).indices.tolist())


class TestSameBits:
    def test_golden(self) -> None:
        """Another machine, library or release must not change an answer."""
        assert bits(exponential(SEED, 17, [0, 1, 62_768, 151_935])) == GOLDEN_NOISE
        assert uniform(SEED, 17, Purpose.CHOICE).hex() == GOLDEN_UNIFORM

    @given(SEEDS, st.integers(0, 2**20), st.integers(0, 2**24))
    def test_is_the_logarithm_of_the_hash(self, seed: int, position: int, token: int) -> None:
        word = finaliser((position_key(seed, position) + token * GOLDEN) % WORD)
        expected = -math.log((word >> 11 | 1) / 2**53)
        assert float(exponential(seed, position, [token])[0]) == pytest.approx(expected, rel=2**-23)

    @pytest.mark.parametrize(("word", "unit"), [(0, 2.0**-53), (WORD - 1, 1 - 2.0**-53)])
    def test_ends_of_the_range(self, word: int, unit: float) -> None:
        """No hash gives a noise of 0 (an infinite speed) or an infinite one."""
        seed = seed_with_key(unmixed(word))
        expected = np.float32(-math.log(unit))
        assert exponential(seed, 0, [0])[0] == expected
        bound = VocabularyNoise(1).speed_bounds(torch.ones(1), seed, 0).item()
        assert max(1.0, 1.0 / float(expected)) * (1 - 3e-7) <= bound < float("inf")


class TestIsExponential:
    @pytest.mark.parametrize("position", [0, 1, 1_000_000])
    def test_over_tokens(self, position: int) -> None:
        noise = exponential(SEED, position, np.arange(100_000)).astype(float)
        assert stats.kstest(noise, "expon").pvalue > SIGNIFICANCE

    @pytest.mark.parametrize("token", [0, 1, 151_935])
    def test_over_positions(self, token: int) -> None:
        keys = np.array([position_key(SEED, t) for t in range(50_000)], dtype=np.uint64)
        assert stats.kstest(exponential_from_key(keys, [token]).astype(float), "expon").pvalue > SIGNIFICANCE

    def test_over_neighbouring_seeds(self) -> None:
        keys = np.array([position_key(seed, 5) for seed in range(50_000)], dtype=np.uint64)
        assert stats.kstest(exponential_from_key(keys, [7]).astype(float), "expon").pvalue > SIGNIFICANCE

    def test_smallest_of_a_vocabulary(self) -> None:
        """Winners come from the tail near 0: there V times the minimum is Exp(1) too."""
        assert stats.kstest(2_000 * grid(1_500, 2_000).min(axis=1).astype(float), "expon").pvalue > SIGNIFICANCE

    def test_winner_is_uniform(self) -> None:
        winners = np.bincount(grid(40_000, 50).argmin(axis=1), minlength=50)
        assert stats.chisquare(winners).pvalue > SIGNIFICANCE


class TestIndependence:
    def test_neighbours_are_uncorrelated(self) -> None:
        rank = np.exp(-grid(600, 600).astype(float))
        seeds = np.exp(-grid(600, 600, SEED + 1).astype(float))
        for one, other in (
            (rank[:, :-1], rank[:, 1:]),
            (rank[:-1], rank[1:]),
            (rank[1:, :-1], rank[:-1, 1:]),
            (rank, seeds),
            (rank[:-1], seeds[1:]),
        ):
            assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 4 / math.sqrt(one.size)

    def test_pairs_fill_the_square(self) -> None:
        """Dependence that a correlation does not see: (token, next token), (position, next position)."""
        cells = np.minimum((np.exp(-grid(500, 500).astype(float)) * 16).astype(int), 15)
        for one, other in ((cells[:, :-1], cells[:, 1:]), (cells[:-1], cells[1:])):
            counts = np.bincount((16 * one + other).ravel(), minlength=256)
            assert stats.chisquare(counts).pvalue > SIGNIFICANCE

    def test_keys_are_distinct(self) -> None:
        keys = {position_key(seed, position) for seed in range(300) for position in range(300)}
        assert len(keys) == 300 * 300


class TestUniform:
    def test_each_purpose_is_uniform_and_apart(self) -> None:
        draws = np.array([[uniform(SEED, t, purpose) for purpose in Purpose] for t in range(10_000)])
        assert ((draws > 0) & (draws < 1)).all()
        for column in draws.T:
            assert stats.kstest(column, "uniform").pvalue > SIGNIFICANCE
        correlation = np.corrcoef(np.hstack([draws[:-1], draws[1:]]), rowvar=False)
        np.fill_diagonal(correlation, 0)
        assert np.abs(correlation).max() < 4.5 / 100

    def test_is_not_the_race_noise(self) -> None:
        drawn = {uniform(SEED, 3, purpose) for purpose in Purpose}
        raced = np.exp(-exponential(SEED, 3, np.arange(100)).astype(float))
        assert all(abs(u - v) > 1e-7 for u in drawn for v in raced)

    def test_every_draw_counts_once(self) -> None:
        draws = sorted(uniform(seed, t, p) for seed in (1, 2) for t in range(500) for p in Purpose)
        assert all(low < high for low, high in pairwise(draws))
