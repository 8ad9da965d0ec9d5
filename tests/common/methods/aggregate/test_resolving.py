"""Resolved values stay known until their position is decided."""

from __future__ import annotations

import pytest
import torch

from common.answer.values import Send
from common.estimates.ahead import Ahead
from common.estimates.policy import Fixed
from common.methods.aggregate.machine.announcements import draft_message
from common.methods.aggregate.machine.questions import MOST_LOOK_UPS, Questions
from common.methods.aggregate.machine.session import Session
from common.methods.aggregate.machine.values import Action, LocalDraft, LookUp, SessionConfig
from common.methods.aggregate.samplers.race import RaceAggregation
from common.sampling.race import RaceSampler
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
        device = Session("device", config, aggregation, Fixed("device"), Ahead(2))
        rising = torch.arange(1, VOCABULARY + 1, dtype=torch.float32)
        own, others = (aggregation.drafted(0, each / each.sum(), None) for each in (rising, rising.flip(0)))
        announced = draft_message(config, 0, LocalDraft(0, EMPTY, others, 0.0, 0), aggregation.pack(others))

        assert device.work is not None
        device.drafted(LocalDraft(0, EMPTY, own, 0.0, 0))
        assert asked(settled(device, device.received(announced))) == [2]
        for depth in (2, 4):
            payload = aggregation.supply(others, (), depth)
            assert asked(settled(device, device.received(Resolved(1, 0, EMPTY, depth, payload)))) == [2 * depth]
            assert asked(settled(device, device.received(announced))) == []
            assert asked(settled(device, device.stalled())) == [2 * depth]
            assert asked(settled(device, device.received(announced))) == []
            assert asked(settled(device, device.received(Resolved(1, 0, EMPTY, depth, payload)))) == []


class TestLookUps:
    """Look-ups for the other side are made a few at a time; those that are done make room."""

    ASKED = 3 * MOST_LOOK_UPS

    def answered(self) -> int:
        """Of `ASKED` questions, each asked when the one before is done."""
        sampler = RaceSampler(1, 0.0, 1, VOCABULARY)
        aggregation = RaceAggregation(sampler, VOCABULARY, exact=True, hide_ids=True)
        config = SessionConfig(1, "device", frozenset(), 4, VOCABULARY)
        cloud = Session("cloud", config, aggregation, Fixed("device"), Ahead(2))
        rising = torch.arange(1, VOCABULARY + 1, dtype=torch.float32)
        assert cloud.work is not None
        cloud.drafted(LocalDraft(0, EMPTY, aggregation.drafted(0, rising / rising.sum(), None), 0.0, 0))
        actions: list[Action] = []
        for _ in range(self.ASKED):
            actions += settled(cloud, cloud.received(Resolve(1, 0, EMPTY, (), 2)))
        return sum(isinstance(action, Send) and isinstance(action.message, Resolved) for action in actions)

    def test_every_question_is_answered(self) -> None:
        assert self.answered() == self.ASKED

    def test_mutant_those_done_are_not_counted_down(self, monkeypatch: pytest.MonkeyPatch) -> None:
        looked_up = Questions.looked_up

        def kept(self: Questions, look_up: LookUp, payload: bytes) -> list[Action]:
            actions = looked_up(self, look_up, payload)
            self._others += look_up.asked
            return actions

        monkeypatch.setattr(Questions, "looked_up", kept)
        assert self.answered() == MOST_LOOK_UPS
