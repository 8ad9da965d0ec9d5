"""Two real halves of one answer in one thread: what the decoder and link threads do per token, stage by stage."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from common.answer.driver import NullObserver
from common.answer.values import Commit, Drawn
from common.engine.draw import Sample, draw
from common.engine.jobs import ScoringRun
from common.engine.model.tokenizer import StopFilter, StreamDecoder, Tokenizer
from common.estimates.ahead import Ahead
from common.estimates.policy import Fixed
from common.methods.aggregate.drafts import LocalDraft
from common.methods.aggregate.driver import SessionDriver, make_sampler
from common.methods.aggregate.session import Action, Session, SessionConfig
from common.methods.interface import TOP_P
from common.sampling.paper import PaperSampler
from common.sampling.race import RaceKernel, RaceSampler
from proto.framing import LARGEST_PAYLOAD, decode, encode, wire_size
from proto.messages import Message, Open, Side
from scripts.bench.engine.stages import Stages

SIDES: tuple[Side, Side] = ("device", "cloud")

TYPICAL_STEP = 5000  # microseconds; told in every draft, and as long on the wire as any from 0.3 to 65 ms

SCORER, MIXTURE, DRAFT = "document weights", "mixture and race", "own list"
READ, AGGREGATE, SESSION = "received draft", "certificate", "session"
WIRE, ANSWER, TEXT = "packing and framing", "answer", "text"
# The parts of a sampler, by method.
TIMED = {"drafted": DRAFT, "pack": WIRE, "read": READ, "aggregate": AGGREGATE, "supply": WIRE, "complete": READ}
STAGES = (SCORER, MIXTURE, DRAFT, READ, AGGREGATE, SESSION, WIRE, ANSWER, TEXT)


class Source(Protocol):
    """Origin of a side's logits."""

    def logits(self, path: Sequence[int]) -> torch.Tensor:
        """`[docs, >= vocab]` after `path`."""
        ...


class TimedAggregation:
    """A sampler of sessions whose parts are timed."""

    def __init__(self, inner: RaceSampler | PaperSampler, stages: Stages) -> None:
        self._inner = inner
        for name, stage in TIMED.items():
            setattr(self, name, self._timed(getattr(inner, name), stages, stage))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @staticmethod
    def _timed(method: Callable[..., Any], stages: Stages, stage: str) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            with stages(stage):
                return method(*arguments)

        return timed


class TimedSession(Session):
    """A session whose events are timed."""

    stages: Stages

    def drafted(self, draft: LocalDraft) -> list[Action]:
        with self.stages(SESSION):
            return super().drafted(draft)

    def received(self, message: Message) -> list[Action]:
        with self.stages(SESSION):
            return super().received(message)


class Reader:
    """Turns committed tokens into text, as the device does for whoever asked."""

    def __init__(self, stream: StreamDecoder, known: int, stages: Stages) -> None:
        self._stream = stream
        self._stops = StopFilter(())
        self._known = known
        self._stages = stages

    def committed(self, commit: Commit) -> bool:
        with self._stages(TEXT):
            self._stops.push(self._stream.push(commit.token % self._known))
        return True

    def withdrawn(self, position: int) -> None:
        pass

    def ended(self, failure: Exception | None) -> None:
        pass


class Half:
    """One side of the pair."""

    def __init__(
        self,
        role: Side,
        request: Open,
        vocabulary: int,
        source: Source,
        scoring: ScoringRun,
        eos: frozenset[int],
        reader: Tokenizer | None,
        send: deque[tuple[str, bytes]],
    ) -> None:
        self.role: Side = role
        self.stages = Stages()
        self.bytes: dict[str, int] = {}  # sent, by message
        self._request = request
        self._source = source
        self._kernel = RaceKernel(vocabulary)
        self._scoring = scoring
        self._outgoing = send
        self._aggregation: Any = TimedAggregation(make_sampler(role, request, vocabulary), self.stages)
        config = SessionConfig(request.session, request.placement, eos, request.max_tokens, vocabulary)
        aggregator: Side = "cloud" if request.placement == "cloud" else "device"
        session = TimedSession(role, config, self._aggregation, Fixed(aggregator), Ahead(request.run_ahead))
        session.stages = self.stages
        observer = NullObserver() if reader is None else Reader(reader.stream(), reader.size, self.stages)
        self._tasks: deque[Callable[[], None]] = deque()
        self.answer = SessionDriver(session, self._send, observer, lambda commit: None, self)

    def wake(self) -> None:
        """Do nothing: nothing sleeps here."""

    def task(self, run: Callable[[], None], owner: Hashable = None) -> None:
        self._tasks.append(run)

    def step(self) -> bool:
        """One decode step's work but for the model; False when there is nothing to decode."""
        work = self.answer.part.work()
        if work is None:
            return False
        path = list(work.path)
        logits = self._source.logits(path)
        stages = self.stages
        with stages(SCORER):
            scores = self._scoring.scores(path)
        with stages(MIXTURE):
            (drawn,) = draw(logits, [Sample(work.position, scores, self._aggregation)], self._kernel)
        if not isinstance(drawn, Drawn):
            raise drawn
        with stages(ANSWER):
            self.answer.part.drawn(work, [drawn], TYPICAL_STEP / 1e6)
        while self._tasks:
            self._tasks.popleft()()
        return True

    def receive(self, frame: bytes) -> None:
        with self.stages(WIRE):
            message = decode(frame, LARGEST_PAYLOAD)
        with self.stages(ANSWER):
            self.answer.receive(message)
        while self._tasks:
            self._tasks.popleft()()

    def _send(self, message: Message) -> None:
        with self.stages(WIRE):
            frame = encode(message, LARGEST_PAYLOAD)
        name = type(message).__name__
        self.bytes[name] = self.bytes.get(name, 0) + wire_size(frame)
        self._outgoing.append((name, frame))


@dataclass(frozen=True, slots=True)
class Sources:
    """Logits and document weights of one side."""

    logits: Source
    scoring: ScoringRun


class Pair:
    """Both halves, stepped in turn: every draft is verified before the next one is made."""

    def __init__(
        self,
        request: Open,
        vocabulary: int,
        sources: dict[Side, Sources],
        eos: frozenset[int] = frozenset(),
        reader: Tokenizer | None = None,
    ) -> None:
        self._queues: dict[Side, deque[tuple[str, bytes]]] = {"device": deque(), "cloud": deque()}
        self.halves: dict[Side, Half] = {}
        for side in SIDES:
            text = reader if side == "device" else None
            source = sources[side]
            self.halves[side] = Half(
                side, request, vocabulary, source.logits, source.scoring, eos, text, self._queues[side]
            )

    def run(self, tokens: int) -> tuple[int, ...]:
        """The answer, at most `tokens` long; each half's stages have one lap per token."""
        device = self.halves["device"].answer.session
        while len(device.committed) < tokens and not device.finished:
            for half in self.halves.values():
                half.step()
            self._deliver()
            for half in self.halves.values():
                half.stages.lap()
        return device.committed

    def _deliver(self) -> None:
        while any(self._queues.values()):
            for side, other in zip(SIDES, reversed(SIDES), strict=True):
                if self._queues[side]:
                    self.halves[other].receive(self._queues[side].popleft()[1])


def make_request(**changes: Any) -> Open:
    """An `Open` with the defaults of the product, K = 32: `top_p` is its sampler's own."""
    request = Open(
        session=random.Random(1).getrandbits(32),
        method="speculative",
        question="",
        prompt="",
        documents=4,
        seed=2**62 + 1,
        temperature=0.0,
        sampler="race",
        codec="race",
        entries=32,
        exact=True,
        top_p=1.0,
        placement="device",
        sources="both",
        run_ahead=1,
        max_tokens=4096,
        trace=False,
    )
    return replace(request, **{"top_p": TOP_P[changes.get("sampler", request.sampler)]} | changes)
