"""Both mixtures in one process give the token that two sides agree on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from common.aggregation.choice import make_aggregation
from common.aggregation.joint import make_joint
from common.sampling.certificate import NO_EVIDENCE
from common.sampling.mixture import Mixture, aggregate_documents
from common.speculation.values import Decided
from proto.messages import Open

VOCABULARY = 300
RACE = Open(1, "q", "p", 4, 77, 1.0, "race", "race", 300, True, 0.8, "cloud", "both", 1, 8)
REQUESTS = (RACE, replace(RACE, temperature=0.0), replace(RACE, sampler="paper", codec="top-p"),
            replace(RACE, sampler="paper", codec="raw"))  # fmt: skip


def mixture(seed: int, temperature: float) -> Mixture:
    draw = np.random.default_rng(seed)
    logits = torch.from_numpy(draw.normal(0, 2, (3, VOCABULARY)).astype(np.float32))
    return aggregate_documents(logits, draw.normal(0, 1, 3), temperature)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: f"{each.sampler}-{each.codec}-{each.temperature}")
def test_the_token_of_two_sides(request_: Open) -> None:
    sides = {side: make_aggregation(side, request_, VOCABULARY, "cpu") for side in ("device", "cloud")}
    joint = make_joint(request_, VOCABULARY, "cpu")
    tokens = []
    for position in range(60):
        device, cloud = mixture(2 * position, request_.temperature), mixture(2 * position + 1, request_.temperature)
        evidence = (device.evidence, cloud.evidence)
        drafts = [
            sides["device"].draft(position, device.probabilities),
            sides["cloud"].draft(position, cloud.probabilities),
        ]
        remote = sides["device"].read("cloud", position, sides["cloud"].pack(drafts[1]))  # type: ignore[arg-type]
        decided = sides["device"].aggregate("device", position, drafts[0], remote, evidence)  # type: ignore[arg-type]
        assert isinstance(decided, Decided)
        target, where = joint.draft(position, device, cloud, evidence)
        assert target.token == decided.token
        shares = where.contributions(target.token)
        assert shares.shape == (6,)
        assert shares.sum() == pytest.approx(1.0)
        tokens.append(target.token)
    assert len(set(tokens)) > 10


def test_a_side_without_documents_has_no_share() -> None:
    device, cloud = mixture(1, 1.0), mixture(2, 1.0)
    joint = make_joint(RACE, VOCABULARY, "cpu")
    target, where = joint.draft(0, device, cloud, (device.evidence, NO_EVIDENCE))
    assert where.contributions(target.token)[3:].tolist() == [0.0, 0.0, 0.0]
