"""Both mixtures in one process give the token that two sides agree on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from common.methods.aggregate.driver import make_sampler
from common.methods.paper.joint import make_joint
from common.methods.paper.sampler import make_paper_sampler
from common.sampling.certificate import NO_EVIDENCE, Decision
from common.sampling.mixture import Weights, mix, weigh
from proto.messages import Open

VOCABULARY = 300
RACE = Open(1, "speculative", "q", "p", 4, 77, 1.0, "race", "race", 300, True, 1.0, "cloud", "both", 1, 8)
REQUESTS = (
    RACE,
    replace(RACE, temperature=0.0),
    replace(RACE, temperature=0.4),
    replace(RACE, sampler="paper", codec="top-p"),
    replace(RACE, sampler="paper", codec="raw"),
)


def side(seed: int) -> tuple[torch.Tensor, torch.Tensor, Weights]:
    """Mixture [vocab], rows [3, vocab] and weights of three documents."""
    draw = np.random.default_rng(seed)
    logits = torch.from_numpy(draw.normal(0, 2, (3, VOCABULARY)).astype(np.float32))
    weights = weigh(draw.normal(0, 1, 3))
    mixtures, rows = mix(logits, [weights])
    return mixtures[0], rows, weights


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: f"{each.sampler}-{each.codec}-{each.temperature}")
def test_the_token_of_two_sides(request_: Open) -> None:
    sides = {side: make_sampler(side, request_, VOCABULARY, make_paper_sampler) for side in ("device", "cloud")}
    joint = make_joint(request_, VOCABULARY, "cpu")
    tokens = []
    for position in range(60):
        device, cloud = side(2 * position), side(2 * position + 1)
        evidence = (device[2].evidence, cloud[2].evidence)
        drafts = [
            sides["device"].drafted(position, device[0], None),
            sides["cloud"].drafted(position, cloud[0], None),
        ]
        remote = sides["device"].read("cloud", position, sides["cloud"].pack(drafts[1]))
        decided = sides["device"].aggregate("device", position, drafts[0], remote, evidence)
        assert isinstance(decided, Decision)
        mixtures = torch.stack([device[0], cloud[0]])
        target, where = joint.draft(position, mixtures, (device[1], cloud[1]), (device[2], cloud[2]), evidence)
        assert target.token == decided.token
        shares = where.contributions(target.token)
        assert shares.shape == (7,)
        assert shares.sum() == pytest.approx(1.0)
        tokens.append(target.token)
    assert len(set(tokens)) > 10


def test_a_side_without_documents_has_no_share() -> None:
    device, cloud = side(1), side(2)
    joint = make_joint(RACE, VOCABULARY, "cpu")
    mixtures = torch.stack([device[0], cloud[0]])
    evidence = (device[2].evidence, NO_EVIDENCE)
    target, where = joint.draft(0, mixtures, (device[1], cloud[1]), (device[2], cloud[2]), evidence)
    assert where.contributions(target.token)[3:].tolist() == [0.0, 0.0, 0.0, 0.0]
