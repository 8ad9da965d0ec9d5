"""Two real halves of one answer in one thread: what the decoder and link threads do per token, stage by stage.

Their logits come from the embedded model, or are synthetic: both sides' documents agree on most of the mass, as those
on one question do.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from common.answer.driver import NullObserver
from common.answer.values import Commit, SideDraft
from common.engine.draw import Sample, draw
from common.engine.jobs import ScoringRun
from common.engine.model.tokenizer import StopFilter, Tokenizer
from common.estimates.estimators import SpeculationLimits
from common.estimates.policy import FixedSide
from common.methods.aggregate.driver import AnswerSampler, SessionDriver, make_sampler
from common.methods.aggregate.session import Action, Session, SessionConfig
from common.methods.interface import TOP_P
from common.methods.paper.sampler import make_paper_sampler
from common.sampling.race import RaceKernel
from proto.framing import LARGEST_PAYLOAD, decode, encode, wire_size
from proto.messages import Message, Open, Side

SIDES: tuple[Side, Side] = ("device", "cloud")

TYPICAL_STEP = 5000  # microseconds; told in every draft, and as long on the wire as any from 0.3 to 65 ms

SCORER, MIXTURE, DRAFT = "document weights", "mixture and race", "own list"
READ, AGGREGATE, SESSION = "received draft", "certificate", "session"
WIRE, ANSWER, TEXT = "packing and framing", "answer", "text"
# The parts of a sampler, by method.
TIMED = {"drafted": DRAFT, "pack": WIRE, "read": READ, "aggregate": AGGREGATE, "supply": WIRE, "complete": READ}
STAGES = (SCORER, MIXTURE, DRAFT, READ, AGGREGATE, SESSION, WIRE, ANSWER, TEXT)


Shape = Literal["peaked", "flat"]
# Logits fall with the logarithm of a token's rank, as words do (Zipf). Flat keeps thousands of tokens possible;
# peaked is a model that copies from a document: one token has nearly everything.
SLOPES: dict[Shape, float] = {"peaked": 3.0, "flat": 1.1}
DOCUMENT_NOISE = 0.3  # standard deviation of what a document changes in each logit
FRESH = 8  # distributions made; later positions use them again


class Source(Protocol):
    """Origin of a side's logits."""

    def logits(self, path: Sequence[int]) -> torch.Tensor:
        """`[docs, >= vocab]` after `path`."""
        ...


class Logits(NamedTuple):
    """Synthetic logits `[docs, vocab]` of one side at every position."""

    pool: tuple[torch.Tensor, ...]

    @classmethod
    def draw(cls, side: Side, vocabulary: int, documents: int, shape: Shape, seed: int) -> Logits:
        """Draw one side's logits from `seed`; both sides share what is common to a position."""
        shared = torch.Generator().manual_seed(seed)
        own = torch.Generator().manual_seed(2 * seed + (1 if side == "device" else 2))
        falling = -SLOPES[shape] * torch.log(torch.arange(1, vocabulary + 1, dtype=torch.float32))
        pool = []
        for _ in range(FRESH):
            common = falling[torch.randperm(vocabulary, generator=shared)]
            pool.append(common + torch.randn(documents, vocabulary, generator=own) * DOCUMENT_NOISE)
        return cls(tuple(pool))

    def logits(self, path: Sequence[int]) -> torch.Tensor:
        return self.pool[len(path) % len(self.pool)]


class Even(NamedTuple):
    """Document weights that are all alike, for what does not depend on them."""

    documents: int

    def scores(self, answer: Sequence[int]) -> NDArray[np.float64]:
        return np.zeros(self.documents)

    def ready(self, answer: Sequence[int], wake: Callable[[], None]) -> bool:
        return True


class Sources(NamedTuple):
    """Logits and document weights of one side."""

    logits: Source
    scoring: ScoringRun


class Stages:
    """A stop-watch: exclusive processor time per stage, what an inner stage takes is not counted to the outer one.

    Processor time of this thread, because other programs' work is not the engine's; on an idle machine it is the
    time that passes. Used as `with stages("session"): ...`; `lap` ends a token. One thread.
    """

    def __init__(self) -> None:
        self.laps: list[dict[str, float]] = []  # microseconds by stage, one per token
        self._lap: dict[str, float] = {}
        self._open: list[str] = []
        self._named = ""
        self._since = 0.0

    def __call__(self, name: str) -> Stages:
        self._named = name
        return self

    def __enter__(self) -> None:
        self._count()
        self._open.append(self._named)

    def __exit__(self, *error: object) -> None:
        self._count()
        self._open.pop()

    def lap(self) -> None:
        self.laps.append(self._lap)
        self._lap = {}

    def _count(self) -> None:
        """Count the time since the last change to the stage that is open."""
        now = time.thread_time()
        if self._open:
            self._lap[self._open[-1]] = self._lap.get(self._open[-1], 0.0) + 1e6 * (now - self._since)
        self._since = time.thread_time()


class TimedAggregation:
    """A sampler of sessions whose parts are timed."""

    def __init__(self, inner: AnswerSampler, stages: Stages) -> None:
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

    def drafted(self, draft: SideDraft) -> list[Action]:
        with self.stages(SESSION):
            return super().drafted(draft)

    def received(self, message: Message) -> list[Action]:
        with self.stages(SESSION):
            return super().received(message)


class Reader(NullObserver):
    """Turns committed tokens into text, as the device does for whoever asked."""

    def __init__(self, tokenizer: Tokenizer, stages: Stages) -> None:
        self._stream, self._known = tokenizer.stream(), tokenizer.size
        self._stops = StopFilter(())
        self._stages = stages

    def committed(self, commit: Commit) -> bool:
        with self._stages(TEXT):
            self._stops.push(self._stream.push(commit.token % self._known))
        return True


class Half:
    """One side of the pair."""

    def __init__(
        self,
        role: Side,
        request: Open,
        vocabulary: int,
        sources: Sources,
        eos: frozenset[int],
        observer: Callable[[Stages], NullObserver],
    ) -> None:
        self.stages = Stages()
        self.bytes: Counter[str] = Counter()  # sent, by message
        self.outgoing: deque[bytes] = deque()
        self._sources = sources
        self._kernel = RaceKernel(vocabulary)
        self._aggregation: Any = TimedAggregation(
            make_sampler(role, request, vocabulary, make_paper_sampler), self.stages
        )
        config = SessionConfig(request.session, request.placement, eos, request.max_tokens, vocabulary)
        aggregator: Side = "cloud" if request.placement == "cloud" else "device"
        session = TimedSession(
            role, config, self._aggregation, FixedSide(aggregator), SpeculationLimits(request.run_ahead)
        )
        session.stages = self.stages
        self._tasks: deque[Callable[[], None]] = deque()
        self.answer = SessionDriver(session, self._send, observer(self.stages), lambda commit: None, self)

    def wake(self) -> None:
        """Do nothing: nothing sleeps here."""

    def on_model_thread(self, run: Callable[[], None], tenant: Hashable = None) -> None:
        self._tasks.append(run)

    def step(self) -> None:
        """One decode step's work but for the model, where there is anything to decode."""
        work = self.answer.part.work()
        if work is None:
            return
        path = list(work.path)
        logits = self._sources.logits.logits(path)
        with self.stages(SCORER):
            scores = self._sources.scoring.scores(path)
        with self.stages(MIXTURE):
            (drawn,) = draw(logits, [Sample(work.position, scores, self._aggregation)], self._kernel)
        if not isinstance(drawn, SideDraft):
            raise drawn
        with self.stages(ANSWER):
            self.answer.part.drawn(work, [drawn], TYPICAL_STEP / 1e6)
        self._do_tasks()

    def receive(self, frame: bytes) -> None:
        with self.stages(WIRE):
            message = decode(frame, LARGEST_PAYLOAD)
        with self.stages(ANSWER):
            self.answer.receive(message)
        self._do_tasks()

    def _do_tasks(self) -> None:
        while self._tasks:
            self._tasks.popleft()()

    def _send(self, message: Message) -> None:
        with self.stages(WIRE):
            frame = encode(message, LARGEST_PAYLOAD)
        self.bytes[type(message).__name__] += wire_size(frame)
        self.outgoing.append(frame)


class Pair:
    """Both halves, stepped in turn: every draft is verified before the next one is made."""

    def __init__(
        self,
        request: Open,
        vocabulary: int,
        sources: Mapping[Side, Sources],
        eos: frozenset[int] = frozenset(),
        reader: Tokenizer | None = None,
    ) -> None:
        """`reader` turns the device's tokens into text."""

        def observer(side: Side) -> Callable[[Stages], NullObserver]:
            return lambda stages: Reader(reader, stages) if reader and side == "device" else NullObserver()

        self.halves = {side: Half(side, request, vocabulary, sources[side], eos, observer(side)) for side in SIDES}

    def run(self, tokens: int) -> tuple[int, ...]:
        """The answer, at most `tokens` long; each half's stages have one lap per token."""
        halves, device = tuple(self.halves.values()), self.halves["device"].answer.session
        while len(device.committed) < tokens and not device.finished:
            for half in halves:
                half.step()
            while any(half.outgoing for half in halves):
                for half, other in zip(halves, reversed(halves), strict=True):
                    if half.outgoing:
                        other.receive(half.outgoing.popleft())
            for half in halves:
                half.stages.lap()
        return device.committed


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
