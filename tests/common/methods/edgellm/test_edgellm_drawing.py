"""Candidates out of a draft model's distributions: the first finishers of the verifier's race."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from common.methods.edgellm.device import Finishers, Following
from common.sampling.race import RaceKernel, Racing

VOCABULARY = 200
KERNEL = RaceKernel(VOCABULARY, "cpu")


def mixture(seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).dirichlet(np.full(VOCABULARY, 0.1)).astype(np.float32))


def told(mixture: torch.Tensor, seed: int, temperature: float, count: int = 64) -> Following:
    drafter = Finishers(seed, temperature, count)
    (found,) = KERNEL.run(mixture[None], [drafter.race(3)])
    return drafter.drafted(3, mixture, found)


def drawn(mixture: torch.Tensor, seed: int, temperature: float) -> int:
    verifier = Racing(seed, temperature)
    (found,) = KERNEL.run(mixture[None], [verifier.race(3)])
    return verifier.drafted(3, mixture, found).token


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0, 1.5])
def test_a_verifier_of_the_same_distribution_draws_the_first(temperature: float) -> None:
    likeliest = 0
    for seed in range(50):
        law = mixture(seed)
        assert told(law, seed, temperature).token == drawn(law, seed, temperature)
        likeliest += int(law.argmax()) == drawn(law, seed, temperature)
    assert (likeliest == 50) == (temperature == 0), "above 0, the most probable token is another one"


def test_at_temperature_0_shares_are_probabilities() -> None:
    law = mixture(4)
    candidates = told(law, 4, 0.0, 20).candidates
    values, ids = law.topk(20)
    assert [each.token for each in candidates] == ids.tolist()
    assert [each.probability for each in candidates] == pytest.approx(values.tolist(), rel=1e-3)


@pytest.mark.parametrize("temperature", [0.01, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("count", [1, 20, VOCABULARY])
def test_shares(temperature: float, count: int) -> None:
    shares = [each.probability for each in told(mixture(5), 5, temperature, count).candidates]
    assert len(shares) <= count
    assert shares == sorted(shares, reverse=True)
    assert all(share > 0 for share in shares)
    assert sum(shares) <= 1 + 1e-9


def test_a_mixture_without_a_positive_probability() -> None:
    with pytest.raises(ValueError, match="position 3"):
        told(torch.zeros(VOCABULARY), 1, 1.0)
