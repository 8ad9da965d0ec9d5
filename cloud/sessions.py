"""The cloud's sessions: handshake, admission, delivery of messages, and the end."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from prometheus_client import generate_latest

from cloud.admission import Admission, OpenSession, SessionLimits, admit, explain_refusal, wait
from cloud.settings import CloudSettings
from common.answer.report import SideReport
from common.answer.request import (
    NO_DOCUMENT_FITS,
    QUESTION_TOO_LONG,
    STOPPING,
    NoPlace,
    failure_message,
    no_handshake,
    stopping_message,
    unknown_session,
)
from common.daemon import handshake
from common.daemon.handshake import as_failure
from common.daemon.side import SEARCH_FAILED, SideRuntime
from common.daemon.threads import FairThread
from common.estimates.profiler import PeerEstimates
from common.methods.catalog import METHODS, opened_by
from common.methods.interface import CloudContext, CloudHalf
from common.metrics import exposition
from common.metrics.answers import BUSY, OTHER, AnswerMetrics
from common.metrics.exposition import MetricValue, ValueCollector
from common.metrics.state import link_readings, model_readings, models_of, note_build
from common.process.log_lines import AnswerName
from common.process.threads import QuietLog
from common.transport.keys import fingerprint
from common.transport.sending import LinkCounters, LinkToDevices, Peer, tenant_of
from proto.errors import ProtocolError
from proto.messages import (
    Busy,
    Cancel,
    Close,
    Closed,
    Decided,
    Draft,
    Error,
    Fetch,
    Generated,
    Hello,
    Message,
    Open,
    ProbeReply,
    Ready,
    Sync,
    Target,
    Verdict,
    Welcome,
)

# --- inbox
# Messages of open sessions: handled at once, or, if slow, in their device's turn.

Key = tuple[Peer, int]  # peer, session

CROWDED = 1.0  # seconds until a refused device may retry


class Inbox:
    """Delivers messages without blocking. An error ends only its session."""

    def __init__(
        self,
        thread: FairThread,
        find: Callable[[Key], CloudHalf | None],
        fail: Callable[[Key, CloudHalf, Exception], object],
    ) -> None:
        """`find` returns an open session, `fail` ends one."""
        self._thread = thread
        self._find = find
        self._fail = fail

    def deliver(self, key: Key, session: CloudHalf, message: Message, size: int) -> None:
        if not session.slow:
            self._guarded(key, session, partial(session.receive, message))
        elif self._guarded(key, session, partial(session.check, message)):
            self.later(key, session, size, partial(session.receive, message))

    def later(self, key: Key, session: CloudHalf, size: int, run: Callable[[], object]) -> None:
        """Queues `run`, with `size` bytes, after its device's earlier work.

        The session's end drops it. A device with too much waiting gets `Busy`.
        """

        def unless_over() -> None:
            if self._find(key) is session:
                self._guarded(key, session, run)

        if not self._thread.submit(tenant_of(key[0]), size, unless_over, partial(self._fail, key, session)):
            self._fail(key, session, NoPlace(CROWDED))

    def _guarded(self, key: Key, session: CloudHalf, run: Callable[[], object]) -> bool:
        try:
            run()
        except Exception as error:
            self._fail(key, session, error)
            return False
        return True


# --- metrics
# Sums over all devices.

FIRST = Draft | Target | Verdict | Decided | Generated  # advance an answer
REASONS: Final = ("closed", "cancelled", "gone")  # for a session's end
# This side's `Error` codes; others count as `OTHER`.
KINDS: Final = (
    BUSY,
    "document",
    "failed",
    "malformed",
    "mismatch",
    "no-handshake",
    NO_DOCUMENT_FITS,
    "too-large",
    QUESTION_TOO_LONG,
    "unknown-message",
    "unknown-session",
    "unservable",
    "version",
    OTHER,
)


class CloudMetrics:
    """Records sessions at their end, and refusals; reads the rest on request. Thread-safe."""

    def __init__(self, side: SideRuntime, sessions: Callable[[], int], peers: Callable[[], int], process: bool) -> None:
        """`sessions` and `peers` return counts; `process`: this daemon owns the process."""
        self.link: Callable[[], LinkCounters] | None = None  # once there is a link
        self._registry = registry = exposition.make_registry(process)
        self._side = side
        self._sessions = sessions
        self._peers = peers
        note_build(registry, side)
        self.answers = AnswerMetrics(
            registry, "From Open to the first draft, verdict or token", METHODS, REASONS, KINDS, ("cloud",)
        )
        registry.register(ValueCollector(self._readings))

    def text(self) -> bytes:
        """Returns metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def sent(self, message: Message) -> None:
        """Records a refusal or failure."""
        if isinstance(message, Busy):
            self.answers.failed(BUSY)
        elif isinstance(message, Error) and message.code != STOPPING:
            self.answers.failed(message.code)

    def _readings(self) -> Iterator[MetricValue]:
        yield MetricValue("dragon_num_requests_running", "Sessions that are open", float(self._sessions()))
        yield from model_readings(models_of(self._side))
        if self.link is not None:  # otherwise it is the gateway's
            yield MetricValue("dragon_peers_connected", "Devices that have shaken hands", float(self._peers()))
            yield from link_readings(self.link())


class SessionNotes:
    def __init__(self, metrics: CloudMetrics, request: Open | Fetch, settings: CloudSettings) -> None:
        self._answers = metrics.answers
        self._method = opened_by(request).name
        self._placement = request.placement if isinstance(request, Open) else "device"
        self._most_tokens = request.max_tokens if isinstance(request, Open) else settings.max_tokens
        self._began = time.monotonic()
        self._first = True
        self._failed = False

    def waited(self, seconds: float) -> None:
        self._answers.waited(seconds)

    def sent(self, message: Message) -> None:
        if self._first and isinstance(message, FIRST):
            self._first = False
            self._answers.begun(time.monotonic() - self._began)
        elif isinstance(message, Ready):
            self._answers.read(message.prompt_tokens)
        elif isinstance(message, Closed):
            told = message
            report = SideReport(told.drafted, told.accepted, told.rollbacks, branches=told.branches, used=told.used)
            self._answers.drafts("cloud", report)
        elif isinstance(message, Error | Busy):
            self._failed = True

    def closed(self, tokens: int) -> None:
        """Records the answer's `tokens`, as the device states them."""
        self._answers.generated(min(tokens, self._most_tokens))

    def ended(self, reason: str | None) -> None:
        """Records the session's end; `reason` is None after a reported failure."""
        if reason is not None and not self._failed:
            self._answers.ended(reason, time.monotonic() - self._began, self._method, self._placement)


# --- sessions

log = logging.getLogger(__name__)

COMINGS = (1.0, 100.0)  # log lines about devices and ended answers, per second and in a burst
RECENT = 64  # ended sessions with recorded durations


class Sessions:
    """All open sessions of one cloud. The link's thread calls the `on_...` methods."""

    def __init__(self, settings: CloudSettings, side: SideRuntime, process: bool = False) -> None:
        """`process`: this daemon owns the process, so its metrics include it."""
        self.link: LinkToDevices | None = None  # set before the link starts to deliver
        self._settings = settings
        self._side = side
        self._peers: dict[Peer, PeerEstimates] = {}  # devices that said hello
        self._sessions: dict[Key, CloudHalf] = {}
        self._kv_bytes: dict[Key, int] = {}  # expected need
        self._notes: dict[Key, SessionNotes] = {}
        self._lasted: deque[float] = deque(maxlen=RECENT)  # seconds of the latest sessions
        self._comings = QuietLog(log, time.monotonic, *COMINGS)
        self._lines = QuietLog(log)  # about the devices' messages
        self._ends = QuietLog(log, time.monotonic, *COMINGS)
        self._told: dict[Peer, str] = {}  # the library that devices know; link's thread only
        self._inbox = Inbox(side.messages, self._find, self._fail)
        self._closing = False
        self.metrics = CloudMetrics(side, lambda: len(self._sessions), lambda: len(self._peers), process)
        self._lock = threading.Lock()  # of the tables; may be taken under an answer's lock, not vice versa

    @property
    def open(self) -> int:
        """Number of used slots."""
        return len(self._sessions)

    # --- link events

    def on_connected(self, peer: Peer) -> None:
        self._comings.tell(logging.INFO, "%s connected", _named(peer))

    def on_gone(self, peer: Peer) -> None:
        """Ends the device's sessions. It returns as another peer and reopens them."""
        self._comings.tell(logging.INFO, "%s is gone", _named(peer))
        self._told.pop(peer, None)
        with self._lock:
            estimates = self._peers.pop(peer, None)
            keys = [key for key in self._sessions if key[0] == peer]
            last = all(tenant_of(other) != tenant_of(peer) for other in self._peers)
        for key in keys:
            self._free(key, "gone")
        if estimates is not None:  # it has shaken hands
            self._side.profiler.forget(estimates)
            if last:
                self._side.forget_conversations(tenant_of(peer))

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        self._lines.tell(logging.WARNING, "refused a malformed message: %s", error)

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        match message:
            case ProbeReply():
                self._estimates(peer).meter.replied(message)
            case Hello():
                self._greet(peer, message)
            case Open() | Fetch():
                self._estimates(peer).meter.use()
                self._open(peer, message)
            case Close():
                self._close(peer, message)
            case Cancel() | Error():
                self._free((peer, message.session), "cancelled")
            case _:
                self._deliver(peer, message, size)

    def close(self) -> None:
        """Ends all sessions, informs the devices, and refuses new sessions."""
        with self._lock:
            self._closing = True
            peers, keys = list(self._peers), list(self._sessions)
        for peer in peers:
            self._send(peer, stopping_message())
        for key in keys:
            self._free(key)

    # --- from time to time

    def tick(self, now: float) -> bool:
        """Ticks every session, and ends silent devices' ones. Returns whether there were any."""
        with self._lock:
            sessions = list(self._sessions.items())
        for key, session in sessions:
            try:
                if session.silent(now) > self._settings.session_idle_seconds:
                    self._give_up(key, session, session.given_up())
                else:
                    session.tick(now, self._settings.run_ahead)
            except Exception as error:  # ends this session only
                self._fail(key, session, error)
        return bool(sessions)

    # --- handshake and admission

    def _greet(self, peer: Peer, hello: Hello) -> None:
        mine = self._side.hello
        reason = handshake.explain_mismatch(device=hello, cloud=mine)
        if reason is not None:
            self._send(peer, Error(0, "mismatch", reason))
            return
        with self._lock:
            if peer not in self._peers:
                self._peers[peer] = self._side.profiler.watch(hello, partial(self._send, peer))
        self._introduce(peer, mine)

    def _introduce(self, peer: Peer, mine: Hello) -> None:
        settings = self._settings
        self._told[peer] = mine.library
        self._send(peer, Welcome(mine, settings.max_sessions, settings.max_tokens, settings.max_query_bytes))

    def _open(self, peer: Peer, request: Open | Fetch) -> None:
        with self._lock:
            key = peer, request.session
            known, there = peer in self._peers, key in self._sessions
        if not known:
            self._send(peer, no_handshake(request))
        elif there:
            self._lines.tell(logging.INFO, "answer %s is open already", AnswerName.of(request.session))
        elif (reason := explain_refusal(request, self._settings, self._side.decoder.vocabulary)) is not None:
            self._send(peer, Error(request.session, "unservable", reason))
        else:
            self._admit(key, request)

    def _admit(self, key: Key, request: Open | Fetch) -> None:
        try:
            if self._told.get(key[0]) != self._side.library.identity:
                self._introduce(key[0], self._side.hello)  # the library has changed
            kv_bytes = self._side.kv_bytes(request)
        except Exception as error:  # from counting passages
            self._send(key[0], failure_message(request.session, as_failure(error, SEARCH_FAILED, request.session)))
            return
        try:
            notes = SessionNotes(self.metrics, request, self._settings)
            session = opened_by(request).cloud(request, self._context(key, notes))
        except ValueError as error:  # before others make room
            self._send(key[0], Error(request.session, "unservable", str(error)))
            return
        with self._lock:
            if self._closing:
                return  # the device knows
            admission, ending = self._place(key, kv_bytes)
            if admission.wait is None:
                self._sessions[key] = session
                self._kv_bytes[key], self._notes[key] = kv_bytes, notes
        self._end_for_others(ending)
        if admission.wait is not None:
            self._send(key[0], Busy(request.session, int(1e6 * admission.wait)))
        else:
            session.begin()

    def _decodes_on(self) -> bool:
        """Whether answers may decode on while waiting: only few run."""
        return len(self._sessions) <= self._settings.eager

    def _reserve(self, key: Key, session: CloudHalf, kv_bytes: int) -> None:
        """Updates a session's memory need. Raises `NoPlace` without room, as if never opened.

        On the retrieval thread.
        """
        with self._lock:
            if self._sessions.get(key) is not session:
                return  # it has ended
            admission, ending = self._place(key, kv_bytes)
            if admission.wait is None:
                self._kv_bytes[key] = kv_bytes
            else:
                self._forget(key)
        self._end_for_others(ending)
        if admission.wait is not None:
            raise NoPlace(admission.wait)

    def _place(self, key: Key, kv_bytes: int) -> tuple[Admission, list[tuple[Key, CloudHalf]]]:
        """Decides on admission, and removes the sessions that make room.

        The caller holds the lock, and ends these sessions after releasing it.
        """
        now, settings = time.monotonic(), self._settings
        others = [(other, session) for other, session in self._sessions.items() if other != key]
        taken = [
            OpenSession(now - session.began, tenant_of(other[0]), self._kv_bytes[other]) for other, session in others
        ]
        memory = self._side.decoder.memory.limit_bytes
        places = SessionLimits(settings.max_sessions, settings.max_sessions_per_key, memory)
        admission = admit(places, tenant_of(key[0]), kv_bytes, taken, self._lasted)
        ending = [others[index] for index in admission.ending]
        for other, _ in ending:
            self._forget(other)
        return admission, ending

    def _end_for_others(self, ending: Sequence[tuple[Key, CloudHalf]]) -> None:
        """Ends sessions of devices above their share, which may retry."""
        for (peer, number), session in ending:
            name = AnswerName.of(number)
            self._ends.tell(logging.INFO, "answer %s was ended: %s has more than its share", name, _named(peer))
            session.end()
            self._send(peer, Busy(number, int(1e6 * wait([0.0], self._lasted))))

    def _context(self, key: Key, notes: SessionNotes) -> CloudContext:
        peer = key[0]

        def send(message: Message) -> int:
            notes.sent(message)
            return self._send(peer, message)

        queued = partial(self._queued, peer)
        over, reserve = partial(self._ended, key), partial(self._reserve, key)
        estimates, decodes_on = self._estimates(peer), self._decodes_on
        return CloudContext(
            self._side, estimates, send, queued, over, reserve, decodes_on, tenant_of(peer), notes.waited
        )

    # --- messages of an open session

    def _deliver(self, peer: Peer, message: Message, size: int) -> None:
        key = (peer, getattr(message, "session", 0))
        session = self._find(key)
        if session is not None:
            self._inbox.deliver(key, session, message, size)
        elif isinstance(message, Sync):
            self._send(peer, unknown_session(message.session))

    def _close(self, peer: Peer, message: Close) -> None:
        key = (peer, message.session)
        with self._lock:
            session, notes = self._sessions.get(key), self._notes.get(key)
        if session is not None and notes is not None:
            make = partial(self._report, key, session, notes, message.position)
            report = partial(self._inbox.later, key, session, 0, make)
            self._inbox.later(key, session, 0, partial(session.finish, report))

    def _report(self, key: Key, session: CloudHalf, notes: SessionNotes, tokens: int) -> None:
        notes.closed(tokens)
        for part in session.closing():
            notes.sent(part)
            self._send(key[0], part)
        self._free(key, "closed", session)

    def _estimates(self, peer: Peer) -> PeerEstimates:
        with self._lock:
            return self._peers.get(peer, self._side.profiler.nobody)

    def _find(self, key: Key) -> CloudHalf | None:
        with self._lock:
            return self._sessions.get(key)

    # --- the end of a session

    def _free(self, key: Key, reason: str | None = None, only: CloudHalf | None = None) -> bool:
        """Ends a session for `reason`, None for a failure. Returns whether it was open.

        `only`: just this one, as numbers may be reused.
        """
        with self._lock:
            session = self._sessions.get(key)
            if session is None or (only is not None and session is not only):
                return False
            self._remove(key, session, reason)
        session.end()
        self._tell_end(key, session, reason)
        return True

    def _fail(self, key: Key, session: CloudHalf, error: Exception) -> None:
        failure = error if isinstance(error, ProtocolError) else as_failure(error, session=key[1])
        self._give_up(key, session, failure_message(key[1], failure))

    def _give_up(self, key: Key, session: CloudHalf, reason: Busy | Error) -> None:
        if self._free(key, only=session):
            self._send(key[0], reason)

    def _ended(self, key: Key, session: CloudHalf) -> None:
        with self._lock:
            known = self._sessions.get(key) is session
            if known:
                self._remove(key, session, "closed")
        if known:
            self._tell_end(key, session, "closed")

    def _remove(self, key: Key, session: CloudHalf, reason: str | None) -> None:
        """The caller holds the lock. `reason` is None for a failure."""
        self._forget(key).ended(reason)
        self._lasted.append(time.monotonic() - session.began)

    def _tell_end(self, key: Key, session: CloudHalf, reason: str | None) -> None:
        seconds = time.monotonic() - session.began
        text = "answer %s ended after %.1f s: %s"
        self._ends.tell(logging.INFO, text, AnswerName.of(key[1]), seconds, reason or "failed")

    def _forget(self, key: Key) -> SessionNotes:
        """The caller holds the lock."""
        del self._sessions[key], self._kv_bytes[key]
        self._side.decoding.wake()  # others may decode on now
        return self._notes.pop(key)

    def _send(self, peer: Peer, message: Message) -> int:
        self.metrics.sent(message)
        return 0 if self.link is None else self.link.send(peer, message)

    def _queued(self, peer: Peer) -> int:
        return 0 if self.link is None else self.link.queued(peer)


def _named(peer: Peer) -> str:
    return "a device" if peer.key is None else f"the device with the fingerprint {fingerprint(peer.key)}"
