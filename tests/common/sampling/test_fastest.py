"""The search for the fastest tokens finds what sorting all speeds finds, to the last bit, and asks for few of them."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from common.sampling import compiled
from common.sampling import race as module
from common.sampling.compiled import LINEAR_EXCESS, exponential, floor_log2, race_noise
from common.sampling.race import Found, Race, RaceKernel, Speeds, codes_in, codes_of, fastest, noise_of
from proto.codes import LARGEST, STEPS_PER_OCTAVE, TABLE, decode_probabilities, nearest

SEED = 0xFEDCBA9876543210


def direct(probabilities: torch.Tensor, depth: int, seed: int, position: int, temperature: float) -> Found:
    """The definition: every token's speed, fastest first, the lowest id of equals."""
    speeds = decode_probabilities(nearest(probabilities.numpy())) / race_noise(
        seed, position, np.arange(len(probabilities)), temperature
    )
    order = np.lexsort((np.arange(len(speeds)), -speeds))[:depth]
    ids = np.sort(order[speeds[order] > 0])
    return ids, speeds[ids]


def found(probabilities: torch.Tensor, depth: int, seed: int, position: int, temperature: float) -> Found:
    """The fastest tokens by compiled code, and by the search over torch's bounds as well."""
    kernel, races = RaceKernel(len(probabilities)), [Race(seed, position, temperature, depth)]
    (only,) = kernel.run(probabilities[None], races)
    (searched,) = fastest(kernel.bounds(probabilities[None], races), [depth], exact_speeds(probabilities, races[0]))
    assert same(only, searched)
    return only


def exact_speeds(probabilities: torch.Tensor, race: Race) -> Speeds:
    codes = nearest(probabilities.numpy())

    def speeds(_: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return decode_probabilities(codes[ids]) / race_noise(race.seed, race.position, ids, race.temperature)

    return speeds


def same(one: Found, other: Found) -> bool:
    return np.array_equal(one[0], other[0]) and one[1].tobytes() == other[1].tobytes()


def within_one_code() -> torch.Tensor:
    """512 probabilities that grow by less than a rounding step in all: one code, above every one of them."""
    code = 60_001
    value = float(decode_probabilities(np.array([code], np.uint16))[0])
    growing = torch.tensor(value, dtype=torch.float64) * torch.linspace(1 - 1e-4, 1 - 1e-6, 512, dtype=torch.float64)
    probabilities = growing.to(torch.float32)
    assert nearest(probabilities.numpy()).tolist() == [code] * 512
    return probabilities


MASSES = st.sampled_from([0.0, -1.0, 1e-38, 2.0**-32, 2.0**-31.999, 3e-10, 1e-6, 1e-3, 0.1, 0.10000001, 1.0, 3.0])
ODD = st.sampled_from([float("nan"), float("inf"), float("-inf")])


@st.composite
def vocabularies(draw: st.DrawFn) -> torch.Tensor:
    """Mixtures from flat to peaked, with exact ties, near ties within a code, zeros, and what is no probability."""
    size = draw(st.integers(1, 300))
    kind = draw(st.sampled_from(["drawn", "ties", "near ties", "odd"]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    if kind == "drawn":
        values = np.exp(random.normal(0, draw(st.sampled_from([0.0, 1e-5, 1.0, 8.0])), size))
    elif kind == "near ties":
        values = draw(MASSES) * (1 + 1e-4 * random.random(size))
    else:
        some = draw(st.lists(MASSES if kind == "ties" else MASSES | ODD, min_size=1, max_size=4))
        values = random.choice(some, size)
    return torch.from_numpy(values.astype(np.float32))


class TestIsTheDefinition:
    @given(
        vocabularies(),
        st.integers(1, 320),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**20),
        st.sampled_from([0.0, 0.1, 0.7, 1.0, 2.0]),
        st.sampled_from([1, 7, 40, 4096]),
        st.sampled_from([1, 4]),
    )
    @example(within_one_code(), 1, 0, 0, 0.0, 4096, 4)
    def test_for_every_input(
        self,
        probabilities: torch.Tensor,
        depth: int,
        seed: int,
        position: int,
        temperature: float,
        groups: int,
        first_look: int,
    ) -> None:
        with mock.patch.multiple(module, _GROUPS=groups, _FIRST_LOOK=first_look):
            ours = found(probabilities, depth, seed, position, temperature)
        assert same(ours, direct(probabilities, depth, seed, position, temperature))

    @pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
    @pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
    def test_for_a_large_vocabulary(self, spread: float, temperature: float) -> None:
        probabilities = torch.softmax(spread * torch.randn(151_936, generator=torch.Generator().manual_seed(8)), dim=-1)
        for depth in (1, 32, 700):
            assert same(
                found(probabilities, depth, SEED, 5, temperature), direct(probabilities, depth, SEED, 5, temperature)
            )

    def test_the_margin_is_needed(self) -> None:
        """Rounding makes tokens equal, and the first of them has the lowest bound: without a margin it is lost."""
        probabilities, race = within_one_code(), Race(0, 0, 0.0, 1)
        assert found(probabilities, 1, 0, 0, 0.0)[0].tolist() == [0]
        bounds = RaceKernel(512).bounds(probabilities[None], [race])
        with mock.patch.object(module, "SLACK", -LINEAR_EXCESS):
            assert fastest(bounds, [1], exact_speeds(probabilities, race))[0][0].tolist() != [0]
        arguments = probabilities.numpy(), np.uint64(0), 0.0, 1, TABLE, np.empty(1024, np.float32)
        assert 0 in compiled._fastest(*arguments)[0]
        with mock.patch.object(compiled, "SLACK", -LINEAR_EXCESS):
            assert 0 not in compiled._fastest(*arguments)[0]

    @pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
    def test_what_is_just_possible_races_too(self, temperature: float) -> None:
        """Three probable tokens, and a list of eight: the rest is as unlikely as a code can say."""
        probabilities = torch.full((9_000,), 2.0**-31.9)
        probabilities[[5, 900, 8_999]] = 0.3
        ours = found(probabilities, 8, SEED, 1, temperature)
        assert len(ours[0]) == 8
        assert same(ours, direct(probabilities, 8, SEED, 1, temperature))

    def test_bounds_must_be_bounds(self) -> None:
        """Counter-example: p alone bounds no speed. The fastest tokens are others than the most probable ones."""
        probabilities = torch.softmax(torch.randn(5_000, generator=torch.Generator().manual_seed(8)), dim=-1)
        codes = nearest(probabilities.numpy())

        def speeds(_: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
            return decode_probabilities(codes[ids]) / exponential(SEED, 5, ids)

        bounds = RaceKernel(5_000).bounds(probabilities[None], [Race(SEED, 5, 1.0, 8)])
        right = direct(probabilities, 8, SEED, 5, 1.0)
        assert same(fastest(bounds, [8], speeds)[0], right)
        assert not same(fastest(floor_log2(probabilities[None]), [8], speeds)[0], right)

    @given(
        st.lists(
            st.tuples(vocabularies(), st.integers(0, 2**64 - 1), st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 40)),
            min_size=2,
            max_size=6,
        )
    )
    def test_many_races_together_are_each_alone(self, drawn: list[tuple[torch.Tensor, int, float, int]]) -> None:
        size = min(len(probabilities) for probabilities, *_ in drawn)
        mixtures = torch.stack([probabilities[:size] for probabilities, *_ in drawn])
        races = [Race(seed, index, temperature, depth) for index, (_, seed, temperature, depth) in enumerate(drawn)]
        each_alone(mixtures, races)

    @pytest.mark.parametrize("seed", range(50))
    def test_races_that_are_certain_at_different_looks(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        count, size = random.integers(2, 7), random.integers(20, 301)
        spread = random.choice([0.0, 1.0, 5.0], (count, 1))
        mixtures = torch.softmax(torch.from_numpy(spread * random.normal(size=(count, size))), dim=-1).float()
        races = [Race(seed, index, index % 3 / 2, int(random.integers(1, 13))) for index in range(count)]
        each_alone(mixtures, races)


def each_alone(mixtures: torch.Tensor, races: list[Race]) -> None:
    """Compare with the definition what compiled code finds, and one search over the bounds of all races."""

    def speeds(which: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return decode_probabilities(codes_in(mixtures, which, ids)) / noise_of(races, which, ids)

    kernel = RaceKernel(mixtures.shape[1])
    with mock.patch.multiple(module, _GROUPS=64, _FIRST_LOOK=1):
        searched = fastest(kernel.bounds(mixtures, races), [race.depth for race in races], speeds)
    for mixture, race, *ours in zip(mixtures, races, kernel.run(mixtures, races), searched, strict=True):
        expected = direct(mixture, race.depth, race.seed, race.position, race.temperature)
        assert all(same(each, expected) for each in ours)


class TestIsCheap:
    @pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
    def test_few_logarithms_are_taken(self, spread: float) -> None:
        """Of a large vocabulary, however flat, some 1.6 per wanted token could win; groups and a reserve make it 5."""
        asked: list[int] = []
        for position in range(6):
            generator = torch.Generator().manual_seed(position)
            probabilities = torch.softmax(spread * torch.randn(60_000, generator=generator), dim=-1)
            exact = decode_probabilities(nearest(probabilities.numpy())) / exponential(
                SEED, position, np.arange(60_000)
            )

            def speeds(
                _: NDArray[np.int64], ids: NDArray[np.int64], exact: NDArray[np.float64] = exact
            ) -> NDArray[np.float64]:
                asked.append(len(ids))
                return exact[ids]

            fastest(RaceKernel(60_000).bounds(probabilities[None], [Race(SEED, position, 1.0, 32)]), [32], speeds)
        assert len(asked) == 6  # the first look was always enough
        assert max(asked) < 5 * 32

    def test_no_more_than_the_possible_tokens_are_asked_for(self) -> None:
        """Three possible tokens of many, and eight wanted: nothing is gained by looking at the impossible ones."""
        probabilities = torch.zeros(60_000)
        probabilities[[5, 900, 59_999]] = torch.tensor([0.5, 0.25, 0.25])
        asked: list[int] = []

        def speeds(_: NDArray[np.int64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
            asked.append(len(ids))
            return probabilities.numpy()[ids].astype(np.float64)

        bounds = floor_log2(probabilities[None]) + LINEAR_EXCESS
        assert fastest(bounds, [8], speeds)[0][0].tolist() == [5, 900, 59_999]
        assert len(asked) == 1


class TestCodes:
    """Compiled code rounds as the wire's own code does: both are compared where values are asked for again."""

    @staticmethod
    def between(codes: NDArray[np.int64]) -> NDArray[np.float32]:
        """Numbers about the middles between the values of neighbouring codes."""
        middles = np.exp2((codes + 0.5 - LARGEST) / STEPS_PER_OCTAVE).astype(np.float32)
        return np.concatenate([middles, np.nextafter(middles, np.float32(0)), np.nextafter(middles, np.float32(2))])

    def test_between_all_neighbours(self) -> None:
        numbers = self.between(np.arange(LARGEST + 1))
        codes = codes_of(numbers)
        assert np.array_equal(codes, nearest(numbers))
        assert len(np.unique(codes)) == LARGEST + 1

    def test_of_what_is_no_probability(self) -> None:
        numbers = np.array([np.nan, np.inf, -np.inf, -1.0, -0.0, 0.0, 1e-45, 2.0**-33, 1.5, 3.4e38], np.float32)
        assert np.array_equal(codes_of(numbers), nearest(numbers))

    @given(arrays(np.float32, st.integers(0, 50), elements=st.floats(width=32)))
    def test_of_anything(self, numbers: NDArray[np.float32]) -> None:
        assert np.array_equal(codes_of(numbers), nearest(numbers))
