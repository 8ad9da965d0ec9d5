"""A cloud in a process of its own, and devices that are played in this one.

A device's link and its half of the answer are real, its model and its library are not: its drafts are few tokens,
chosen by a hash of the prefix, which race each other.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import psutil
import torch

from common.answer.request import Request
from common.answer.values import Commit, SideDraft
from common.daemon.side import SideRuntime
from common.engine.draw import Drafter
from common.estimates.estimators import SpeculationLimits
from common.methods.aggregate.drafts import DraftWork
from common.methods.aggregate.driver import SessionDriver, open_session
from common.methods.catalog import METHODS
from common.methods.open_message import open_message
from common.methods.paper.method import paper_sampler
from common.sampling.compiled import race_noise
from common.transport.device_link import DeviceLink
from common.transport.sending import Peer
from device.settings import DeviceSettings
from proto.codes import decode_probabilities, nearest
from proto.errors import ProtocolError
from proto.messages import (
    Busy,
    Close,
    Closed,
    Draft,
    Error,
    Message,
    Open,
    Ready,
    Resolve,
    Resolved,
    Side,
    Sync,
    Target,
    Welcome,
)
from scripts.daemons import Daemon, fill_library, free_port

PEAKED = (0.6, 0.2, 0.1, 0.05, 0.03, 0.02)  # probabilities of the tokens that a draft is about
_CODES = nearest(np.asarray(PEAKED, dtype=np.float32))
_APART = 347  # ids from one of them to the next; has no factor in common with a vocabulary that it does not divide
_FACTOR = 0x9E3779B97F4A7C15


class WholeShare:
    """A `KeptMixture` of one document."""

    def contributions(self, token: int) -> Iterable[float]:
        """All of the token's probability."""
        return (1.0, 0.0)


Drafts = Callable[[DraftWork, float], SideDraft]


def scripted(request: Open, drafter: Drafter, vocabulary: int, weight: float) -> Drafts:
    """Returns a side's drafts as a function of (position, prefix) and of the cloud's log h there.

    `weight` is that of the device's documents beside the cloud's, at every position. The list of every race is
    complete: `request.entries` is more than it has tokens.
    """

    def draft(work: DraftWork, other: float) -> SideDraft:
        first = ((work.digest + work.position) * _FACTOR >> 17) % vocabulary
        ids = np.asarray([(first + rank * _APART) % vocabulary for rank in range(len(PEAKED))], dtype=np.int64)
        probabilities = torch.zeros(vocabulary)
        probabilities[torch.from_numpy(ids)] = torch.tensor(PEAKED)
        order = ids.argsort()
        speeds = decode_probabilities(_CODES[order]) / race_noise(
            request.seed, work.position, ids[order], request.temperature
        )
        view = drafter.drafted(work.position, probabilities, (ids[order], speeds))
        return SideDraft(view, other + math.log(weight / (1.0 - weight)), WholeShare())

    return draft


PATIENCE = 180.0  # seconds for an answer; one that takes longer is stuck
CONNECTING = 30.0
DRAFT_SECONDS = 1e-4  # told to the cloud as the device's decode step


class PlayFailed(RuntimeError):
    """A device did not get its answer; the text is one sentence."""


@dataclass(frozen=True, slots=True)
class Played:
    """One answer as a device saw it. Times are of `time.perf_counter`."""

    asked: float
    times: tuple[float, ...]  # when each token was final
    tokens: tuple[int, ...]
    prompt_tokens: int  # of all rows of the cloud
    device_weight: float | None  # mean share of the device in the tokens' probability; None where it has no documents
    closed: Closed

    @property
    def ttft(self) -> float:
        return self.times[0] - self.asked


@dataclass
class Play:
    """One answer under way: observer of its `SessionDriver`, and the engine that makes its drafts.

    One that is `held` hears nothing of the cloud's drafts until it is released, so that several can go on at the same
    moment. Messages come on the link's thread.
    """

    send: Callable[[Message], int]
    held: bool = False
    asked: float = 0.0
    drafted: threading.Event = field(default_factory=threading.Event)  # the cloud has
    times: list[float] = field(default_factory=list)
    cloud_shares: list[float] = field(default_factory=list)
    evidence: dict[tuple[int, int], float] = field(default_factory=dict)  # of the cloud, by position and prefix
    prompt_tokens: int = 0
    closed: Closed | None = None
    failure: str = ""
    done: threading.Event = field(default_factory=threading.Event)
    answer: SessionDriver = field(init=False)
    drafts: Drafts | None = None
    _tasks: deque[Callable[[], None]] = field(default_factory=deque)
    _waiting: list[Message] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hear(self, message: Message) -> None:
        """Take in a message of this answer and do what it makes possible."""
        match message:
            case Closed():
                self.closed = message
                self.done.set()
            case Error():
                self.fail(f"the cloud says {message.code}: {message.text}")
            case Busy():
                self.fail("the cloud has no place")
            case Draft() | Target() | Resolve() | Resolved() | Sync() | Ready():
                with self._lock:
                    if self.held:
                        self._waiting.append(message)
                    else:
                        self._take(message)
                if isinstance(message, Draft):
                    self.drafted.set()

    def release(self) -> None:
        """Hear what was held back, and everything from now on."""
        with self._lock:
            self.held = False
            for message in self._waiting:
                self._take(message)

    def fail(self, reason: str) -> None:
        """Give up; the first reason counts."""
        self.failure = self.failure or reason
        self.drafted.set()
        self.done.set()

    def _take(self, message: Message) -> None:
        if isinstance(message, Draft):
            self.evidence[message.position, message.digest] = message.evidence
        elif isinstance(message, Ready):
            self.prompt_tokens = message.prompt_tokens
        self.answer.receive(message)
        while self._tasks:
            self._tasks.popleft()()
        # The cloud's draft for the same position comes first: its evidence says what weighs how much.
        while self.drafts is not None and (work := self.answer.part.work()) is not None:
            started, prefix = time.perf_counter(), (work.position, work.digest)
            if prefix not in self.evidence:
                break
            drawn = self.drafts(work, self.evidence[prefix])
            alone = DraftWork(self.answer.session.epoch, (), prefixes=(prefix,))
            self.answer.part.drawn(alone, [drawn], time.perf_counter() - started)

    # --- the answer's engine, under its lock

    def wake(self) -> None:
        """The link's thread looks for work after every message."""

    def on_model_thread(self, run: Callable[[], None], tenant: Hashable = None) -> None:
        """Run it after the message that is being taken in."""
        self._tasks.append(run)

    def post(self, message: Message) -> None:
        """Send a message of the answer to the cloud."""
        if not self.send(message):
            self.fail("the link dropped a message")

    # --- the answer's observer, under its lock

    def committed(self, commit: Commit) -> bool:
        self.times.append(time.perf_counter())
        if commit.cloud_share is not None:
            self.cloud_shares.append(commit.cloud_share)
        return True

    def withdrawn(self, position: int) -> None:
        self.fail("a final token was withdrawn")

    def ended(self, failure: Exception | None) -> None:
        if failure is not None:
            self.fail(f"the answer ended with {type(failure).__name__}")
        else:
            self.send(Close(self.answer.session.config.session, len(self.times)))

    def wait_for_draft(self) -> None:
        """Wait until the cloud has read the prompt. Raises `PlayFailed`."""
        if not self.drafted.wait(PATIENCE):
            self.fail(f"the cloud drafted nothing for {PATIENCE:g} s")
        if self.failure:
            raise PlayFailed(f"{self.failure}.")

    def result(self) -> Played:
        """Wait for the end. Raises `PlayFailed`."""
        if not self.done.wait(PATIENCE):
            self.failure = f"an answer was stuck after {len(self.times)} tokens for {PATIENCE:g} s"
        if self.failure or self.closed is None:
            raise PlayFailed(f"{self.failure}.")
        return Played(
            self.asked,
            tuple(self.times),
            self.answer.session.committed,
            self.prompt_tokens,
            None if self.drafts is None else 1.0 - fmean(self.cloud_shares),
            self.closed,
        )


class Player:
    """A device's connection, and one answer at a time over it. Close it in the end."""

    def __init__(self, address: str, side: SideRuntime) -> None:
        """`side` is who all players say they are. Raises `PlayFailed` when the cloud does not welcome it."""
        self._side = side
        # What its drafts take, not what a model of its own would.
        self._hello = replace(side.hello, decode_intercept=DRAFT_SECONDS, decode_slope=0.0)
        self._welcome = threading.Event()
        self._refusal = ""
        self._play: Play | None = None
        self._link = DeviceLink(address, None, self, side.link_limits)
        self._link.start()

    def wait(self) -> None:
        """Wait until the handshake is done. Raises `PlayFailed`."""
        if not self._welcome.wait(CONNECTING) or self._refusal:
            raise PlayFailed(f"A device was not welcome: {self._refusal or 'nothing was heard of the cloud.'}")

    def begin(self, request: Request, weight: float, held: bool = False) -> Play:
        """Ask. A device whose documents have a `weight` above 0 makes drafts of its own."""
        estimates = self._side.profiler.nobody.estimates
        # No end-of-sequence ids: every answer is as long as it may be.
        opening = open_message(METHODS["speculative"], request, self._side.settings.run_ahead, estimates, eos=())
        both: frozenset[Side] = frozenset({"device", "cloud"})
        session, sampler = open_session("device", opening, self._side.decoder, lambda: estimates, both, paper_sampler)
        session.ahead = (
            SpeculationLimits()
        )  # its drafts take no time: none is needed before the one before it is decided
        play = Play(self._link.send, held)
        play.answer = SessionDriver(session, play.post, play, lambda commit: None, play)
        if weight:
            play.drafts = scripted(opening, sampler, self._side.decoder.vocabulary, weight)
        else:
            play.answer.without_documents()
        self._play = play
        play.asked = time.perf_counter()
        play.post(opening)
        return play

    def close(self) -> None:
        self._link.close()

    # --- the link's handler

    def on_connected(self, peer: Peer) -> None:
        self._link.send(self._hello)

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        play = self._play
        if isinstance(message, Welcome):
            self._welcome.set()
        elif isinstance(message, Error) and message.session == 0:
            self._refusal = message.text
            self._welcome.set()
        elif play is not None and getattr(message, "session", 0) == play.answer.session.config.session:
            try:
                play.hear(message)
            except Exception as error:
                play.fail(f"a {type(message).__name__} could not be taken in: {error!r}")

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        if self._play is not None:
            self._play.fail(f"the cloud sent a malformed message: {error}")

    def on_gone(self, peer: Peer) -> None:
        if self._play is not None:
            self._play.fail("the connection was lost")


LOOK = 0.02  # seconds between two looks at the cloud's memory


class Town(NamedTuple):
    """The cloud's process, and the players that are connected to it."""

    process: psutil.Process
    players: list[Player]

    @property
    def resident(self) -> int:
        """Bytes of the cloud's memory now."""
        resident: int = self.process.memory_info().rss
        return resident

    @contextmanager
    def most_resident(self) -> Iterator[list[int]]:
        """The most bytes of the cloud's memory that were seen inside, once that is over."""
        over, most = threading.Event(), [0]

        def look() -> None:
            looking = True
            while looking:
                looking = not over.wait(LOOK)
                most[0] = max(most[0], self.resident)

        thread = threading.Thread(target=look, name="meter", daemon=True)
        thread.start()
        try:
            yield most
        finally:
            over.set()
            thread.join()


@contextmanager
def town(data: Path, players: int, documents: Sequence[str], model: Mapping[str, object]) -> Iterator[Town]:
    """A cloud whose library below `data` has these documents, and so many players.

    `model` are the settings that name another one than the embedded. Nothing is kept on disk: what is measured is
    memory and processor.
    """
    fill_library(data, "cloud", {f"{number:03}": f"{text}\n" for number, text in enumerate(documents)})
    address = f"tcp://127.0.0.1:{free_port()}"
    shared: dict[str, Any] = {"model": "embedded", "curve": "off", "threads": 1, "dtype": "float32"}
    shared |= {"document_store_bytes": 0, **model}
    cloud = Daemon("cloud", data, shared | {"bind": address}, data / "cloud.log")
    with ExitStack() as resources:
        resources.callback(cloud.stop)
        cloud.start()
        side = SideRuntime("device", DeviceSettings(data=data / "device", cloud=address, **shared))
        resources.callback(side.close)
        cloud.wait_for("cloud ready")
        assert cloud.process is not None
        connected = [resources.enter_context(closing(Player(address, side))) for _ in range(players)]
        for player in connected:
            player.wait()
        yield Town(psutil.Process(cloud.process.pid), connected)
