"""Resolved values stay known until their position is decided."""

from __future__ import annotations

import torch

from common.aggregation.race import RaceAggregation
from common.placement.policy import Fixed
from common.sampling.race import RaceSampler
from common.session.announcements import draft_message
from common.session.session import Session
from common.session.values import Action, LocalDraft, Send, SessionConfig
from proto.digest import EMPTY
from proto.messages import Resolve, Resolved
from tests.support.looking_up import settled

VOCABULARY = 16


def asked(actions: list[Action]) -> list[int]:
    """The lengths of the lists that are asked for."""
    sent = [action.message for action in actions if isinstance(action, Send)]
    return [message.depth for message in sent if isinstance(message, Resolve)]


class TestRepeatedDraft:
    def test_does_not_undo_what_was_resolved(self) -> None:
        """A `Sync` makes the cloud repeat its drafts while the lists that the device asked for are on their way."""
        sampler = RaceSampler(1, 0.0, 1, VOCABULARY)
        aggregation = RaceAggregation(sampler, VOCABULARY, exact=True, hide_ids=True)
        config = SessionConfig(1, "device", frozenset(), 4, VOCABULARY)
        device = Session("device", config, aggregation, Fixed("device"), 2)
        rising = torch.arange(1, VOCABULARY + 1, dtype=torch.float32)
        own, others = (aggregation.drafted(0, each / each.sum(), None) for each in (rising, rising.flip(0)))
        announced = draft_message(config, 0, LocalDraft(0, EMPTY, others, 0.0, 0), aggregation.pack(others))

        device.drafted(LocalDraft(0, EMPTY, own, 0.0, 0))
        assert asked(settled(device, device.received(announced))) == [2]
        for depth in (2, 4):
            payload = aggregation.supply(others, (), depth)
            assert asked(settled(device, device.received(Resolved(1, 0, EMPTY, depth, payload)))) == [2 * depth]
            assert asked(settled(device, device.received(announced))) == []
            assert asked(settled(device, device.stalled())) == [2 * depth]
            assert asked(settled(device, device.received(announced))) == []
            assert asked(settled(device, device.received(Resolved(1, 0, EMPTY, depth, payload)))) == []
