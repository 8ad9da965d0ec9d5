"""A cloud that was replaced in the middle of an answer knows nothing of it, and takes part again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from common.answer.values import SideDraft, View
from common.estimates.estimators import SpeculationLimits
from common.estimates.policy import FixedSide
from common.methods.aggregate.session import Session, SessionConfig, draft_message
from common.sampling.race import LocalRace, RaceSampler
from proto.messages import Side
from tests.common.methods.aggregate.pump import run
from tests.common.methods.aggregate.table_model import TableModel, TablePredictor

VOCABULARY = 12
LENGTH = 16
SIDES: tuple[Side, Side] = ("device", "cloud")


@dataclass(frozen=True)
class Alternating:
    """The role moves every two positions, starting with `first`."""

    first: int

    def next_aggregator(self, position: int, accepted: object) -> Side:
        return SIDES[(self.first + position // 2) % 2]


class TestReplacedCloud:
    @pytest.mark.parametrize("first", [0, 1])
    @pytest.mark.parametrize("lost_at", range(1, 8))
    def test_it_follows_and_decides_whoever_had_the_role(self, first: int, lost_at: int) -> None:
        model = TableModel(VOCABULARY, 3, end=0.0)
        aggregation = RaceSampler(1, 1.0, 4, VOCABULARY)
        predictors = {side: TablePredictor(model, side, aggregation) for side in SIDES}
        config = SessionConfig(1, "greedy", frozenset({VOCABULARY}), LENGTH, VOCABULARY)

        def session(role: Side) -> Session:
            return Session(role, config, aggregation, Alternating(first), SpeculationLimits(4))

        def predict(side: Side, position: int, path: Sequence[int]) -> tuple[View, float]:
            return predictors[side].predict(position, list(path)[:position])

        order = random.Random(lost_at)
        undisturbed = run(session("device"), session("cloud"), predict, order)
        device, cloud = session("device"), session("cloud")
        run(device, cloud, predict, order, until=lost_at)
        replacement = session("cloud")
        assert run(device, replacement, predict, order, sent=device.rejoined()) == undisturbed
        assert device.counters.degraded == []

    def test_drafts_of_another_cloud_no_longer_count(self) -> None:
        """It has another model or other documents: what the first one drafted ahead is not its word."""
        for changed in (False, True):
            model = TableModel(VOCABULARY, 3, end=0.0)
            aggregation = RaceSampler(1, 1.0, VOCABULARY, VOCABULARY)
            config = SessionConfig(1, "device", frozenset(), LENGTH, VOCABULARY)
            device = Session("device", config, aggregation, FixedSide("device"), SpeculationLimits(4))
            predictors = {side: TablePredictor(model, side, aggregation) for side in SIDES}
            view, evidence = predictors["cloud"].predict(0, [])
            assert isinstance(view, LocalRace)
            draft = SideDraft(view, evidence)
            device.received(draft_message(config, 0, draft, aggregation.pack(view)))
            device.rejoined(changed)
            view, evidence = predictors["device"].predict(0, [])
            assert device.work is not None
            device.drafted(SideDraft(view, evidence))
            assert device.position == (0 if changed else 1)
