"""A certified token has the highest score of the whole vocabulary, and asking for what is lacking always
ends.

The search over small worlds is exhaustive where ties, zeros and one-sided weights live; the same search finds
a wrong answer for each broken certificate, so it can find one.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from common.sampling.certificate import (
    NO_EVIDENCE,
    WHOLE,
    MissingValues,
    RaceView,
    certify,
    eta_fixed,
    lower_bound_winner,
)
from common.sampling.compiled import exponential
from common.sampling.race import RaceSampler
from proto.codes import RaceEntries, decode_probabilities, encode_probabilities, nearest
from proto.messages import Side

Certificate = Callable[[RaceView, RaceView, int], int | MissingValues]
SIDES: tuple[Side, Side] = ("device", "cloud")


@dataclass(frozen=True)
class Whole:
    """All that one side knows, and the definition of what it tells."""

    codes: NDArray[np.uint16]
    speeds: NDArray[np.float64]

    def list(self, depth: int) -> RaceEntries:
        order = np.lexsort((np.arange(len(self.speeds)), -self.speeds))[:depth]
        ids = np.sort(order[self.speeds[order] > 0])
        return RaceEntries(ids.astype(np.uint32), self.codes[ids])

    def named(self, ids: tuple[int, ...]) -> RaceEntries:
        return RaceEntries(np.array(ids, np.uint32), self.codes[list(ids)])


@dataclass(frozen=True)
class Position:
    """Both sides at one position."""

    sampler: RaceSampler
    sides: dict[Side, Whole]
    entries: int

    def views(self) -> dict[Side, RaceView]:
        return {side: self.sampler.receive(0, whole.list(self.entries)) for side, whole in self.sides.items()}

    def target(self, eta_device: int) -> int:
        """The first of the highest scores, computed for every token."""
        device, cloud = (self.sides[side].speeds for side in SIDES)
        return int((float(eta_device) * device + float(WHOLE - eta_device) * cloud).argmax())


def make_position(device: list[int], cloud: list[int], entries: int, seed: int | None) -> Position:
    """`seed` None is temperature 0."""
    noise = np.ones(len(device)) if seed is None else exponential(seed, 0, range(len(device))).astype(float)
    wholes = (
        Whole(c, decode_probabilities(c) / noise) for c in (np.array(codes, np.uint16) for codes in (device, cloud))
    )
    sampler = RaceSampler(seed or 0, float(seed is not None), entries, len(device))
    return Position(sampler, dict(zip(SIDES, wholes, strict=True)), entries)


def solve(position: Position, eta_device: int, certificate: Certificate = certify) -> tuple[int, int]:
    """The target and how often something had to be asked for."""
    views, depth = position.views(), position.entries
    for round_ in itertools.count():
        outcome = certificate(views["device"], views["cloud"], eta_device)
        if isinstance(outcome, int):
            return outcome, round_
        before = dict(views)
        depth *= 2
        for side, ids in zip(SIDES, (outcome.device_ids, outcome.cloud_ids), strict=True):
            assert not set(ids) & set(views[side].speed_of), "asks for what is known"
            if ids:
                views[side] = position.sampler.extend(views[side], 0, position.sides[side].named(ids))
            if outcome.deeper and views[side].threshold > 0:
                views[side] = position.sampler.extend(views[side], depth, position.sides[side].list(depth))
        assert any(views[side] is not before[side] for side in SIDES), "asks for nothing"
    raise AssertionError


def small_worlds() -> Iterator[tuple[Position, int]]:
    """Three tokens: every pair of sides over three values, every list length, temperature 0 and noise."""
    sides = [list(codes) for codes in itertools.product((0, 64_000, 65_000), repeat=3) if any(codes)]
    settings = [(None, eta) for eta in (0, 20_000, 32_768, 65_536)] + [(8, 50_000)]
    for device, cloud, entries in itertools.product(sides, sides, (1, 2)):
        for seed, eta in settings:
            yield make_position(device, cloud, entries, seed), eta


def first_wrong(certificate: Certificate, worlds: Iterator[tuple[Position, int]]) -> tuple[Position, int] | None:
    """The first world in which the certificate answers wrongly."""
    for position, eta in worlds:
        if solve(position, eta, certificate)[0] != position.target(eta):
            return position, eta
    return None


def without_thresholds(device: RaceView, cloud: RaceView, eta_device: int) -> int | MissingValues:
    """Takes what is not sent for 0."""
    return certify(dataclasses.replace(device, threshold=0.0), dataclasses.replace(cloud, threshold=0.0), eta_device)


def swapped_weights(device: RaceView, cloud: RaceView, eta_device: int) -> int | MissingValues:
    return certify(device, cloud, WHOLE - eta_device)


def without_unnamed(device: RaceView, cloud: RaceView, eta_device: int) -> int | MissingValues:
    """Forgets the tokens that neither list names."""
    outcome = certify(device, cloud, eta_device)
    if isinstance(outcome, int):
        return outcome
    if not outcome.device_ids and not outcome.cloud_ids:
        return lower_bound_winner(device, cloud, eta_device)
    return dataclasses.replace(outcome, deeper=False)


def without_ties(device: RaceView, cloud: RaceView, eta_device: int) -> int | MissingValues:
    """Certifies a token that an unnamed one with a lower id may equal."""
    below = 1 - 2.0**-40
    return certify(
        dataclasses.replace(device, threshold=device.threshold * below),
        dataclasses.replace(cloud, threshold=cloud.threshold * below),
        eta_device,
    )


def side_codes(size: int) -> st.SearchStrategy[list[int]]:
    """One side's codes: zeros, ties and neighbours."""
    values = st.sampled_from([0, 1, 40_000, 40_001, 60_000, 65_535])
    return st.lists(values, min_size=size, max_size=size).filter(any)


class TestFindsTheTarget:
    def test_every_small_world(self) -> None:
        assert first_wrong(certify, small_worlds()) is None

    @pytest.mark.parametrize("broken", [without_thresholds, swapped_weights, without_unnamed, without_ties])
    def test_the_search_finds_broken_certificates(self, broken: Certificate) -> None:
        assert first_wrong(broken, small_worlds()) is not None

    @given(
        st.integers(1, 12).flatmap(lambda size: st.tuples(side_codes(size), side_codes(size))),
        st.integers(1, 6),
        st.one_of(st.none(), st.integers(0, 2**64 - 1)),
        st.one_of(st.sampled_from([0, 1, WHOLE // 2, WHOLE - 1, WHOLE]), st.integers(0, WHOLE)),
    )
    def test_adversarial_lists(
        self, codes: tuple[list[int], list[int]], entries: int, seed: int | None, eta: int
    ) -> None:
        position = make_position(*codes, entries, seed)
        assert solve(position, eta)[0] == position.target(eta)

    def test_disjoint_supports(self) -> None:
        """Nothing that one side lists is known of the other: thresholds alone decide."""
        for seed in range(50):
            codes = np.random.default_rng(seed).integers(60_000, 65_536, 40)
            device, cloud = codes.copy(), codes.copy()
            device[::2], cloud[1::2] = 0, 0
            position = make_position(device.tolist(), cloud.tolist(), 2, seed)
            assert solve(position, 30_000)[0] == position.target(30_000)

    def test_all_equal(self) -> None:
        """Every bound ties until everything is known: the lowest id wins."""
        position = make_position([50_000] * 20, [50_000] * 20, 3, None)
        assert solve(position, 10_000) == (0, 3)


class TestIsCheap:
    """Entries that travel: 32 of a vocabulary nearly always do (aggregation.md gives none of 3,000)."""

    @staticmethod
    def failures(entries: int) -> tuple[int, int]:
        """Failed certificates and wrong lower-bound winners in 200 positions of 8,000 tokens."""
        generator = torch.Generator().manual_seed(3)
        sampler = RaceSampler(11, 1.0, entries, 8_000)
        failed = wrong = 0
        for t in range(200):
            logits = 2.5 * torch.randn(8_000, generator=generator)
            other = logits + 0.4 * torch.randn(8_000, generator=generator)
            device, cloud = (sampler.draft(t, torch.softmax(each, -1)) for each in (logits, other))
            failed += isinstance(certify(device, cloud, 40_000), MissingValues)
            noise = exponential(11, t, np.arange(8_000)).astype(float)
            scores = 40_000.0 * (decode_probabilities(nearest(device.probabilities.numpy())) / noise)
            scores += float(WHOLE - 40_000) * (decode_probabilities(nearest(cloud.probabilities.numpy())) / noise)
            wrong += lower_bound_winner(device, cloud, 40_000) != scores.argmax()
        return failed, wrong

    def test_thirty_two_entries_suffice(self) -> None:
        assert self.failures(32) == (0, 0)

    def test_one_entry_does_not(self) -> None:
        failed, wrong = self.failures(1)
        assert failed > 20
        assert wrong > 0


class TestContested:
    def test_names_what_each_side_lacks(self) -> None:
        """Token 0 leads on the device, token 1 on the cloud; neither list knows the other's."""
        codes = encode_probabilities(np.array([[0.6, 0.4], [0.3, 0.7]])).tolist()
        views = make_position(codes[0], codes[1], 1, None).views()
        assert certify(views["device"], views["cloud"], WHOLE // 2) == MissingValues((1,), (0,), True)

    def test_a_single_token_is_asked_for(self) -> None:
        device = make_position([65_000, 60_000, 59_000, 0], [60_000, 62_000, 64_999, 0], 2, None)
        views = device.views()
        # the leader 0 is unknown to the cloud's list (2, 1), the challenger 2 to the device's (0, 1)
        outcome = certify(views["device"], views["cloud"], 33_000)
        assert isinstance(outcome, MissingValues)
        assert (outcome.device_ids, outcome.cloud_ids, outcome.deeper) == ((2,), (0,), False)

    def test_a_side_without_weight_is_not_asked(self) -> None:
        position = make_position([65_000, 64_000, 100], [100, 200, 65_000], 1, None)
        views = position.views()
        assert solve(position, 0)[0] == 2
        outcome = certify(views["device"], views["cloud"], 0)
        assert isinstance(outcome, MissingValues)  # an unnamed token could equal a single entry
        assert not outcome.device_ids


class TestEta:
    @pytest.mark.parametrize(
        ("device", "cloud", "eta"),
        [
            (0.0, 0.0, 32_768),
            (np.log(3.0), 0.0, 49_152),
            (-1e4, -1e4 + np.log(3.0), 16_384),
            (100.0, 0.0, WHOLE),
            (0.0, 100.0, 0),
            (1e30, -1e29, WHOLE),
            (0.0, NO_EVIDENCE, WHOLE),
            (-1e4, NO_EVIDENCE, WHOLE),
            (NO_EVIDENCE, -1e4, 0),
            (NO_EVIDENCE, NO_EVIDENCE, WHOLE),
            (float(np.float32(NO_EVIDENCE)), 0.0, 0),  # as it comes from the wire
            (0.0, float(np.float32(NO_EVIDENCE)), WHOLE),
        ],
    )
    def test_values(self, device: float, cloud: float, eta: int) -> None:
        assert eta_fixed(device, cloud) == eta

    @given(st.floats(-1e4, 1e4), st.floats(-30, 30))
    def test_is_the_softmax(self, device: float, difference: float) -> None:
        cloud = device + difference
        expected = np.exp(device - np.logaddexp(device, cloud)) * WHOLE
        assert abs(eta_fixed(device, cloud) - expected) <= 0.5 + 1e-6
        assert abs(eta_fixed(device, cloud) + eta_fixed(cloud, device) - WHOLE) <= 1
