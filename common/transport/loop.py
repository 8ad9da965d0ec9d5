"""Socket thread, turns and admission, shared by both ends of the link."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, Self

import zmq
from zmq.utils import z85

from common.process.threads import Died, QuietLog, TokenBucket, vital_thread
from common.transport.inflow import InflowGuard, InflowLimits
from common.transport.keys import fingerprint
from common.transport.sending import (
    ConnectionState,
    Delivery,
    Handler,
    Limits,
    LinkCounters,
    Outbox,
    OutgoingMessage,
    Peer,
    Quota,
    SendWindow,
    Signal,
    count_message,
    drop_rest,
    read_event,
    read_frames,
    reply_to_probe,
)
from proto.errors import ProtocolError, malformed
from proto.framing import decode, encode, wire_size
from proto.messages import Error, Message, Probe, ProbeReply

# --- turns
# A polling thread that survives its steps' exceptions.

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 0.001  # seconds after a failed turn, doubled with each in a row
_LAST_PAUSE: Final = 0.1
_LOOK: Final = 1.0  # seconds between checks for the awaited thread's end
_MOST: Final = 100  # failed turns in a row, about ten seconds, that end the thread


class Mishaps:
    """Counts and logs the exceptions that a thread survives, within a rate limit.

    Logs types only: texts may quote a peer's message.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._lines = QuietLog(_LOG, clock)

    def note(self, where: str, error: Exception) -> None:
        self.count += 1
        if self._lines.tell(logging.ERROR, "%s failed with %s", where, type(error).__name__):
            _LOG.debug("The failure was:", exc_info=error)


class PolledSockets(Protocol):
    """Sockets of one purpose and their steps per turn."""

    @property
    def sockets(self) -> Sequence[tuple[Any, int]]:
        """Sockets to poll, each with its events."""

    @property
    def receiving(self) -> Sequence[Callable[[], None]]:
        """Steps that read input."""

    @property
    def sending(self) -> Sequence[Callable[[], None]]:
        """Steps that send and maintain, after the receiving steps of all parts."""

    def deadline(self) -> float | None:
        """Time of the next needed turn (`time.monotonic`), None for only after events."""

    def end(self) -> None:
        """Closes the sockets after the last turn."""


class Turns:
    """Runs its parts' steps in turns on a vital thread until closed.

    Closing ends the parts. An exception does not stop the following steps. Failing turns have growing pauses;
    finally the thread ends with the exception and calls `died`. The `signal` starts a turn.
    """

    def __init__(self, name: str, died: Died | None) -> None:
        self.mishaps = Mishaps()
        self.closing = threading.Event()
        self.signal = Signal()
        self.readable: dict[Any, int] = {}  # with events in this turn
        self._parts: list[PolledSockets] = []
        self._asked: deque[Callable[[], None]] = deque()
        self._thread = vital_thread(self._run, name, died)

    def start(self) -> None:
        self._thread.start()

    def add(self, part: PolledSockets) -> None:
        """Adds a part before the start, or on the thread."""
        self._parts.append(part)

    def remove(self, part: PolledSockets) -> None:
        """Ends a part, added or not. On the thread."""
        if part in self._parts:
            self._parts.remove(part)
        part.end()

    def ask(self, answer: Callable[[], None]) -> None:
        """Has the thread call `answer` after a turn. From any thread."""
        self._asked.append(answer)
        self.signal.give()

    def perform(self, task: Callable[[], None]) -> None:
        """Runs `task` on the thread, and waits for it or the thread's end. From other threads."""
        done = threading.Event()

        def do_it() -> None:
            task()
            done.set()

        self.ask(do_it)
        while not done.wait(_LOOK) and self._thread.is_alive():
            pass

    def close(self) -> None:
        """Stops and waits for the thread; on the thread itself, stops after this turn."""
        self.closing.set()
        if self._thread.ident is None:
            self._end()
        elif threading.current_thread() is not self._thread:
            self.signal.give()
            self._thread.join()

    def _run(self) -> None:
        failed = 0
        try:
            while not self.closing.is_set():
                failure = self._turn()
                failed = 0 if failure is None else failed + 1
                if failure is not None:
                    if failed > _MOST:
                        raise failure
                    self.closing.wait(min(_LAST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failed, 16)))
        finally:
            self._end()

    def _turn(self) -> Exception | None:
        parts = list(self._parts)
        failure = self._guarded([self._wait])
        failure = self._guarded([step for part in parts for step in part.receiving]) or failure
        self.signal.lower()
        failure = self._guarded([step for part in parts for step in part.sending]) or failure
        while self._asked:
            self._asked.popleft()()
        return failure

    def _guarded(self, steps: Sequence[Callable[[], None]]) -> Exception | None:
        failure = None
        for step in steps:
            try:
                step()
            except Exception as error:
                self.mishaps.note(getattr(step, "__name__", "a step"), error)
                failure = error
        return failure

    def _wait(self) -> None:
        self.readable = {}
        sockets = [(self.signal.fileno(), zmq.POLLIN), *(each for part in self._parts for each in part.sockets)]
        self.readable = dict(zmq.zmq_poll(sockets, self._patience()))
        self.signal.take(self.signal.fileno() in self.readable)

    def _patience(self) -> int:
        times = [due for part in self._parts if (due := part.deadline()) is not None]
        return max(0, int((min(times) - time.monotonic()) * 1000) + 1) if times else -1

    def _end(self) -> None:
        for part in self._parts:
            part.end()
        self.signal.close()


# --- zap
# Admission of connections: a ZAP server (ZeroMQ RFC 27).

_ADDRESS: Final = "inproc://zeromq.zap.01"
_DOMAIN: Final = b"dragon"
_REFUSALS: Final = (0.1, 3.0)  # logged refusals per second, and in a burst
LATER: Final = 500  # for a paused peer; RFC 27's 300 makes libzmq neither answer nor close
_ZAP_BATCH: Final = 64  # requests answered before other steps run


class ZapAuthenticator:
    """Answers ZeroMQ's request at every handshake, on the link's thread. Doubts are refusals.

    Create it before binding or connecting sockets of its context. `allows` decides on public keys (Z85); None:
    plaintext, open to all. Plaintext links ask too: only then does libzmq refuse ZMTP 1 and 2, whose peers have no
    handshake and no metadata.

    Accepted messages carry the key as User-Id. The holder of a `paused` key must return later.
    """

    def __init__(
        self, context: zmq.Context[Any], allows: Callable[[str], bool] | None, paused: Callable[[str], bool]
    ) -> None:
        self._allows = allows
        self._paused = paused
        self._lines = QuietLog(_LOG, time.monotonic, *_REFUSALS)
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self.socket.bind(_ADDRESS)

    def protect(self, socket: zmq.Socket[Any], secret: bytes | None = None) -> None:
        """Makes an unbound `socket` ask here; with `secret`, as a CURVE server.

        Without an answer a CURVE server would accept any key, so ZeroMQ is set to refuse.
        """
        if secret is not None:
            socket.curve_server = True
            socket.curve_secretkey = secret
        socket.zap_domain = _DOMAIN
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def answer(self) -> None:
        """Answers requests while `socket` is readable."""
        with contextlib.suppress(zmq.Again):
            for _ in range(_ZAP_BATCH):
                request = self.socket.recv_multipart(zmq.DONTWAIT)
                self.socket.send_multipart(self._verdict(request), zmq.DONTWAIT)

    def close(self) -> None:
        self.socket.close(0)

    def _verdict(self, request: Sequence[bytes]) -> list[bytes]:
        # The identity is the asking socket's own, against RFC 27.
        version, sequence, domain, _address, _identity, mechanism, *credentials = [*request, *[b""] * 6][
            : max(6, len(request))
        ]
        user = None
        if (version, domain) == (b"1.0", _DOMAIN):
            user = self._plain(mechanism, credentials) if self._allows is None else self._key(mechanism, credentials)
        if user is None:
            return [b"1.0", sequence, b"400", b"The key is not trusted.", b"", b""]
        if self._paused(user):
            return [b"1.0", sequence, b"%d" % LATER, b"Later.", b"", b""]
        return [b"1.0", sequence, b"200", b"OK", user.encode("ascii"), b""]

    def _plain(self, mechanism: bytes, credentials: Sequence[bytes]) -> str | None:
        return "" if mechanism == b"NULL" and not credentials else None

    def _key(self, mechanism: bytes, credentials: Sequence[bytes]) -> str | None:
        if mechanism != b"CURVE" or [len(each) for each in credentials] != [32] or self._allows is None:
            return None
        key = z85.encode(credentials[0]).decode("ascii")
        try:
            if self._allows(key) is True:
                return key
            refused = "refused a connection: the key with the fingerprint %s is not trusted"
            self._lines.tell(logging.WARNING, refused, fingerprint(key))
            return None
        except Exception as error:  # any failure is a refusal
            self._lines.tell(logging.ERROR, "the allow-list failed with %s; the peer is refused", type(error).__name__)
            return None


# --- loop

_FRAMES: Final = 2  # frames read per message: one more than allowed
_BATCH: Final = 64  # messages received before sending
_TURN: Final = 0.01  # seconds of receiving before sending
_LAST_WORDS: Final = 1.0  # longest delay in seconds of a loss report
_SENDING: Final = 0.3  # seconds for the final queue to arrive; longer than most round trips
_ENDING: Final = 0.5  # seconds for connections to end


class SocketLoop(ABC):
    """Polls one socket, its monitor and the outbox. Subclasses manage connections.

    After the start, underscored attributes belong to the thread.
    """

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        name: str,
        *,
        addressed: bool,
        encrypted: bool,
        allows: Callable[[str], bool] | None,
        died: Died | None,
        beside: Turns | None = None,
    ) -> None:
        """Uses the thread of `beside`, which must outlive this loop; None: an own thread."""
        self.limits = limits
        self._addressed = addressed  # a routing id precedes each message
        self._encrypted = encrypted
        self._handler = handler
        self._context: zmq.Context[Any] = zmq.Context()
        self._guest = beside is not None
        self._turns = Turns(name, died) if beside is None else beside
        self._outbox = Outbox(limits.queue_messages, limits.queue_bytes, self._turns.signal)
        self._authenticator = ZapAuthenticator(self._context, allows, self._paused)
        self.sockets: list[tuple[Any, int]] = [(self._authenticator.socket, zmq.POLLIN)]
        waiting, messages = 2 * limits.window_bytes, limits.messages_burst + limits.refused_burst
        self._guard = InflowGuard(InflowLimits(2 * limits.frame_bytes, waiting, 4 * waiting, messages), name, died)
        self._counters = LinkCounters()
        self._faults = Mishaps()  # of the handler
        self._connections: dict[int, ConnectionState] = {}
        self._delivery = Delivery(self._outbox, self._counters, self._connections, self._on_unreachable)
        self._last_connection = 0
        self._clearing = False  # ZeroMQ still has input of a cut connection
        self._socket: zmq.Socket[Any] | None = None
        self._monitor: zmq.Socket[Any] | None = None
        self._closed = False
        # A connection's event precedes its handshake, so watching before receiving always sees it.
        self.receiving = [self._authenticate, self._watch, self._receive]
        self.sending = [self._delivery.send, self._on_turn]
        if not self._guest:
            self._turns.add(self)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the threads, and the calls of the handler."""
        self._guard.start()
        if self._guest:
            self._turns.perform(lambda: self._turns.add(self))
        else:
            self._turns.start()

    def close(self) -> None:
        """Stops and frees the socket. First sends the queue, for a moment, to end the peers' sessions."""
        if self._guest:
            self._turns.perform(lambda: self._turns.remove(self))
        else:
            self._turns.close()

    def ask(self, answer: Callable[[], None]) -> None:
        """Has the socket's thread call `answer`, as a sign of life. From any thread."""
        self._turns.ask(answer)

    def counters(self) -> LinkCounters:
        """Returns the counts so far, from any thread."""
        return self._counters.snapshot(self._outbox.refused, self._turns.mishaps.count)

    def _post(self, connection: int, message: Message) -> int:
        return self._put(connection, type(message).__name__, encode(message, self.limits.payload_bytes))

    def _put(self, connection: int, kind: str, frame: bytes) -> int:
        outgoing = OutgoingMessage(connection, kind, frame, wire_size(frame))
        return outgoing.size if self._outbox.put(outgoing) else 0

    @abstractmethod
    def _on_event(self, event: int, value: int, now: float) -> None:
        """Handles a monitor event. Ends are only noted: last messages are unread."""

    @abstractmethod
    def _sender(self, first: zmq.Frame, now: float) -> ConnectionState | None:
        """Returns the connection of the message with `first`, None for a stray."""

    @abstractmethod
    def _on_turn(self) -> None:
        """Handles timers and ended connections, each turn."""

    @abstractmethod
    def _deadline(self) -> float | None:
        """Returns the time when `_on_turn` is needed, None for only after events."""

    @abstractmethod
    def _on_unreachable(self, connection: ConnectionState) -> None:
        """Handles a connection that ZeroMQ no longer knows."""

    def _is_over(self, first: zmq.Frame) -> bool:
        """Whether the message is of an ended connection. Fast, as there may be millions."""
        return False

    def _on_emptied(self) -> None:
        self._clearing = False
        self._guard.emptied()

    def _paused(self, key: str) -> bool:
        return False

    def _adopt(self, made: zmq.Socket[Any], monitor: zmq.Socket[Any]) -> None:
        self._socket, self._monitor = made, monitor
        self._delivery.socket = made
        self.sockets += [(made, zmq.POLLIN), (monitor, zmq.POLLIN)]

    def _discard(self) -> None:
        made, monitor = self._socket, self._monitor
        self._socket = self._monitor = self._delivery.socket = None
        if made is not None and monitor is not None:
            del self.sockets[1:]
            made.disable_monitor()
            monitor.close(0)
            made.close(0)

    def _admit(self, key: str | None, routing: bytes, descriptor: int, quota: Quota, now: float) -> ConnectionState:
        self._last_connection += 1
        peer = Peer(self._last_connection, key)
        rate, window = self.limits.errors_per_second, SendWindow(self.limits, now)
        connection = ConnectionState(peer, routing, descriptor, quota, TokenBucket(rate, max(1.0, rate), now), window)
        self._connections[peer.connection] = connection
        self._outbox.open(peer.connection)
        self._counters.connects += 1
        self._call(self._handler.on_connected, peer)
        return connection

    def _dismiss(self, connection: ConnectionState) -> None:
        number = connection.peer.connection
        if self._connections.pop(number, None) is not None:
            self._delivery.forget(connection)
            self._outbox.shut(number)
            self._call(self._handler.on_gone, connection.peer)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """Counts a handler's exception, logging its type: its text may quote a message."""
        try:
            function(*arguments)
        except Exception as error:
            self._counters.faults += 1
            self._faults.note(getattr(function, "__name__", "handler"), error)

    def deadline(self) -> float | None:
        times = [self._deadline(), None if (retry := self._delivery.retry) is None else time.monotonic() + retry]
        return min((each for each in times if each is not None), default=None)

    def _authenticate(self) -> None:
        # A cut peer that returns, also under another identity, must not meet its old input.
        if not self._clearing and self._authenticator.socket in self._turns.readable:
            self._authenticator.answer()

    def _watch(self) -> None:
        now = time.monotonic()
        while (monitor := self._monitor) is not None:
            try:
                number, value = read_event(monitor)
            except zmq.Again:
                return
            self._on_event(number, value, now)

    def _receive(self, seconds: float = _TURN) -> None:
        now = time.monotonic()
        for _ in range(_BATCH):
            if self._socket is None:
                return
            try:
                first = self._socket.recv(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                self._on_emptied()
                return
            if self._is_over(first):
                drop_rest(self._socket, first)
                continue
            frames, size = read_frames(self._socket, first, not self._addressed, _FRAMES, self._encrypted)
            try:
                self._take_in(first, frames, size, now)
            except Exception as error:  # one peer's message must not stop the others
                self._turns.mishaps.note("taking in a message", error)
            if time.monotonic() > now + seconds:
                return

    def _take_in(self, first: zmq.Frame, frames: Sequence[bytes], size: int, now: float) -> None:
        connection = self._sender(first, now)
        if connection is None:
            self._counters.strays += 1
            return
        if not self._guard.heard(connection.watched, size) or connection.cut:
            self._counters.over_quota += 1
        elif connection.quota.take(now, size):
            self._hand_over(connection, frames, now)
        else:
            self._counters.over_quota += 1
            self._complain(connection, "quota", "This link accepts fewer messages per second; slow down.", now)
            if not connection.quota.forgives(now):
                self._guard.disconnect(connection.watched, "flood")
                connection.cut = True

    def _drain(self) -> None:
        """Receives a lost connection's last messages, for a limited time."""
        until = time.monotonic() + _LAST_WORDS
        while self._socket is not None and self._socket.poll(0) and (rest := until - time.monotonic()) > 0:
            self._receive(rest)

    def _hand_over(self, connection: ConnectionState, frames: Sequence[bytes], now: float) -> None:
        try:
            if len(frames) != 1:
                raise malformed("a message must be one frame")
            message = decode(frames[0], self.limits.payload_bytes)
        except ProtocolError as error:
            self._counters.malformed += 1
            self._complain(connection, error.code, error.text, now)
            self._call(self._handler.on_invalid, connection.peer, error)
            return
        size = wire_size(frames[0])
        count_message(self._counters.received, type(message).__name__, size)
        if isinstance(message, Probe):
            # Bypasses the queue, as Python's delay is not the network's.
            self._delivery.reply(connection, reply_to_probe(message, time.monotonic_ns() // 1000))
        elif not (isinstance(message, ProbeReply) and connection.window.replied(message)):
            self._call(self._handler.on_message, connection.peer, message, size)

    def _complain(self, connection: ConnectionState, code: str, text: str, now: float) -> None:
        if connection.complaints.take(now):
            self._delivery.reply(connection, Error(0, code, text))

    def end(self) -> None:
        """Sends the rest and closes everything. On the thread."""
        if not self._closed:
            self._closed = True
            self._send_rest()
            self._guard.close()
            self._end_connections()
            self._discard()
            self._authenticator.close()
            self._outbox.close()
            self._context.term()

    def _send_rest(self) -> None:
        """Sends the queue until confirmed: closing the socket loses ZeroMQ's buffers."""
        try:
            self._delivery.finish()
            until = time.monotonic() + _SENDING
            while self._unconfirmed() and self._socket is not None and (rest := until - time.monotonic()) > 0:
                if self._socket.poll(int(1000 * rest)):
                    self._receive()
                if self._delivery.retry is not None:
                    self._delivery.finish()
        except Exception as error:  # the shutdown continues
            self._turns.mishaps.note("sending the rest", error)

    def _unconfirmed(self) -> bool:
        return any(not connection.window.confirmed for connection in self._connections.values())

    def _end_connections(self) -> None:
        """Ends connections before the socket, whose end would stop their input."""
        left, until = self._guard.end_all(), time.monotonic() + _ENDING
        while left and self._monitor is not None and (rest := until - time.monotonic()) > 0:
            if self._monitor.poll(int(1000 * rest)):
                left -= read_event(self._monitor)[0] == zmq.EVENT_DISCONNECTED
