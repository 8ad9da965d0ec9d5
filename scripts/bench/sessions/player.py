"""A device that is played: its link and its half of the answer are real, its model and its library are not."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from statistics import fmean

from common.answer.request import Request
from common.answer.values import Commit, Drawn
from common.daemon.side import SideRuntime
from common.estimates.ahead import Ahead
from common.methods.aggregate.drafts import DraftWork, LocalDraft
from common.methods.aggregate.driver import SessionDriver, open_session
from common.methods.catalog import METHODS
from common.methods.open_message import open_message
from common.transport.device_link import DeviceLink
from common.transport.sending import Peer
from proto.errors import ProtocolError
from proto.messages import (
    Busy,
    Close,
    Closed,
    Draft,
    Error,
    Message,
    Ready,
    Resolve,
    Resolved,
    Side,
    Sync,
    Target,
    Welcome,
)
from scripts.bench.sessions.drafts import ScriptedDrafts, WholeShare

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
    drafts: ScriptedDrafts | None = None
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
        while (draft := self._next_draft()) is not None:
            prefix = ((draft.position, draft.digest),)
            work = DraftWork(self.answer.session.epoch, (), prefixes=prefix)
            drawn = Drawn(draft.view, draft.evidence, WholeShare())
            self.answer.part.drawn(work, [drawn], draft.decode_time / 1e6)

    def _next_draft(self) -> LocalDraft | None:
        """The next draft, once the cloud's for the same position is here: its evidence says what weighs how much."""
        found = None if self.drafts is None else self.answer.part.work()
        if self.drafts is None or found is None:
            return None
        other = self.evidence.get((found.position, found.digest))
        return None if other is None else self.drafts.draft(found, other)

    # --- the answer's engine, under its lock

    def wake(self) -> None:
        """The link's thread looks for work after every message."""

    def task(self, run: Callable[[], None], owner: Hashable = None) -> None:
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
        session, sampler = open_session("device", opening, self._side.decoder, lambda: estimates, both)
        session.ahead = Ahead()  # its drafts take no time: none is needed before the one before it is decided
        play = Play(self._link.send, held)
        play.answer = SessionDriver(session, play.post, play, lambda commit: None, play)
        if weight:
            play.drafts = ScriptedDrafts(opening, sampler, self._side.decoder.vocabulary, weight)
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
