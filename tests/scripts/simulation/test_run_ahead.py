"""Drafts that hardly ever survive are not made, and the answer takes no longer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from common.answer.patience import WaitLimits
from common.estimates.estimators import SpeculationLimits
from common.estimates.policy import SURVIVAL, run_ahead
from common.methods.aggregate.session import SessionConfig
from common.sampling.race import RaceSampler
from proto.messages import Side
from scripts.simulation.world import Fate, Network, SideModel, World
from tests.common.methods.aggregate.table_model import EOS, TableModel, TablePredictor

VOCABULARY = 12
LENGTH = 50
DECODE: dict[Side, float] = {"device": 1.0, "cloud": 0.3}  # seconds
ALWAYS: dict[Side, float] = {"device": 1.0, "cloud": 1.0}


@dataclass(frozen=True)
class OnDevice:
    def next_aggregator(self, position: int, accepted: Mapping[Side, bool]) -> Side:
        return "device"


@dataclass(frozen=True)
class Ran:
    seconds: float  # per token
    drafted: int  # by both sides
    acceptance: dict[Side, float]


def ran(disagreement: float, rtt: float, acceptance: dict[Side, float], survival: float = SURVIVAL) -> Ran:
    """An answer with the run-ahead for `acceptance`."""

    def side(role: Side) -> SideModel:
        aggregation = RaceSampler(5, 1.0, VOCABULARY, VOCABULARY)
        model = TableModel(VOCABULARY, 3, disagreement, end=0.0)
        return SideModel(TablePredictor(model, role, aggregation), aggregation, lambda position: DECODE[role])

    world = World(
        SessionConfig(1, "device", frozenset({EOS}), LENGTH, VOCABULARY),
        side("device"),
        side("cloud"),
        lambda role: OnDevice(),
        Network(lambda sender: Fate((rtt / 2,))),
        WaitLimits(1e4, float("inf")),
        SpeculationLimits(),
    )
    slower = max(DECODE.values())
    for simulated in (world.device, world.cloud):
        role = simulated.session.role
        drafts = run_ahead(rtt + slower, DECODE[role], 128, acceptance[role], survival=survival)
        simulated.session.ahead = SpeculationLimits(drafts)
    assert world.run()
    counters = world.device.session.counters
    drafted = counters.drafted + world.cloud.session.counters.drafted
    assert world.device.finished_at is not None
    shares = {role: counters.accepted[role] / LENGTH for role in DECODE}
    return Ran(world.device.finished_at / LENGTH, drafted, shares)


@pytest.mark.parametrize(("disagreement", "rtt", "left"), [(1.0, 20.0, 0.6), (0.3, 20.0, 1.0)])
def test_fewer_drafts_and_no_more_seconds(disagreement: float, rtt: float, left: float) -> None:
    """`left` is the share of drafts that is still made, at most; the less is accepted, the fewer."""
    before = ran(disagreement, rtt, ALWAYS)
    after = ran(disagreement, rtt, before.acceptance)
    assert after.seconds <= 1.01 * before.seconds
    assert after.drafted <= left * before.drafted


def test_giving_up_sooner_costs_latency() -> None:
    """The counter-example: drafts that survive one time in three are missed."""
    before = ran(1.0, 20.0, ALWAYS)
    assert ran(1.0, 20.0, before.acceptance, survival=1 / 3).seconds > 1.05 * before.seconds
