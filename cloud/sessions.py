"""The cloud's sessions: handshake, admission, delivery of messages, and the end."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from functools import partial
from typing import Protocol

from cloud.admission import Places, Taken, admit, refusal
from cloud.settings import CloudSettings
from common.methods.catalog import opened_by
from common.methods.failures import failure_message, unknown_session
from common.methods.interface import CloudContext, CloudHalf
from common.runtime import handshake
from common.runtime.errors import NoPlace
from common.runtime.failures import as_failure
from common.runtime.peer_estimates import PeerEstimates
from common.runtime.side import SEARCH_FAILED, SideRuntime
from common.transport.interface import Peer
from common.transport.keys import fingerprint
from proto.errors import ProtocolError
from proto.messages import Busy, Cancel, Close, Error, Fetch, Hello, Message, Open, ProbeReply, Sync, Welcome

log = logging.getLogger(__name__)

RECENT = 64  # ended sessions whose durations are kept

Key = tuple[Peer, int]  # peer, session


class Link(Protocol):
    """The transport as the sessions use it."""

    def send(self, peer: Peer, message: Message) -> int: ...

    def queued(self, peer: Peer) -> int: ...


class Sessions:
    """All open sessions of one cloud daemon. The link calls the `on_...` methods, on its thread."""

    def __init__(self, settings: CloudSettings, side: SideRuntime) -> None:
        self.link: Link | None = None  # set before the link starts to deliver
        self._settings = settings
        self._side = side
        self._peers: dict[Peer, PeerEstimates] = {}  # those that said hello
        self._sessions: dict[Key, CloudHalf] = {}
        self._kv_bytes: dict[Key, int] = {}  # that they are expected to need
        self._lasted: deque[float] = deque(maxlen=RECENT)  # seconds that the latest sessions took
        self._complained: set[Peer] = set()  # whose first malformed message was logged; for the link thread only
        self._lock = threading.Lock()  # of the tables; may be taken under an answer's lock, not the other way round

    @property
    def open(self) -> int:
        """Number of sessions that occupy a place now."""
        return len(self._sessions)

    # --- link events

    def on_connected(self, peer: Peer) -> None:
        log.info("%s connected", _named(peer))

    def on_gone(self, peer: Peer) -> None:
        """The connection broke. The device comes back as another peer and opens its sessions anew."""
        log.info("%s is gone", _named(peer))
        self._complained.discard(peer)
        with self._lock:
            estimates = self._peers.pop(peer, None)
            keys = [key for key in self._sessions if key[0] == peer]
        if estimates is not None:
            self._side.profiler.forget(estimates)
        for key in keys:
            self._free(key)

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        """Log the first malformed message of each connection: a flood of them must not flood the log."""
        if peer not in self._complained:
            self._complained.add(peer)
            log.warning("refused a malformed message: %s", error)

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        match message:
            case ProbeReply():
                self._estimates(peer).meter.replied(message)
            case Hello():
                self._greet(peer, message)
            case Open() | Fetch():
                self._open(peer, message)
            case Close():
                self._close(peer, message)
            case Cancel() | Error():
                self._free((peer, message.session))
            case _:
                self._deliver(peer, message)

    # --- from time to time

    def tick(self, now: float) -> None:
        """Look at the clock for every session; end those whose devices have been silent for too long."""
        with self._lock:
            sessions = list(self._sessions.items())
        for key, session in sessions:
            try:
                if session.silent(now) > self._settings.session_idle_seconds:
                    self._give_up(key, session.given_up())
                else:
                    session.tick(now, self._settings.run_ahead)
            except Exception as error:  # ends this session only
                self._fail(key, error)

    # --- handshake and admission

    def _greet(self, peer: Peer, hello: Hello) -> None:
        mine = self._side.hello
        reason = handshake.refusal(device=hello, cloud=mine)
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
            key = peer, request.session
            known, there = peer in self._peers, key in self._sessions
        if not known:
            self._send(peer, Error(request.session, "no-handshake", f"Send Hello before {type(request).__name__}."))
        elif there:
            log.info("session %d is open already", request.session)
        elif (reason := refusal(request, self._settings, self._side.decoder.vocabulary)) is not None:
            self._send(peer, Error(request.session, "unservable", reason))
        else:
            self._admit(key, request)

    def _admit(self, key: Key, request: Open | Fetch) -> None:
        try:
            kv_bytes = self._side.kv_bytes(request)
        except Exception as error:  # of the library, which says how many passages there are
            self._send(key[0], failure_message(request.session, as_failure(error, SEARCH_FAILED)))
            return
        with self._lock:
            wait = self._wait(key, kv_bytes)
        if wait is not None:
            self._send(key[0], Busy(request.session, int(1e6 * wait)))
        else:
            self._start(key, request, kv_bytes)

    def _reserve(self, key: Key, session: CloudHalf, kv_bytes: int) -> None:
        """Note the memory that a session needs, as its documents show. Raises `NoPlace` where others have it: then it
        was never open. On the retrieval thread.
        """
        with self._lock:
            if self._sessions.get(key) is not session:
                return  # it has ended meanwhile
            wait = self._wait(key, kv_bytes)
            if wait is None:
                self._kv_bytes[key] = kv_bytes
                return
            del self._sessions[key], self._kv_bytes[key]
        raise NoPlace(wait)

    def _wait(self, key: Key, kv_bytes: int) -> float | None:
        """Seconds until there may be a place for this session beside the others, None when there is one. The caller
        holds the lock.
        """
        now, settings = time.monotonic(), self._settings
        taken = [
            Taken(now - session.began, _owner(other[0]) == _owner(key[0]), self._kv_bytes[other])
            for other, session in self._sessions.items()
            if other != key
        ]
        memory = self._side.decoder.memory.limit_bytes
        places = Places(settings.max_sessions, settings.max_sessions_per_key, memory)
        return admit(places, kv_bytes, taken, self._lasted)

    def _start(self, key: Key, request: Open | Fetch, kv_bytes: int) -> None:
        try:
            session = opened_by(request).cloud(request, self._context(key))
        except ValueError as error:
            self._send(key[0], Error(request.session, "unservable", str(error)))
            return
        with self._lock:
            self._sessions[key] = session
            self._kv_bytes[key] = kv_bytes
        session.begin()

    def _context(self, key: Key) -> CloudContext:
        peer = key[0]
        send, queued = partial(self._send, peer), partial(self._queued, peer)
        over, reserve = partial(self._ended, key), partial(self._reserve, key)
        return CloudContext(self._side, self._estimates(peer), send, queued, over, reserve)

    # --- messages of an open session

    def _deliver(self, peer: Peer, message: Message) -> None:
        key = (peer, getattr(message, "session", 0))
        session = self._find(key)
        if session is None:
            if isinstance(message, Sync):
                self._send(peer, unknown_session(message.session))
            return
        try:
            session.receive(message)
        except ProtocolError as error:
            self._give_up(key, Error(key[1], error.code, str(error)))
        except Exception as error:
            self._fail(key, error)

    def _close(self, peer: Peer, message: Close) -> None:
        key = (peer, message.session)
        session = self._find(key)
        if session is None:
            return
        try:
            for part in session.closing():
                self._send(peer, part)
        except Exception as error:
            self._fail(key, error)
        else:
            self._free(key)

    def _estimates(self, peer: Peer) -> PeerEstimates:
        with self._lock:
            return self._peers.get(peer, self._side.profiler.nobody)

    def _find(self, key: Key) -> CloudHalf | None:
        with self._lock:
            return self._sessions.get(key)

    # --- the end of a session

    def _free(self, key: Key) -> None:
        """End a session, if it is open."""
        with self._lock:
            session = self._sessions.get(key)
            if session is not None:
                self._remove(key, session)
        if session is not None:
            session.end()

    def _fail(self, key: Key, error: Exception) -> None:
        self._give_up(key, failure_message(key[1], as_failure(error)))

    def _give_up(self, key: Key, reason: Busy | Error) -> None:
        """End a session and tell the device why."""
        self._free(key)
        self._send(key[0], reason)

    def _ended(self, key: Key, session: CloudHalf) -> None:
        """Free the place of a session that ended by itself, unless a later session has taken its number."""
        with self._lock:
            if self._sessions.get(key) is session:
                self._remove(key, session)

    def _remove(self, key: Key, session: CloudHalf) -> None:
        """Free the place of a session. The caller holds the lock."""
        del self._sessions[key], self._kv_bytes[key]
        self._lasted.append(time.monotonic() - session.began)

    def _send(self, peer: Peer, message: Message) -> int:
        return 0 if self.link is None else self.link.send(peer, message)

    def _queued(self, peer: Peer) -> int:
        return 0 if self.link is None else self.link.queued(peer)


def _owner(peer: Peer) -> str | int:
    """The device that a session counts for: by its key, if any, so that more connections don't give more places."""
    return peer.connection if peer.key is None else peer.key


def _named(peer: Peer) -> str:
    return "a device" if peer.key is None else f"the device with the fingerprint {fingerprint(peer.key)}"
