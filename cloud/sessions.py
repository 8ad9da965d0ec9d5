"""The cloud's sessions: the handshake, admission, and messages on their way to the answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from cloud.handout import Handout
from cloud.hosted import Hosted, Watcher
from cloud.reciting import Reciter
from cloud.settings import CloudSettings
from common.runtime.answer import Answer
from common.runtime.handshake import refusal
from common.runtime.opening import open_session
from common.runtime.peer_estimates import PeerEstimates
from common.runtime.reading import Retrieved
from common.runtime.recording import RecordingDrafting, question_evidence
from common.runtime.scheduler import look_at_each
from common.runtime.side import SideRuntime
from common.speculation.watch import Limits
from common.tracing.recorder import Recorder
from common.transport.interface import Peer
from proto.errors import ProtocolError
from proto.messages import (
    Busy,
    Cancel,
    Close,
    Draft,
    Error,
    Fetch,
    Hello,
    Message,
    Open,
    ProbeReply,
    Ready,
    Resolve,
    Resolved,
    Side,
    Sync,
    Target,
    Welcome,
)

log = logging.getLogger(__name__)

RETRY_AFTER = 1_000_000  # microseconds; what a device is told to wait when there is no place
NEVER = float("inf")

Key = tuple[Peer, int]  # peer, session


class Link(Protocol):
    """What the sessions need of the transport."""

    def send(self, peer: Peer, message: Message) -> int: ...

    def queued(self, peer: Peer) -> int: ...


class Sessions:
    """All answers of one cloud daemon. The `on_...` methods are the link's handler, on the link thread."""

    def __init__(self, settings: CloudSettings, side: SideRuntime) -> None:
        self.link: Link | None = None  # set before the link starts to deliver
        self._settings = settings
        self._side = side
        self._peers: dict[Peer, PeerEstimates] = {}  # those that said hello
        self._hosted: dict[Key, Hosted | Handout] = {}
        self._complained: set[Peer] = set()  # the link thread's own
        self._lock = threading.Lock()  # of the two tables

    # --- link events

    def on_connected(self, peer: Peer) -> None:
        pass

    def on_gone(self, peer: Peer) -> None:
        """The connection broke. The device comes back as another peer and opens its sessions anew."""
        self._complained.discard(peer)
        with self._lock:
            estimates = self._peers.pop(peer, None)
            keys = [key for key in self._hosted if key[0] == peer]
        if estimates is not None:
            self._side.profiler.forget(estimates)
        for key in keys:
            self._free(key)

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        """Told once for each connection: a flood of them must not become a flood of lines."""
        if peer not in self._complained:
            self._complained.add(peer)
            log.warning("refused a malformed message: %s", error)

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        match message:
            case Draft() | Target() | Resolve() | Resolved() | Sync():
                self._deliver(peer, message)
            case ProbeReply():
                self._estimates(peer).meter.replied(message)
            case Hello():
                self._greet(peer, message)
            case Open() | Fetch():
                self._open(peer, message)
            case Close():
                self._close(peer, message)
            case Cancel():
                self._free((peer, message.session))
            case _:
                log.info("ignored a %s: a device does not send it", type(message).__name__)

    # --- from time to time

    def tick(self, now: float) -> None:
        """Follow the run-ahead that the link allows; free sessions that nobody has spoken to for too long."""
        with self._lock:
            hosted = list(self._hosted.items())
        look_at_each(hosted, lambda item: self._look_at(*item, now), lambda item: self._failed(item[0]))

    def _look_at(self, key: Key, session: Hosted | Handout, now: float) -> None:
        if session.silent(now) > self._settings.session_idle_seconds:
            self._free(key)
        elif isinstance(session, Handout):
            session.pump()
        else:
            most = min(session.opened.run_ahead, self._settings.run_ahead)
            ahead = self._estimates(key[0]).run_ahead(most)
            session.answer.poll(now, Limits(NEVER, NEVER), ahead)

    def _failed(self, key: Key) -> None:
        self._free(key)
        self._send(key[0], Error(key[1], "failed", "The cloud failed on this answer; its log says why."))

    # --- handshake and admission

    def _greet(self, peer: Peer, hello: Hello) -> None:
        mine = self._side.hello
        reason = refusal(device=hello, cloud=mine)
        if reason is not None:
            self._send(peer, Error(0, "mismatch", reason))
            return
        with self._lock:
            if peer not in self._peers:
                self._peers[peer] = self._side.profiler.watch(hello, partial(self._send, peer))
        settings = self._settings
        self._send(peer, Welcome(mine, settings.max_sessions, settings.max_tokens, settings.max_query_bytes))

    def _open(self, peer: Peer, request: Open | Fetch) -> None:
        with self._lock:
            known, key = peer in self._peers, (peer, request.session)
            there, full = key in self._hosted, len(self._hosted) >= self._settings.max_sessions
        if not known:
            self._send(peer, Error(request.session, "no-handshake", f"Send Hello before {type(request).__name__}."))
        elif there:
            log.info("session %d is open already", request.session)
        elif full:
            self._send(peer, Busy(request.session, RETRY_AFTER))
        elif (reason := self._unservable(request)) is not None:
            self._send(peer, Error(request.session, "unservable", reason))
        elif isinstance(request, Fetch):
            self._hand_out(key, request)
        else:
            self._start(key, request)

    def _unservable(self, request: Open | Fetch) -> str | None:
        settings = self._settings
        if not request.question.strip():
            return "The question is empty."
        query = request.prompt if isinstance(request, Open) else request.question
        if len(query.encode()) > settings.max_query_bytes:
            return f"The question is longer than the {settings.max_query_bytes} bytes that this cloud allows."
        limits = [("documents", request.documents, settings.max_documents)]
        if isinstance(request, Open):
            limits.append(("max_tokens", request.max_tokens, settings.max_tokens))
            if request.sources == "both" and (request.aggregation, request.delivery) != ("output", "tokens"):
                return "Context aggregation and delivery as a sequence need sources 'cloud'."
        for name, value, limit in limits:
            if not 1 <= value <= limit:
                return f"{name} is {value}; this cloud allows 1 to {limit}."
        return None

    def _start(self, key: Key, request: Open) -> None:
        side, peer = self._side, key[0]
        participants: frozenset[Side] = frozenset({"cloud"})
        if request.sources == "both":
            participants |= {"device"}
        estimates = self._estimates(peer)
        try:
            opened = open_session("cloud", request, side.decoder, lambda: estimates.estimates, participants)
        except ValueError as error:
            self._send(peer, Error(request.session, "unservable", str(error)))
            return
        send: Callable[[Message], None] = partial(self._send, peer)
        reciter = None
        if request.delivery == "sequence":
            reciter = Reciter(request, RecordingDrafting(opened.drafting), side.decoder.eos, send)
            send = _nowhere
        recorder = None
        if request.trace:
            alone = "device" not in participants
            recorder = Recorder("cloud", lambda: estimates.estimates, opened.session.aggregator, alone)
            recorder.message("receive", request)
        answer = Answer(opened.session, send, reciter or Watcher(), estimates.judged, side.decoding.wake, recorder)
        hosted = Hosted(request, answer, reciter)
        with self._lock:
            self._hosted[key] = hosted
        drafting = opened.drafting if reciter is None else reciter.drafting
        decoded = partial(side.profiler.decoded, estimates)
        side.begin(answer, request, drafting, partial(self._ready, peer, hosted), decoded)

    def _hand_out(self, key: Key, request: Fetch) -> None:
        link, peer = self.link, key[0]
        if link is None:
            return
        handout = Handout(
            request, self._side, partial(link.send, peer), partial(link.queued, peer), partial(self._free, key)
        )
        with self._lock:
            self._hosted[key] = handout
        handout.begin()

    def _ready(self, peer: Peer, hosted: Hosted, retrieved: Retrieved) -> None:
        hosted.titles = retrieved.titles
        if hosted.reciter is not None:
            hosted.reciter.evidence = question_evidence(self._side.scorer, retrieved.prompt)
        ready = Ready(hosted.opened.session, retrieved.titles, retrieved.tokens)
        if hosted.answer.recorder is not None:
            hosted.answer.recorder.message("send", ready)
        self._send(peer, ready)
        if retrieved.prompt.absent and hosted.opened.sources == "both":
            hosted.answer.end()  # the device decides alone, so there is nothing to read

    # --- messages of an open session

    def _deliver(self, peer: Peer, message: Draft | Target | Resolve | Resolved | Sync) -> None:
        hosted = self._find(peer, message.session)
        if hosted is None:
            if isinstance(message, Sync):
                text = "This cloud does not know the session; open it again."
                self._send(peer, Error(message.session, "unknown-session", text))
            return
        if isinstance(message, Draft):
            self._estimates(peer).remote_decoded(message.decode_time / 1e6)
        try:
            hosted.answer.receive(message)
        except ProtocolError as error:
            self._send(peer, Error(message.session, error.code, str(error)))

    def _close(self, peer: Peer, message: Close) -> None:
        hosted = self._find(peer, message.session)
        if hosted is not None:
            for part in hosted.traced():
                self._send(peer, part)
            self._send(peer, hosted.closed())
            self._free((peer, message.session))

    def _estimates(self, peer: Peer) -> PeerEstimates:
        with self._lock:
            return self._peers.get(peer, self._side.profiler.nobody)

    def _find(self, peer: Peer, session: int) -> Hosted | None:
        with self._lock:
            hosted = self._hosted.get((peer, session))
        if not isinstance(hosted, Hosted):
            return None
        hosted.heard = time.monotonic()
        return hosted

    def _free(self, key: Key) -> None:
        with self._lock:
            hosted = self._hosted.pop(key, None)
        if hosted is not None:
            hosted.end()

    def _send(self, peer: Peer, message: Message) -> None:
        if self.link is not None:
            self.link.send(peer, message)


def _nowhere(message: Message) -> None:
    """What an answer that is told as a whole says of single tokens."""
