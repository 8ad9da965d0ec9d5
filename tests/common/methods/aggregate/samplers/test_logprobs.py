"""A target that is told with its log-probability is known to both lists, or asked for by its name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from common.methods.aggregate.driver import make_sampler
from common.methods.paper.sampler import make_paper_sampler
from common.sampling.certificate import WHOLE, Decision, MissingHere, MissingThere, eta_fixed
from common.sampling.race import LocalRace, RaceSampler
from proto.messages import Open

VOCABULARY = 40
EVIDENCE = (0.3, 0.0)
OPEN = Open(1, "speculative", "q", "p", 4, 77, 1.0, "race", "race", 3, True, 1.0, "device", "both", 1, 8, likeliest=2)


def mixture(seed: int) -> torch.Tensor:
    return torch.softmax(torch.from_numpy(np.random.default_rng(seed).normal(0, 1.0, VOCABULARY)), 0).float()


def halves(request: Open = OPEN) -> tuple[RaceSampler, RaceSampler]:
    device, cloud = (make_sampler(side, request, VOCABULARY, make_paper_sampler) for side in ("device", "cloud"))
    assert isinstance(device, RaceSampler)
    assert isinstance(cloud, RaceSampler)
    return device, cloud


def test_values_that_are_lacking_are_asked_for_until_the_logprob_is_exact() -> None:
    device, cloud = halves()
    plain, _ = halves(replace(OPEN, likeliest=0))
    by_name = 0
    for position in range(120):
        mixtures = mixture(2 * position), mixture(2 * position + 1)
        own, other = device.drafted(position, mixtures[0], None), cloud.drafted(position, mixtures[1], None)
        remote = device.read("cloud", position, cloud.pack(other))
        mine: LocalRace = own
        while not isinstance(verdict := device.aggregate("device", position, mine, remote, EVIDENCE), Decision):
            by_name += isinstance(verdict, MissingThere) and bool(verdict.ids)
            if isinstance(verdict, MissingHere):
                payload = device.supply(own, verdict.ids, verdict.depth)
                mine = device.complete(mine, position, verdict.ids, verdict.depth, payload)
            else:
                payload = cloud.supply(other, verdict.ids, verdict.depth)
                remote = device.complete(remote, position, verdict.ids, verdict.depth, payload)
        eta = eta_fixed(*EVIDENCE) / WHOLE
        exact = eta * mixtures[0][verdict.token] + (1 - eta) * mixtures[1][verdict.token]
        assert verdict.logprobs is not None
        assert verdict.logprobs.token == pytest.approx(float(exact.log()), abs=4e-4)
        assert len(verdict.logprobs.top) == 2
        # What is told changes nothing: the same token as without.
        everything = [each.drafted(position, p, None) for each, p in zip(halves(ALL), mixtures, strict=True)]
        whole = plain.aggregate("device", position, everything[0], everything[1], EVIDENCE)
        assert isinstance(whole, Decision)
        assert whole.token == verdict.token
        assert whole.logprobs is None
    assert by_name > 5  # the device names nothing but targets: 'hide_ids' holds for all other tokens


ALL = replace(OPEN, entries=VOCABULARY, likeliest=0)


def test_the_cloud_asks_for_no_more_than_its_certificate_needs() -> None:
    """It shows nothing, so what the device's list lacks of a certified target stays there."""
    telling, silent = (halves(replace(OPEN, placement="cloud", likeliest=likeliest))[1] for likeliest in (2, 0))
    for position in range(60):
        own, other = halves()
        device = own.drafted(position, mixture(2 * position), None)
        cloud = other.drafted(position, mixture(2 * position + 1), None)
        found = telling.aggregate("cloud", position, device, cloud, EVIDENCE)
        assert found == silent.aggregate("cloud", position, device, cloud, EVIDENCE)


def test_a_side_that_decides_alone_tells_its_own() -> None:
    device, _ = halves()
    view = device.drafted(0, mixture(1), None)
    outcome = device.alone(0, view)
    assert isinstance(outcome, Decision)
    told = outcome.logprobs
    assert told is not None
    assert told.token == pytest.approx(float(mixture(1)[view.token].log()), abs=4e-4)
    assert halves(replace(OPEN, likeliest=0))[0].alone(0, view) == Decision(view.token)
