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

from common.sampling.compiled import (
    LINEAR_EXCESS,
    Purpose,
    VocabularyNoise,
    exponential,
    exponential_from_key,
    floor_log2,
    position_key,
    race_bounds,
    race_noise,
    raised,
    uniform,
)

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
SEED = 0x0123456789ABCDEF
GOLDEN_NOISE = [0x3F62FC7A, 0x3F01E3D1, 0x404E3800, 0x3E8488FF]
GOLDEN_TEMPERED = [0x3F6B53B3, 0x3F1F362D, 0x40112C1B, 0x3EC6CC5F]
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


class TestFloors:
    """Floors of the noise come from integers alone, on any torch device."""

    @given(st.lists(SEEDS, min_size=1, max_size=3), st.integers(0, 2**20), st.integers(1, 700))
    def test_no_noise_is_below_its_floor(self, seeds: list[int], position: int, vocabulary: int) -> None:
        floors = VocabularyNoise(vocabulary, "cpu").floors([position_key(seed, position) for seed in seeds]).numpy()
        for seed, floor in zip(seeds, floors.astype(float), strict=True):
            noise = exponential(seed, position, np.arange(vocabulary)).astype(float)
            assert (np.log2(noise) >= floor - 2e-5).all()
            # -ln u is at most (1 - u) / u: a floor is close where a token is fast
            close = np.log2(noise * np.exp(-noise)) - LINEAR_EXCESS - 2.0**-28 / noise - 2e-5
            assert (floor >= close)[noise > 1e-6].all()

    @pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0, 2.0])
    def test_are_in_the_compiled_bounds_of_a_race(self, temperature: float) -> None:
        key, memory = position_key(SEED, 4), np.empty(10_000, np.float32)
        mixture = torch.softmax(torch.randn(5_000, generator=torch.Generator().manual_seed(8)), dim=-1)
        compiled = race_bounds(mixture.numpy(), np.uint64(key), temperature, memory)
        floors = VocabularyNoise(5_000, "cpu").floors([key])[0]
        expected = floor_log2(mixture, add=LINEAR_EXCESS) - temperature * floors
        assert compiled == pytest.approx(expected.numpy(), abs=1e-4)

    def test_the_winners_are_among_the_lowest_floors(self) -> None:
        noise = VocabularyNoise(151_936, "cpu")
        for position in range(3):
            floors = noise.floors([position_key(SEED, position)])[0]
            fastest = exponential(SEED, position, np.arange(151_936)).argsort()[:32]
            assert set(fastest.tolist()) <= set(torch.topk(-floors, 40).indices.tolist())

    @given(st.lists(st.floats(2.0**-149, 2.0**127, width=32), min_size=1, max_size=20))
    def test_bits_are_nearly_a_logarithm(self, numbers: list[float]) -> None:
        values = np.asarray(numbers, dtype=np.float32)
        floors = floor_log2(torch.from_numpy(values)).numpy().astype(float)
        exact = np.log2(values.astype(float))
        assert (floors + LINEAR_EXCESS >= exact - 2e-5).all()
        assert (floors <= exact + 2e-5)[values >= 2.0**-126].all()


class TestTemperature:
    """E ** T is computed from IEEE operations alone, and is continuous in T."""

    @given(SEEDS, st.floats(0.01, 2.0))
    def test_is_the_power(self, seed: int, temperature: float) -> None:
        noise = exponential(seed, 3, np.arange(200))
        expected = noise.astype(float) ** temperature
        assert raised(noise, temperature) == pytest.approx(expected, rel=2e-7)
        assert (race_noise(seed, 3, np.arange(200), temperature) == raised(noise, temperature)).all()

    def test_ends(self) -> None:
        ids = np.arange(1000)
        assert (race_noise(SEED, 3, ids, 0.0) == 1).all()
        assert (race_noise(SEED, 3, ids, 1.0) == exponential(SEED, 3, ids)).all()
        assert raised(exponential(SEED, 3, ids), 1.0 + 1e-12) == pytest.approx(exponential(SEED, 3, ids), rel=2e-7)
        assert race_noise(SEED, 3, ids, 1e-9) == pytest.approx(1.0, abs=1e-7)
        extremes = np.asarray([2.0**-53, 37.0], dtype=np.float32)
        assert raised(extremes, 2.0) == pytest.approx(extremes.astype(float) ** 2, rel=2e-7)

    def test_one_temperature_each(self) -> None:
        noise = exponential(SEED, 3, np.arange(6))
        temperatures = np.asarray([0.0, 0.3, 0.7, 1.0, 1.5, 2.0])
        each = raised(noise, temperatures)
        for index, temperature in enumerate(temperatures.tolist()):
            assert each[index] == race_noise(SEED, 3, [index], temperature)[0]

    def test_golden(self) -> None:
        """Another machine, library or release must not change an answer."""
        assert bits(race_noise(SEED, 17, [0, 1, 62_768, 151_935], 0.7)) == GOLDEN_TEMPERED


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
        floor = VocabularyNoise(1, "cpu").floors([position_key(seed, 0)]).item()
        assert -158 <= floor <= min(math.log2(float(expected)), 0.0) + 2e-5


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
