"""Both sides of a race hold the same speeds, and a list says exactly which tokens are the fastest."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from common.sampling.certificate import RaceView
from common.sampling.compiled import race_noise
from common.sampling.race import LocalRace, RaceKernel, RaceSampler
from proto.codes import RaceEntries, decode_probabilities, decode_race, encode_race, nearest
from proto.errors import ProtocolError

SEED = 0xFEDCBA9876543210


def mixture(vocabulary: int, seed: int = 0, spread: float = 2.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(spread * torch.randn(vocabulary, generator=generator), dim=-1)


def all_speeds(race: LocalRace, seed: int, temperature: float) -> NDArray[np.float64]:
    """Speed of every token, straight from the definition."""
    rounded = decode_probabilities(nearest(race.probabilities.numpy()))
    return rounded / race_noise(seed, race.position, np.arange(len(rounded)), temperature)


def entries(*pairs: tuple[int, int]) -> RaceEntries:
    ids, codes = zip(*pairs, strict=True)
    return RaceEntries(np.array(ids, np.uint32), np.array(codes, np.uint16))


def same(one: RaceView, other: RaceView) -> bool:
    return (
        one.token == other.token
        and one.threshold == other.threshold
        and np.array_equal(one.entries.ids, other.entries.ids)
        and np.array_equal(one.entries.codes, other.entries.codes)
        and np.array_equal(one.speeds, other.speeds)
    )


@st.composite
def races(draw: st.DrawFn) -> tuple[RaceSampler, LocalRace, int, float, int]:
    """Mixtures with ties and zeros, short lists, both kinds of temperature."""
    vocabulary = draw(st.integers(1, 40))
    masses = draw(
        st.lists(st.sampled_from([0.0, 1e-9, 1e-3, 0.25, 1.0, 3.0]), min_size=vocabulary, max_size=vocabulary)
    )
    masses[draw(st.integers(0, vocabulary - 1))] = 1.0
    seed, position = draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**20))
    temperature, count = draw(st.sampled_from([0.0, 0.7])), draw(st.integers(1, vocabulary + 2))
    sampler = RaceSampler(seed, temperature, count, vocabulary)
    probabilities = torch.tensor(masses) / sum(masses)
    return sampler, sampler.draft(position, probabilities), seed, temperature, count


class TestDraft:
    @given(races())
    def test_lists_the_fastest(self, race: tuple[RaceSampler, LocalRace, int, float, int]) -> None:
        _, local, seed, temperature, count = race
        speeds = all_speeds(local, seed, temperature)
        order = np.lexsort((np.arange(len(speeds)), -speeds))  # fastest first, lowest id of equals
        fastest = [int(i) for i in order[:count] if speeds[i] > 0]
        assert local.token == speeds.argmax()
        assert local.entries.ids.tolist() == sorted(fastest)
        assert local.speeds.tolist() == speeds[sorted(fastest)].tolist()
        unlisted = np.delete(speeds, fastest)
        assert local.threshold >= unlisted.max(initial=0.0)
        if len(fastest) < min(count, len(speeds)):
            assert local.threshold == 0

    def test_a_large_vocabulary_is_the_definition_too(self) -> None:
        sampler = RaceSampler(SEED, 1.0, 32, 151_936)
        for position in range(3):
            local = sampler.draft(position, mixture(151_936, position))
            speeds = all_speeds(local, SEED, 1.0)
            fastest = np.argsort(-speeds)[:32]
            assert local.token == fastest[0]
            assert local.entries.ids.tolist() == sorted(fastest.tolist())
            assert local.threshold == speeds[fastest[-1]]

    def test_depends_on_nothing_that_was_drafted_before(self) -> None:
        positions = [3, 1, 4, 1, 5]
        together = RaceSampler(SEED, 1.0, 8, 100)
        shared = RaceKernel(100)
        for position in positions:
            alone = RaceSampler(SEED, 1.0, 8, 100).draft(position, mixture(100))
            other = RaceSampler(SEED + position, 1.0, 8, 100).draft(position, mixture(100), shared)
            sharing = RaceSampler(SEED, 1.0, 8, 100).draft(position, mixture(100), shared)
            assert same(alone, together.draft(position, mixture(100)))
            assert same(alone, sharing)
            assert not same(alone, other)

    def test_temperature_zero_takes_the_most_probable(self) -> None:
        sampler = RaceSampler(SEED, 0.0, 4, 1_000)
        assert sampler.draft(0, mixture(1_000)).token == mixture(1_000).argmax()
        assert sampler.draft(0, torch.full((1_000,), 1e-3)).entries.ids.tolist() == [0, 1, 2, 3]

    @pytest.mark.parametrize("value", [float("nan"), 0.0])
    def test_refuses_what_is_no_distribution(self, value: float) -> None:
        with pytest.raises(ValueError, match="no positive probability"):
            RaceSampler(SEED, 1.0, 4, 10).draft(0, torch.full((10,), value))

    def test_refuses_another_vocabulary(self) -> None:
        with pytest.raises(ValueError, match=r"must be \[10\]"):
            RaceSampler(SEED, 1.0, 4, 10).draft(0, mixture(11))


class TestReceive:
    @given(races())
    def test_both_sides_hold_the_same(self, race: tuple[RaceSampler, LocalRace, int, float, int]) -> None:
        sampler, local, _, _, _ = race
        told = decode_race(encode_race(local.entries), len(local.probabilities), 4096)
        assert same(local, sampler.receive(local.position, told))

    def test_large_vocabulary(self) -> None:
        sampler, reader = (RaceSampler(SEED, 0.8, 32, 151_936) for _ in range(2))
        for position in range(5):
            local = sampler.draft(position, mixture(151_936, position, 3.0))
            assert same(local, reader.receive(position, local.entries))

    @pytest.mark.parametrize(
        "told",
        [
            entries((1, 9), (2, 9), (3, 9)),  # more than K
            entries((1, 9), (10, 9)),  # outside of the vocabulary
            entries((1, 9), (2, 0)),  # a token that can't be fast
            RaceEntries(np.array([], np.uint32), np.array([], np.uint16)),
        ],
    )
    def test_refuses_lists_that_no_race_sends(self, told: RaceEntries) -> None:
        with pytest.raises(ProtocolError):
            RaceSampler(SEED, 1.0, 2, 10).receive(0, told)


class TestLikeliest:
    """Lists that have the most probable tokens beside the fastest ones."""

    @given(races(), st.integers(1, 40))
    def test_lists_have_both_and_bound_the_rest(
        self, race: tuple[RaceSampler, LocalRace, int, float, int], likeliest: int
    ) -> None:
        _, local, seed, temperature, depth = race
        probabilities = local.probabilities
        size = len(probabilities)
        here, there = (RaceSampler(seed, temperature, depth, size, likeliest) for _ in range(2))
        listing = here.draft(local.position, probabilities)
        assert same(listing, there.receive(local.position, listing.entries))
        assert listing.token == local.token
        possible = {token for token, speed in enumerate(all_speeds(local, seed, temperature)) if speed > 0}
        listed = set(listing.entries.ids.tolist())
        assert set(local.entries.ids.tolist()) <= listed <= possible
        # Whoever knows all tokens has nothing more to bound.
        assert listing.threshold == (0.0 if len(listed) == size else local.threshold)
        probable = probabilities.topk(min(likeliest, size)).values.min()
        for token in possible - listed:
            assert probabilities[token] <= probable
            assert all_speeds(local, seed, temperature)[token] <= listing.threshold

    def test_more_than_both_is_refused(self) -> None:
        too_many = entries((1, 9), (2, 9), (3, 9), (4, 9))
        with pytest.raises(ProtocolError):
            RaceSampler(SEED, 1.0, 2, 10, likeliest=1).receive(0, too_many)


class TestValues:
    def test_of_any_token(self) -> None:
        probabilities = torch.tensor([0.5, 0.0, 0.25, 0.25])
        local = RaceSampler(SEED, 1.0, 1, 4).draft(0, probabilities)
        told = local.values([3, 1, 1])
        assert told.ids.tolist() == [1, 3]
        assert decode_probabilities(told.codes).tolist() == [0.0, pytest.approx(0.25, rel=2e-4)]

    @pytest.mark.parametrize("ids", [[], [-1], [4], [0, 2**24]])
    def test_not_outside_of_the_vocabulary(self, ids: list[int]) -> None:
        local = RaceSampler(SEED, 1.0, 1, 4).draft(0, mixture(4))
        with pytest.raises(ProtocolError):
            local.values(ids)


class TestExtend:
    @given(races(), st.data())
    def test_deeper_list_is_a_longer_race(
        self, race: tuple[RaceSampler, LocalRace, int, float, int], data: st.DataObject
    ) -> None:
        sampler, local, seed, temperature, _ = race
        depth = data.draw(st.integers(len(local.entries.ids), len(local.probabilities) + 3))
        extended = sampler.extend(sampler.receive(local.position, local.entries), depth, local.extend(depth))
        longer = RaceSampler(seed, temperature, depth, len(local.probabilities))
        expected = longer.receive(local.position, local.extend(depth))
        if not local.threshold:  # nothing was lacking, nothing is lost
            expected = dataclasses.replace(expected, threshold=0.0)
        assert same(extended, expected)
        assert same(extended, sampler.extend(local, depth, local.extend(depth)))

    @given(races(), st.data())
    def test_named_values_leave_the_threshold(
        self, race: tuple[RaceSampler, LocalRace, int, float, int], data: st.DataObject
    ) -> None:
        sampler, local, seed, temperature, _ = race
        named = data.draw(st.lists(st.integers(0, len(local.probabilities) - 1), min_size=1))
        extended = sampler.extend(local, 0, local.values(named))
        speeds = all_speeds(local, seed, temperature)
        assert extended.threshold == local.threshold
        assert extended.token == local.token
        assert set(extended.speed_of) == set(local.speed_of) | set(named)
        assert all(speeds[token] == speed for token, speed in extended.speed_of.items())
        assert same(extended, sampler.extend(extended, 0, local.values(named)))  # a repeated message

    def test_named_values_and_deeper_lists_combine(self) -> None:
        sampler = RaceSampler(SEED, 1.0, 4, 60)
        local = sampler.draft(0, mixture(60))
        slowest = int(all_speeds(local, SEED, 1.0).argmin())
        named = sampler.extend(sampler.receive(0, local.entries), 0, local.values([slowest]))
        both = sampler.extend(named, 9, local.extend(9))
        assert both.threshold == sorted(both.speeds)[1]  # of the nine, not of the named one
        assert len(both.speeds) == 10
        # the same messages in the other order
        other = sampler.extend(sampler.extend(local, 9, local.extend(9)), 0, local.values([slowest]))
        assert same(both, other)

    def test_refuses_contradictions(self) -> None:
        sampler = RaceSampler(SEED, 0.0, 2, 10)
        race = sampler.receive(0, entries((1, 60_000), (2, 50_000)))
        complete = sampler.receive(0, entries((1, 60_000)))
        for view, depth, told in (
            (race, 0, entries((2, 50_001))),  # another value than before
            (race, 0, entries((3, 50_001))),  # should have been listed
            (race, 3, entries((1, 60_000), (2, 50_000), (3, 50_001))),
            (race, 3, entries((1, 60_000), (3, 40_000), (4, 40_000))),  # lacks a listed one
            (race, 3, entries((1, 60_000), (2, 50_000), (3, 0))),
            (race, 2, entries((1, 60_000), (2, 50_000), (3, 40_000))),  # longer than asked
            (race, 0, entries((10, 1))),
            (complete, 0, entries((3, 1))),  # the list said that no other token is possible
        ):
            with pytest.raises(ProtocolError):
                sampler.extend(view, depth, told)
