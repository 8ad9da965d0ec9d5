"""One answer under a virtual clock: a scenario in, its latency and what caused it out.

The real sessions replay a sequence of accepted drafts, with the estimates that the daemons' own estimators make of
virtual measurements. All times are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from common.answer.patience import WaitLimits
from common.answer.values import Commit, View
from common.estimates.estimators import (
    DIGEST_PERIOD,
    DecodeDelay,
    DecodeLine,
    Pace,
    PeerModel,
    RoundTripTime,
    SpeculationLimits,
)
from common.estimates.policy import Estimates, first_aggregator, placement_policy
from common.methods.aggregate.session import Session, SessionConfig
from common.sampling.certificate import Decision
from proto.errors import malformed
from proto.messages import Draft, Message, Placement, Side
from scripts.simulation.world import Clock, Fate, SimulatedLink, SimulatedSide


@dataclass(frozen=True, slots=True)
class Position:
    """One position: True for each side whose draft after the right prefix is the target."""

    device: bool
    cloud: bool


Answer = tuple[Position, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """Every position alike and independent of the others: alpha of each side, and how often both are accepted."""

    device: float
    cloud: float
    both: float

    @classmethod
    def independent(cls, device: float, cloud: float) -> Rates:
        """Rates of two sides whose acceptance is independent."""
        return cls(device, cloud, device * cloud)

    def draw(self, tokens: int, seed: int) -> Answer:
        """An answer, the same for the same seed."""
        uniform = np.random.default_rng(seed).random(tokens)
        # [0, both) both, [both, device) the device's alone, [device, device + cloud - both) the cloud's alone
        only_cloud = (uniform >= self.device) & (uniform < self.device + self.cloud - self.both)
        return tuple(
            Position(bool(device), bool(both or cloud))
            for device, both, cloud in zip(uniform < self.device, uniform < self.both, only_cloud, strict=True)
        )


SINUSOID_PERIOD = 20 * math.pi  # of §7.4
JITTER_SHARE = 0.2  # of the extra latency (§7.3)


@dataclass(frozen=True, slots=True)
class Sinusoid:
    """Jitter that swings the extra latency by `share` of it, as in §7.4."""

    share: float = JITTER_SHARE
    period: float = SINUSOID_PERIOD

    def factor(self, now: float, random: np.random.Generator) -> float:
        return 1.0 + self.share * math.sin(2 * math.pi * now / self.period)


@dataclass(frozen=True, slots=True)
class Scatter:
    """Jitter that is drawn anew for every message, evenly within `share` of the extra latency on either side."""

    share: float = JITTER_SHARE

    def factor(self, now: float, random: np.random.Generator) -> float:
        return 1.0 + self.share * float(random.uniform(-1.0, 1.0))


@dataclass(frozen=True, slots=True)
class Way:
    """The network between the sides, alike in both directions; messages keep their order."""

    rtt: float = 0.0  # of the network as it is
    extra: float = 0.0  # added to the round trip; half of it on either way
    jitter: Sinusoid | Scatter | None = None  # of the extra latency

    def one_way(self, now: float, random: np.random.Generator) -> float:
        """Seconds that a small message is under way when sent at `now`."""
        factor = 1.0 if self.jitter is None else self.jitter.factor(now, random)
        return 0.5 * (self.rtt + self.extra * factor)


TARGET = 0
WRONG: dict[Side, int] = {"device": 1, "cloud": 2}


@dataclass(frozen=True, slots=True)
class Scripted:
    """View of a scripted draft: its token alone."""

    token: int


@dataclass(frozen=True, slots=True)
class ScriptedPredictor:
    """One side's drafts."""

    side: Side
    answer: Answer

    def predict(self, position: int, prefix: Sequence[int]) -> tuple[View, float]:
        if any(prefix):
            return Scripted(WRONG[self.side]), 0.0
        accepted = getattr(self.answer[position], self.side)
        return Scripted(TARGET if accepted else WRONG[self.side]), 0.0


@dataclass(frozen=True, slots=True)
class ScriptedAggregation:
    """Decides as the sequence says. Certificates never fail: of thousands of real positions, few do."""

    answer: Answer

    def pack(self, view: Scripted) -> bytes:
        return bytes([view.token])

    def read(self, side: Side, position: int, payload: bytes) -> Scripted:
        if len(payload) != 1 or payload[0] not in (TARGET, WRONG[side]):
            raise malformed(f"a scripted draft is one byte, not {payload[:8]!r}")
        return Scripted(payload[0])

    def footprint(self, view: Scripted) -> int:
        return 1

    def aggregate(
        self, role: Side, position: int, device: Scripted, cloud: Scripted, evidence: tuple[float, float]
    ) -> Decision:
        return Decision(TARGET)

    def alone(self, position: int, view: Scripted) -> Decision:
        return Decision(view.token)

    def rivals(self, view: Scripted) -> tuple[()]:
        """None: a script does not tell which tokens come next."""
        return ()

    def check_resolve(self, ids: Sequence[int], depth: int) -> None:
        raise malformed("a scripted draft has nothing to resolve")

    def supply(self, view: Scripted, ids: Sequence[int], depth: int) -> bytes:
        raise malformed("a scripted draft has nothing to resolve")

    def complete(self, view: Scripted, position: int, ids: Sequence[int], depth: int, payload: bytes) -> Scripted:
        raise malformed("a scripted draft has nothing to resolve")


class SimulatedProfiler:
    """Probes the link and digests measurements from time to time. Nothing of the simulation's truth gets in."""

    def __init__(
        self, clock: Clock, role: Side, own: DecodeLine, remote: DecodeLine, round_trip: Callable[[], float]
    ) -> None:
        """`own` and `remote` are the sides' offline profiles; `round_trip` gives the seconds that a probe takes now."""
        self.digested: Callable[[], None] = lambda: None  # called when there may be other estimates
        self._clock = clock
        self._own = DecodeDelay(own)
        self._model = PeerModel(role, self._own, remote)
        self._round_trip = round_trip
        self._link = RoundTripTime()
        self._pace = Pace()
        self._outstanding = 0
        self._measured: list[Callable[[], None]] = []
        self._snapshot = self._model.estimates()

    def start(self) -> None:
        """Runs for as long as the clock does."""
        if self._pace.due(self._clock.now, self._link.settled, self._outstanding):
            trip = self._round_trip()
            self._outstanding += 1
            self._clock.after(trip, lambda: self._returned(trip))
        for take_in in self._measured:
            take_in()
        self._measured.clear()
        self._snapshot = self._model.estimates()
        self.digested()
        self._clock.after(DIGEST_PERIOD, self.start)

    def estimates(self) -> Estimates:
        return replace(self._snapshot, rtt=self._link.estimate or 0.0)

    def run_ahead(self, maximum: int) -> int:
        return self._model.run_ahead(self._link.upper(), maximum)

    # --- measurements

    def decoded(self, context: int, seconds: float) -> None:
        self._model.decoded(context)
        self._measured.append(lambda: self._own.observe(float(context), seconds))

    def received(self, message: Message) -> None:
        if isinstance(message, Draft):
            seconds = message.decode_time / 1e6
            self._measured.append(lambda: self._model.remote_decoded(seconds))

    def observe_acceptance(self, commit: Commit) -> None:
        self._measured.append(lambda: self._model.observe_acceptance(commit.expected, commit.accepted))

    def judged_before(self, accepted: Mapping[Side, bool]) -> None:
        """Take in a verdict of an earlier answer, known from the start."""
        self._model.observe_acceptance(None, accepted)

    def _returned(self, trip: float) -> None:
        self._outstanding -= 1
        self._link.observe(trip)


SIDES: Final[tuple[Side, Side]] = ("device", "cloud")
EARLIER: Final = 5.0  # seconds that the daemons were connected, and probed their link, before the question came
MOST_SECONDS: Final = 1e6  # of an answer; a longer one is stuck
SHORTEST_RESYNC: Final = 1.0  # seconds
PROMPT: Final = 256  # tokens of context before the answer, as the profiles have it


class StepCosts(NamedTuple):
    """Seconds that an answer costs beside its decode steps and the network."""

    step: float = 0.6e-3  # per decode step: sessions, queues and payloads
    message: float = 1.0e-3  # per message: threads and sockets of both ends


USUAL: Final = StepCosts()


@dataclass(frozen=True, slots=True)
class Scenario:
    """Everything that an answer's latency depends on. Times are seconds."""

    device: float  # of a decode step
    cloud: float
    way: Way
    acceptance: Rates
    placement: Placement = "device"
    tokens: int = 100
    synchronous: bool = False  # one draft at a time (DRDG/TW)
    run_ahead: int = 64  # drafts beyond the committed prefix, at most
    paper_rule: bool = False  # of `greedy`: Eq. 6
    earlier: Answer = ()  # what both sides' acceptance estimates have seen before this answer
    work: StepCosts = USUAL


class SimulatedAnswer(NamedTuple):
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
    """Run one answer: both sessions, both links, both profilers. The same for the same arguments."""
    answer = scenario.acceptance.draw(scenario.tokens, seed)
    clock, random = Clock(), np.random.default_rng((seed, 2))
    step: dict[Side, float] = {"device": scenario.device, "cloud": scenario.cloud}
    others = dict(zip(SIDES, reversed(SIDES), strict=True))

    def one_way() -> float:
        return scenario.way.one_way(clock.now, random) + scenario.work.message

    profilers: dict[Side, SimulatedProfiler] = {}
    for role, other in others.items():
        own, remote = (DecodeLine.of(0.0, step[side], PROMPT) for side in (role, other))
        profilers[role] = SimulatedProfiler(clock, role, own, remote, lambda: one_way() + one_way())
        for position in scenario.earlier:
            profilers[role].judged_before({"device": position.device, "cloud": position.cloud})
    for profiler in profilers.values():
        clock.after(float(random.uniform(0.0, 0.5)), profiler.start)
    clock.run(EARLIER, lambda: False)
    estimates, rule = {role: profiler.estimates for role, profiler in profilers.items()}, scenario.paper_rule
    first = first_aggregator(scenario.placement, estimates["device"](), rule)
    config = SessionConfig(1, scenario.placement, frozenset(), len(answer), len(WRONG) + 1)
    resync = max(SHORTEST_RESYNC, 4 * (2 * (scenario.way.rtt + scenario.way.extra) + max(step.values())))
    sides: dict[Side, SimulatedSide] = {}
    for role in SIDES:
        policy = placement_policy(scenario.placement, seed, estimates[role], role, rule, first)
        ahead = SpeculationLimits(1 if scenario.synchronous else scenario.run_ahead)
        sides[role] = SimulatedSide(
            clock,
            Session(role, config, ScriptedAggregation(answer), policy, ahead),
            ScriptedPredictor(role, answer),
            partial(_decode_seconds, step[role]),
            WaitLimits(resync, math.inf),
            decoded=partial(_decoded, profilers[role]),
            observe_acceptance=profilers[role].observe_acceptance,
            step_overhead=scenario.work.step,
        )
        if not scenario.synchronous:
            profilers[role].digested = partial(_follow, sides[role], profilers[role], scenario.run_ahead)
    for sender, receiver in others.items():
        deliver = partial(_deliver, profilers[receiver], sides[receiver])
        sides[sender].send = SimulatedLink(clock, deliver, lambda message: Fate((one_way(),))).send
    device, cloud = sides["device"], sides["cloud"]
    clock.after(0.0, device.start)
    clock.after(one_way(), cloud.start)
    if not clock.run(MOST_SECONDS, lambda: device.session.finished is not None):
        raise RuntimeError("the simulated answer never ended")
    counters = device.session.counters
    return SimulatedAnswer(
        tuple(time - EARLIER for time, _ in device.commits),
        {"device": counters.drafted, "cloud": cloud.session.counters.drafted},
        dict(counters.accepted),
        dict(counters.rollbacks),
        counters.switches,
    )


def _decode_seconds(seconds: float, position: int) -> float:
    """Every position takes as long."""
    return seconds


def _decoded(profiler: SimulatedProfiler, position: int, seconds: float) -> None:
    profiler.decoded(PROMPT + position, seconds)


def _follow(side: SimulatedSide, profiler: SimulatedProfiler, most: int) -> None:
    """Look as far ahead as the profiler says now."""
    if side.session.ahead.max_drafts != (drafts := profiler.run_ahead(most)):
        side.look_ahead(SpeculationLimits(drafts))


def _deliver(profiler: SimulatedProfiler, side: SimulatedSide, message: Message) -> None:
    profiler.received(message)
    side.receive(message)
