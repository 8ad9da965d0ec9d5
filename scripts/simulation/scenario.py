"""One answer under a virtual clock: a scenario in, its latency and what caused it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from common.answer.patience import Patience
from common.estimates.ahead import Ahead
from common.estimates.policy import first_aggregator, placement_policy
from common.methods.aggregate.session import Session, SessionConfig
from proto.messages import Message, Placement, Side
from scripts.simulation.acceptance import AcceptanceModel, Answer
from scripts.simulation.clock import Clock
from scripts.simulation.link import Fate, SimulatedLink
from scripts.simulation.profiling import SimulatedProfiler
from scripts.simulation.scripted import WRONG, ScriptedAggregation, ScriptedPredictor
from scripts.simulation.side import SimulatedSide
from scripts.simulation.timing import DecodeTime, Sending, Way

SIDES: Final[tuple[Side, Side]] = ("device", "cloud")
BOTH: Final[frozenset[Side]] = frozenset(SIDES)
EARLIER: Final = 5.0  # seconds that the daemons were connected, and probed their link, before the question came
MOST_SECONDS: Final = 1e6  # of an answer; a longer one is stuck
NEVER: Final = float("inf")
SHORTEST_RESYNC: Final = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Seconds that an answer costs beside its decode steps and the network."""

    step: float = 0.6e-3  # per decode step: sessions, queues and payloads
    message: float = 1.0e-3  # per message: threads and sockets of both ends
    prepare_device: float = 0.0  # retrieval and prefill
    prepare_cloud: float = 0.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that an answer's latency depends on. Times are seconds."""

    device: DecodeTime
    cloud: DecodeTime
    way: Way
    acceptance: AcceptanceModel
    placement: Placement = "device"
    tokens: int = 100  # at most: a recorded answer may be shorter
    synchronous: bool = False  # one draft at a time (DRDG/TW)
    participants: frozenset[Side] = BOTH
    run_ahead: int = 64  # drafts beyond the committed prefix, at most
    paper_rule: bool = False  # of `greedy`: Eq. 6
    earlier: Answer = ()  # what both sides' acceptance estimates have seen before this answer
    work: StepCosts = field(default_factory=StepCosts)

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.run_ahead < 1:
            raise ValueError(f"tokens and run-ahead must be at least 1, got {self.tokens} and {self.run_ahead}")
        if not self.participants:
            raise ValueError("an answer needs at least one side")


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """One simulated answer, as the device's user sees it."""

    times: tuple[float, ...]  # seconds from the question to each token
    drafted: dict[Side, int]
    accepted: dict[Side, int]
    rollbacks: dict[Side, int]
    switches: int  # of the aggregator, as far as the device knows

    @property
    def seconds(self) -> float:
        return self.times[-1]

    @property
    def ttft(self) -> float:
        return self.times[0]

    @property
    def per_token(self) -> float:
        """Seconds per token after the first, as in the report of a real answer."""
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1) if len(self.times) > 1 else 0.0


def simulate(scenario: Scenario, seed: int) -> SimulatedAnswer:
    """Run one answer: both sessions, both links, both profilers. The same for the same arguments.

    Raises `ValueError` for a placement or a share of jitter that there isn't.
    """
    return _Run(scenario, seed).outcome()


class _Run:
    """The parts of one simulated answer, wired to each other."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._scenario = scenario
        self._answer = scenario.acceptance.draw(scenario.tokens, seed)
        self._clock = Clock()
        self._random = np.random.default_rng((seed, 2))
        self._seed = seed
        both = len(scenario.participants) > 1
        # One side alone needs nobody's draft: it decides, and the cloud announces.
        placement = scenario.placement if both else next(iter(scenario.participants))
        self._config = SessionConfig(
            1, placement, frozenset(), len(self._answer), len(WRONG) + 1, scenario.participants
        )
        way, work = scenario.way, scenario.work
        self._sending = {side: Sending(way, lambda: self._clock.now, self._random, work.message) for side in SIDES}
        self._profilers = {side: self._profiler(side) for side in SIDES}
        for side in SIDES:
            self._clock.after(float(self._random.uniform(0.0, 0.5)), self._profilers[side].start)
        self._clock.run(EARLIER, lambda: False)
        self._first = first_aggregator(placement, self._profilers["device"].estimates(), scenario.paper_rule)
        self._sides = {side: self._side(side) for side in SIDES}
        for side, other in (SIDES, SIDES[::-1]):
            link = self._link(side, other)
            self._sides[side].send = link.send

    def outcome(self) -> SimulatedAnswer:
        device, cloud = self._sides["device"], self._sides["cloud"]
        work = self._scenario.work
        self._clock.after(work.prepare_device, device.start)
        self._clock.after(self._sending["device"].delay(None) + work.prepare_cloud, cloud.start)
        if not self._clock.run(MOST_SECONDS, lambda: device.session.finished is not None):
            raise RuntimeError("the simulated answer never ended")
        counters = device.session.counters
        return SimulatedAnswer(
            tuple(time - EARLIER for time, _ in device.commits),
            {"device": counters.drafted, "cloud": cloud.session.counters.drafted},
            dict(counters.accepted),
            dict(counters.rollbacks),
            counters.switches,
        )

    def _profiler(self, side: Side) -> SimulatedProfiler:
        scenario = self._scenario
        own, other = (scenario.device, scenario.cloud) if side == "device" else (scenario.cloud, scenario.device)

        def round_trip() -> float:
            return sum(self._sending[sender].delay(None) for sender in SIDES)

        profiler = SimulatedProfiler(self._clock, side, own.line, other.line, round_trip)
        for position in scenario.earlier:
            profiler.judged_before({"device": position.device, "cloud": position.cloud})
        return profiler

    def _side(self, role: Side) -> SimulatedSide:
        scenario, profiler = self._scenario, self._profilers[role]
        decode = scenario.device if role == "device" else scenario.cloud
        policy = placement_policy(
            self._config.placement, self._seed, profiler.estimates, role, scenario.paper_rule, self._first
        )
        most = 1 if scenario.synchronous else scenario.run_ahead
        session = Session(role, self._config, ScriptedAggregation(self._answer), policy, Ahead(most))
        slowest = max(scenario.device.mean(scenario.tokens), scenario.cloud.mean(scenario.tokens))
        resync = max(SHORTEST_RESYNC, 4 * (2 * (scenario.way.rtt + scenario.way.extra) + slowest))
        side = SimulatedSide(
            self._clock,
            session,
            ScriptedPredictor(role, self._answer, alone=len(scenario.participants) == 1),
            lambda position: decode.seconds(position, self._random),
            Patience(resync, NEVER),
            decoded=lambda position, seconds: profiler.decoded(decode.prompt + position, seconds),
            observe_acceptance=profiler.observe_acceptance,
            step_overhead=scenario.work.step,
        )
        if not scenario.synchronous:
            profiler.digested = lambda: self._follow(side, profiler.run_ahead(scenario.run_ahead))
        return side

    @staticmethod
    def _follow(side: SimulatedSide, run_ahead: int) -> None:
        if side.session.ahead.drafts != run_ahead:
            side.look_ahead(Ahead(run_ahead))

    def _link(self, sender: Side, receiver: Side) -> SimulatedLink[Message]:
        sending, side, profiler = self._sending[sender], self._sides[receiver], self._profilers[receiver]

        def deliver(message: Message) -> None:
            profiler.received(message)
            side.receive(message)

        return SimulatedLink(self._clock, deliver, lambda message: Fate((sending.delay(message),)))
