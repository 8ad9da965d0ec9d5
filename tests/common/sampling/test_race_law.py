"""The race answers with the law of the mixture, and its drafts are accepted far more often than the paper's.

Whole races are computed for many positions at once, straight from the definition; `TestIsTheCode` ties them
to what drafts and certifies. Seeds are fixed: a test at significance 1e-3 fails one in a thousand ways of
writing it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from common.methods.paper.sampler import PaperSampler, expected_acceptance
from common.sampling.certificate import WHOLE, certify
from common.sampling.compiled import exponential_from_key, position_key, raised
from common.sampling.race import RaceSampler
from common.sampling.truncation import renormalised
from proto.codes import decode_probabilities, encode_probabilities

Array = NDArray[np.float64]
SEED = 20_240_229
DEVICE = decode_probabilities(encode_probabilities(np.array([0.42, 0.3, 0.15, 0.08, 0.04, 0.01, 0.0, 0.0])))
CLOUD = decode_probabilities(encode_probabilities(np.array([0.05, 0.1, 0.2, 0.25, 0.05, 0.02, 0.33, 0.0])))
ETA = 20_000
VOCABULARY = 2_000


def races(positions: int, tokens: int, seed: int = SEED) -> Array:
    """E of [positions, tokens]."""
    keys = np.array([position_key(seed, t) for t in range(positions)], dtype=np.uint64)
    return exponential_from_key(keys[:, None], np.arange(tokens)).astype(np.float64)


def targets(noise: Array, device: Array, cloud: Array, eta: int) -> NDArray[np.intp]:
    scores: Array = float(eta) * (device / noise) + float(WHOLE - eta) * (cloud / noise)
    winners: NDArray[np.intp] = scores.argmax(axis=1)
    return winners


def fits(tokens: NDArray[np.intp], law: Array) -> bool:
    """G-test at significance 1e-3; tokens of probability 0 must not occur at all."""
    counts = np.bincount(tokens, minlength=len(law))
    if counts[law == 0].any():
        return False
    possible = law > 0
    expected = len(tokens) * law[possible] / law.sum()
    return bool(stats.power_divergence(counts[possible], expected, lambda_="log-likelihood").pvalue > 1e-3)


@pytest.fixture(scope="module")
def noise() -> Array:
    return races(200_000, 8)


@pytest.fixture(scope="module")
def sides() -> tuple[Array, Array]:
    """Mixtures at total variation 0.16."""
    generator = np.random.default_rng(8)
    logits = 1.5 * generator.standard_normal(VOCABULARY)
    moved = logits + 0.41 * generator.standard_normal(VOCABULARY)
    device, cloud = (np.exp(each) / np.exp(each).sum() for each in (logits, moved))
    assert 0.5 * np.abs(device - cloud).sum() == pytest.approx(0.16, abs=0.01)
    return device, cloud


class TestLaw:
    """N = 200,000 positions, V = 8."""

    @pytest.mark.parametrize("eta", [0, 1_000, ETA, 50_000, WHOLE])
    def test_target_follows_the_mixture(self, noise: Array, eta: int) -> None:
        assert fits(targets(noise, DEVICE, CLOUD, eta), eta * DEVICE + (WHOLE - eta) * CLOUD)

    @pytest.mark.parametrize("temperature", [0.2, 0.5, 0.7, 1.3, 2.0])
    def test_temperature_sharpens_the_mixture_of_both(self, noise: Array, temperature: float) -> None:
        law = (ETA * DEVICE + (WHOLE - ETA) * CLOUD) ** (1 / temperature)
        tempered = raised(noise.astype(np.float32), temperature).astype(np.float64)
        assert fits(targets(tempered, DEVICE, CLOUD, ETA), law)
        for side in (DEVICE, CLOUD):
            assert fits((side / tempered).argmax(axis=1), side ** (1 / temperature))
        # Sharpening each side by itself is another law.
        apart = [side ** (1 / temperature) / (side ** (1 / temperature)).sum() for side in (DEVICE, CLOUD)]
        assert not fits(targets(noise, apart[0], apart[1], ETA), law)

    def test_small_temperatures_take_the_answer_of_zero(self, noise: Array) -> None:
        greedy = int((ETA * DEVICE + (WHOLE - ETA) * CLOUD).argmax())
        for temperature, share in ((0.01, 0.99), (1e-6, 1.0)):
            tempered = raised(noise[:20_000].astype(np.float32), temperature).astype(np.float64)
            assert (targets(tempered, DEVICE, CLOUD, ETA) == greedy).mean() >= share

    def test_each_draft_follows_its_side(self, noise: Array) -> None:
        assert fits((DEVICE / noise).argmax(axis=1), DEVICE)
        assert fits((CLOUD / noise).argmax(axis=1), CLOUD)

    def test_consecutive_targets_are_independent(self, noise: Array) -> None:
        tokens = targets(noise, DEVICE, CLOUD, ETA)
        law = ETA * DEVICE + (WHOLE - ETA) * CLOUD
        assert fits(8 * tokens[:-1:2] + tokens[1::2], np.outer(law, law).ravel())

    @pytest.mark.parametrize(
        "broken",
        [
            lambda noise: targets(noise, DEVICE, CLOUD, WHOLE - ETA),
            # each side with noise of its own: the sum of two races is none
            lambda noise: (ETA * (DEVICE / noise) + (WHOLE - ETA) * (CLOUD / np.roll(noise, 1, axis=0))).argmax(axis=1),
            # the faster draft wins
            lambda noise: np.maximum(ETA * (DEVICE / noise), (WHOLE - ETA) * (CLOUD / noise)).argmax(axis=1),
        ],
        ids=["weights swapped", "noise not shared", "faster draft"],
    )
    def test_tells_broken_races_apart(self, noise: Array, broken: Callable[[Array], NDArray[np.intp]]) -> None:
        assert not fits(broken(noise), ETA * DEVICE + (WHOLE - ETA) * CLOUD)


class TestIsTheCode:
    @pytest.mark.parametrize("temperature", [0.5, 1.0])
    def test_drafts_and_certificates_are_these_races(self, temperature: float) -> None:
        noise = raised(races(300, 8).astype(np.float32), temperature).astype(np.float64)
        expected = targets(noise, DEVICE, CLOUD, ETA)
        sampler = RaceSampler(SEED, temperature, 8, 8)
        for t in range(300):
            device, cloud = (sampler.draft(t, torch.from_numpy(p)) for p in (DEVICE, CLOUD))
            assert device.token == (DEVICE / noise[t]).argmax()
            assert cloud.token == (CLOUD / noise[t]).argmax()
            assert certify(device, cloud, ETA) == int(expected[t])


class TestAcceptance:
    """Two sides at total variation 0.16: each accepts 0.48 of its drafts by the paper, 0.89 by the race."""

    def test_race(self, sides: tuple[Array, Array]) -> None:
        noise = races(2_000, VOCABULARY)
        target = targets(noise, *sides, WHOLE // 2)
        device, cloud = ((side / noise).argmax(axis=1) == target for side in sides)
        assert device.mean() == pytest.approx(0.89, abs=0.03)
        assert cloud.mean() == pytest.approx(0.89, abs=0.03)
        assert (device & cloud).mean() == pytest.approx(0.79, abs=0.05)

    def test_paper(self, sides: tuple[Array, Array]) -> None:
        ids = np.arange(VOCABULARY)
        for expected in expected_acceptance(renormalised(ids, sides[0]), renormalised(ids, sides[1]), 0.5):
            assert expected == pytest.approx(0.47, abs=0.02)
        sampler = PaperSampler(SEED, 1.0, 1.0, "raw", VOCABULARY)
        device, cloud = (torch.from_numpy(side) for side in sides)
        outcomes = [
            sampler.target(t, sampler.draft("device", t, device), sampler.draft("cloud", t, cloud), 0.5)
            for t in range(1_000)
        ]
        assert np.mean([each.device_accepted for each in outcomes]) == pytest.approx(0.47, abs=0.06)
        assert np.mean([each.device_accepted and each.cloud_accepted for each in outcomes]) < 0.05
