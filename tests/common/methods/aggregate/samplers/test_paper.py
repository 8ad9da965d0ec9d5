"""Drafts of the paper's sampler within a session's bounds: what they take is known, and no more are made."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from common.answer.values import Send, SideDraft
from common.estimates.estimators import SpeculationLimits
from common.estimates.policy import FixedSide
from common.methods.aggregate.drafts import MOST_BYTES
from common.methods.aggregate.session import Session, SessionConfig
from common.methods.paper.sampler import PaperSampler
from proto.codes import RawEntries
from proto.messages import Side

VOCABULARY = 151_936
FLAT = torch.full((VOCABULARY,), 1 / VOCABULARY)
SURE = torch.zeros(VOCABULARY).index_fill(0, torch.tensor([7]), 1.0)
Codec = Literal["top-p", "raw"]


def aggregation(role: Side, codec: Codec) -> PaperSampler:
    return PaperSampler(1, 1.0, 1.0, codec, VOCABULARY, role)


@pytest.mark.parametrize("codec", ["top-p", "raw"])
@pytest.mark.parametrize("probabilities", [FLAT, SURE], ids=["flat", "sure"])
def test_a_received_draft_takes_no_more_than_its_footprint(codec: Codec, probabilities: torch.Tensor) -> None:
    sent = aggregation("device", codec).drafted(0, probabilities, None)
    cloud = aggregation("cloud", codec)
    view = cloud.read("device", 0, cloud.pack(sent))
    entries = view.entries
    listed = (entries.probabilities,) if isinstance(entries, RawEntries) else (entries.ids, entries.weights)
    arrays = (view.distribution.ids, view.distribution.probabilities, *listed)
    assert sum(array.nbytes for array in arrays) <= cloud.footprint(view) <= MOST_BYTES


@pytest.mark.parametrize("codec", ["top-p", "raw"])
def test_no_side_drafts_more_than_the_other_one_keeps(codec: Codec) -> None:
    config = SessionConfig(1, "cloud", frozenset(), 128, VOCABULARY)
    device, cloud = (
        Session(side, config, aggregation(side, codec), FixedSide("cloud"), SpeculationLimits(64))
        for side in ("device", "cloud")
    )
    drafter, sent = aggregation("device", codec), 0
    while (work := device.work) is not None:
        view = drafter.drafted(work.position, FLAT, None)
        for action in device.drafted(SideDraft(view, 0.0, position=work.position, digest=work.digest)):
            assert isinstance(action, Send)
            cloud.received(action.message)
            sent += 1
    assert 8 < sent < 64
    assert cloud.remote._count == sent
    assert device.waiting
