"""A link may be slow from the start or become slow: a cloud that lives is waited for, or taken back soon."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from common.answer.patience import WaitLimits
from common.estimates.estimators import DecodeLine, SpeculationLimits
from common.estimates.policy import Estimates, placement_policy
from proto.messages import Placement, Sampler, Side
from scripts.simulation.scenario import SimulatedProfiler
from scripts.simulation.world import Fate, Network, Outage, World
from tests.common.methods.aggregate.table_model import TableModel
from tests.scripts.simulation.worlds import Setting, build, one_process

VOCABULARY = 12
PATIENCE = 2.0  # seconds, the default setting
PREFILL_PATIENCE = 15.0
STEP: dict[Side, float] = {"device": 0.05, "cloud": 0.03}
USUAL = 0.1  # round trip before the link becomes slow, seconds
CONNECTED = 5.0  # seconds before the question
LENGTH = 60
MOST_AHEAD = 64  # drafts
USUALLY_AHEAD = 4  # on the link that is not slow: what was drafted while waiting is shown when patience ends
SEED = 5
Trip = Callable[[float], float]  # seconds that a round trip takes, by the time


def in_turn(*cases: object) -> list[Any]:
    """Every case in every placement; the samplers take turns, so that each meets all cases, and soon all placements."""
    turns: list[Any] = []
    for number, case in enumerate(cases):
        for place, placement in enumerate(get_args(Placement)):
            samplers = [each for each in get_args(Sampler) if (placement, each) != ("mirrored", "paper")]
            turns.append((placement, samplers[(place + number) % len(samplers)], case))
    return turns


class Answered:
    """An answer over a link that both daemons measure as the real ones do, from before the question."""

    def __init__(
        self,
        placement: Placement,
        sampler: Sampler,
        trip: Trip,
        outages: tuple[Outage, ...] = (),
        read: float = 0.0,
        length: int = LENGTH,
        waits: Callable[[WaitLimits], WaitLimits] = lambda limits: limits,
    ) -> None:
        """`read`: seconds that the cloud takes to read its documents. Times are counted from the question."""
        self.model = TableModel(VOCABULARY, SEED, disagreement=0.6, end=0.0)
        self._profilers: dict[Side, SimulatedProfiler] = {}
        network = Network(lambda sender: Fate((trip(self.world.clock.now - CONNECTED) / 2,)), outages=outages)
        self.world: World = build(
            Setting(placement, ("device",)),
            self.model,
            SEED,
            1.0,
            8,
            length,
            network,
            np.random.default_rng(1),
            SpeculationLimits(MOST_AHEAD),
            sampler=sampler,
            policy=lambda role: placement_policy(placement, SEED, lambda: self._estimates(role), role),
        )
        world, clock = self.world, self.world.clock
        lines: dict[Side, DecodeLine] = {side: DecodeLine.of(0.0, STEP[side], 256) for side in STEP}
        pairs: tuple[tuple[Side, Side], ...] = (("device", "cloud"), ("cloud", "device"))
        for side, other in pairs:
            self._profilers[side] = SimulatedProfiler(
                clock, side, lines[side], lines[other], lambda: trip(clock.now - CONNECTED)
            )
            self._profilers[side].start()
        world.device.decode_seconds = lambda position: STEP["device"]
        world.cloud.decode_seconds = lambda position: STEP["cloud"]

        def follow() -> None:
            session, profiler = world.device.session, self._profilers["device"]
            limits = WaitLimits.of(profiler.estimates(), profiler._link.upper(), PATIENCE)
            if not session.heard:
                limits = replace(limits, patience=max(limits.patience, PREFILL_PATIENCE))
            world.device.limits = waits(limits)
            world.device.look_ahead(SpeculationLimits(profiler.run_ahead(MOST_AHEAD)))

        self._profilers["device"].digested = follow
        self._profilers["cloud"].digested = lambda: world.cloud.look_ahead(
            SpeculationLimits(self._profilers["cloud"].run_ahead(MOST_AHEAD))
        )
        clock.run(CONNECTED, lambda: False)
        world.device.start()
        clock.after(trip(0.0) / 2 + read, world.cloud.start)
        assert clock.run(CONNECTED + 300.0, lambda: world.device.session.finished is not None)

    def _estimates(self, side: Side) -> Estimates:
        profiler = self._profilers.get(side)
        return Estimates(STEP["device"], STEP["cloud"], 0.0, 0.5, 0.5) if profiler is None else profiler.estimates()

    @property
    def degraded(self) -> list[int]:
        return self.world.device.session.counters.degraded

    @property
    def tokens(self) -> list[int]:
        return list(self.world.device.session.committed)

    @property
    def waited(self) -> float:
        """Seconds without a token before the first degraded one."""
        times = [time for time, _ in self.world.device.commits]
        first = times[self.degraded[0]]
        return first - max(time for time in times if time < first)


class TestLivingCloud:
    @pytest.mark.parametrize(("placement", "sampler", "seconds"), in_turn(1.4, 3.0))
    def test_is_waited_for_when_the_link_was_slow_from_the_start(
        self, placement: Placement, sampler: Sampler, seconds: float
    ) -> None:
        answered = Answered(placement, sampler, lambda now: seconds)
        assert answered.degraded == []
        if sampler == "race":
            assert answered.tokens == one_process(answered.model, SEED, 1.0, LENGTH)

    @pytest.mark.parametrize(
        ("placement", "sampler", "change"), in_turn((1.0, 0.2), (0.3, 1.4), (1.0, 1.4), (0.3, 3.0))
    )
    def test_is_waited_for_or_taken_back_when_the_link_becomes_slow(
        self, placement: Placement, sampler: Sampler, change: tuple[float, float]
    ) -> None:
        """Nothing tells a slow link from a dead cloud before the first word comes, a round trip later."""
        at, seconds = change
        answered = Answered(placement, sampler, lambda now: USUAL if now < at else seconds)
        overdue = max(0.0, seconds + 2 * STEP["cloud"] - PATIENCE)
        assert len(answered.degraded) <= (overdue / STEP["device"] + USUALLY_AHEAD if overdue else 0)
        if answered.degraded:
            assert answered.degraded[-1] < answered.degraded[0] + len(answered.degraded)  # and never again

    @pytest.mark.parametrize(("placement", "sampler", "read"), in_turn(2 * PATIENCE))
    def test_is_waited_for_while_it_reads_and_when_its_first_word_is_there(
        self, placement: Placement, sampler: Sampler, read: float
    ) -> None:
        """The patience for single tokens begins with the first of them, not with the question."""
        assert Answered(placement, sampler, lambda now: USUAL, read=read).degraded == []


@pytest.mark.parametrize("placement", get_args(Placement))
class TestDeadCloud:
    def test_is_given_up_when_patience_ends(self, placement: Placement) -> None:
        """Given up neither before nor long after: with three times the patience, this fails."""
        for trip, patience in ((0.02, PATIENCE), (1.0, 3 * 1.0 + 4 * STEP["cloud"])):
            gone = 2 * trip + 0.5
            outage = Outage(CONNECTED + gone, 1e9)
            answered = Answered(placement, "race", lambda now, trip=trip: trip, (outage,))  # type: ignore[misc]
            assert patience <= answered.waited <= patience + 0.3, trip

    def test_is_waited_for_too_long_with_more_patience(self, placement: Placement) -> None:
        """The counter-example."""
        outage = Outage(CONNECTED + 0.5, 1e9)
        answered = Answered(
            placement,
            "race",
            lambda now: 0.02,
            (outage,),
            waits=lambda limits: replace(limits, patience=3 * limits.patience),
        )
        assert answered.waited > PATIENCE + 0.3
