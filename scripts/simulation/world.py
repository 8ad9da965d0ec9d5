"""The real sessions of one answer under a virtual clock, with simulated links and decoders."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, Protocol, TypeVar

from common.answer.patience import WaitLimits, Watch
from common.answer.values import Commit, Finish, Send, SideDraft, View, Withdraw
from common.estimates.estimators import SpeculationLimits
from common.methods.aggregate.drafts import DraftWork
from common.methods.aggregate.session import Action, LookUp, PlacementPolicy, Session, SessionConfig, SessionSampler
from proto.messages import Message, Ready, Side


class Clock:
    """Runs callables at virtual times (seconds)."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, delay: float, event: Callable[[], None]) -> None:
        """Run `event` `delay` seconds from now."""
        heapq.heappush(self._events, (self.now + delay, next(self._order), event))

    def run(self, until: float, done: Callable[[], bool]) -> bool:
        """Run events until `done()` or the time `until`; returns whether it was done."""
        while self._events and not done():
            if self._events[0][0] > until:
                self.now = until
                break
            self.now, _, event = heapq.heappop(self._events)
            event()
        return done()


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fate:
    """Fate of one message: copies arrive after these delays (seconds); none means that it is lost."""

    delays: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Outage:
    """Nothing that is sent in [start, end) arrives."""

    start: float
    end: float


@dataclass(slots=True)
class SimulatedLink(Generic[T]):
    """One direction. `fate` is asked once per message; `ordered` keeps the order of arrival, as TCP does."""

    clock: Clock
    deliver: Callable[[T], None]
    fate: Callable[[T], Fate]
    ordered: bool = True
    outages: tuple[Outage, ...] = ()
    sent: int = 0
    _last: float = field(default=0.0)

    def send(self, message: T) -> None:
        self.sent += 1
        now = self.clock.now
        if any(outage.start <= now < outage.end for outage in self.outages):
            return
        for delay in self.fate(message).delays:
            arrival = now + delay
            if self.ordered:
                arrival = max(arrival, self._last)
                self._last = arrival
            self.clock.after(arrival - now, lambda: self.deliver(message))


LOOK = 0.1  # seconds between two looks at the clock, at most; the daemons look more often


class Predictor(Protocol):
    """This side's documents and model: the draft at a position, a function of the prefix alone."""

    def predict(self, position: int, prefix: Sequence[int]) -> tuple[View, float]:
        """The drafted view after `prefix` and the evidence log h."""
        ...


@dataclass(slots=True)
class SimulatedSide:
    """Drives a `Session` as a daemon does: decodes when there is work, pre-empts, delivers, looks at the clock."""

    clock: Clock
    session: Session
    predictor: Predictor
    decode_seconds: Callable[[int], float]  # of a position
    limits: WaitLimits
    send: Callable[[Message], None] = lambda message: None
    decoded: Callable[[int, float], None] = lambda position, seconds: None  # told of every finished step
    documents: bool = True  # whether this side finds any for the question
    observe_acceptance: Callable[[Commit], None] = lambda commit: None  # told of positions where both drafts are known
    step_overhead: float = 0.0  # seconds of work beside the model per step, not part of the step's own time
    commits: list[tuple[float, Commit]] = field(default_factory=list)
    finished_at: float | None = None
    _prepared: bool = False  # what comes before the prefill's end is taken in, but nothing is decoded
    _busy: DraftWork | None = None
    _watch: Watch = field(default_factory=Watch)

    def start(self) -> None:
        """Begin, retrieval being over. A cloud without documents says so, and that is all it does."""
        self._prepared = True
        if not self.documents:
            if self.session.role == "cloud":
                self.send(Ready(self.session.config.session, (), 0, -1.0))
            self._carry_out(self.session.without_documents(self.session.role))
        self._decode()
        self._tick()

    def receive(self, message: Message) -> None:
        self._carry_out(self.session.received(message))

    def look_ahead(self, ahead: SpeculationLimits) -> None:
        """Decode so far ahead from now on."""
        self.session.ahead = ahead
        self._decode()

    def _decode(self) -> None:
        """Begin the next step; a step of an old epoch is given up at once."""
        if self._busy is not None and self._busy.epoch == self.session.epoch:
            return
        work = self._busy = self.session.work if self._prepared else None
        if work is not None:
            seconds = self.decode_seconds(work.position)
            self.clock.after(seconds + self.step_overhead, lambda: self._decoded(work, seconds))

    def _decoded(self, work: DraftWork, seconds: float) -> None:
        if self._busy is not work:
            return
        self._busy = None
        actions: list[Action] = []
        for (position, digest), path in zip(work.prefixes, work.paths, strict=True):
            view, evidence = self.predictor.predict(position, path)
            actions += self.session.drafted(
                SideDraft(view, evidence, position=position, digest=digest, decode_time=int(1e6 * seconds))
            )
        self._carry_out(actions)
        self.decoded(work.position, seconds)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send():
                    self.send(action.message)
                case LookUp():
                    payload = self.session.sampler.supply(action.view, action.ids, action.depth)
                    self._carry_out(self.session.looked_up(action, payload))
                case Commit():
                    self.commits.append((self.clock.now, action))
                    if len(action.accepted) == 2:
                        self.observe_acceptance(action)
                case Withdraw():
                    del self.commits[action.position :]
                    self.finished_at = None
                case Finish():
                    self.finished_at = self.clock.now
        self._decode()

    def _tick(self) -> None:
        if self.session.role == "device":
            again, ended = self._watch.look(self.clock.now, self.session, self.limits)
            self._carry_out(self.session.stalled() if again else [])
            self._carry_out(self.session.out_of_patience() if ended else [])
        self.clock.after(min(self.limits.resync / 4, LOOK), self._tick)


@dataclass(frozen=True, slots=True)
class SideModel:
    """Predictor, aggregation and decode time (seconds) of one side."""

    predictor: Predictor
    aggregation: SessionSampler
    decode_seconds: Callable[[int], float]  # of a position
    documents: bool = True  # whether its library has any for the question


@dataclass(frozen=True, slots=True)
class Network:
    """Both directions of the link. Delays are asked for each message, in seconds."""

    fate: Callable[[Side], Fate]  # of a message sent by that side
    ordered: bool = True
    outages: tuple[Outage, ...] = ()


class World:
    """Two sessions that answer one question together."""

    def __init__(
        self,
        config: SessionConfig,
        device: SideModel,
        cloud: SideModel,
        policy: Callable[[Side], PlacementPolicy],
        network: Network,
        limits: WaitLimits,
        ahead: SpeculationLimits,
    ) -> None:
        self.clock = Clock()

        def side(role: Side, model: SideModel) -> SimulatedSide:
            session, seconds = Session(role, config, model.aggregation, policy(role), ahead), model.decode_seconds
            return SimulatedSide(self.clock, session, model.predictor, seconds, limits, documents=model.documents)

        def link(sender: Side, receiver: SimulatedSide) -> SimulatedLink[Message]:
            return SimulatedLink(
                self.clock, receiver.receive, lambda message: network.fate(sender), network.ordered, network.outages
            )

        self.device, self.cloud = side("device", device), side("cloud", cloud)
        self.up, self.down = link("device", self.cloud), link("cloud", self.device)
        self.device.send, self.cloud.send = self.up.send, self.down.send

    def run(self, until: float = 1e6) -> bool:
        """Run to the end of the device's answer; returns whether it came before the time `until`."""
        self.device.start()
        self.cloud.start()
        return self.clock.run(until, lambda: self.device.session.finished is not None)
