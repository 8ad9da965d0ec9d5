"""Frames between gateway and workers, over a private local socket or encrypted TCP."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final, Self

import msgpack
import zmq

from common.configuration.configuration import ConfigurationError
from common.process.threads import Accounts, Died
from common.transport.keys import KeyPair
from common.transport.loop import Turns, ZapAuthenticator
from common.transport.sending import (
    DEFAULT_LIMITS,
    NEVER,
    Handler,
    Outbox,
    OutgoingMessage,
    Peer,
    read_event,
    tenant_of,
)
from proto.framing import LARGEST_PAYLOAD, decode, encode, wire_size
from proto.messages import Busy, Cancel, Close, Error, Fetch, Message, Open

MOST_BYTES: Final = 2**28  # waiting for a process, or not taken in
_LEAST: Final = 2**12  # least bytes counted per note, for its own memory
MOST_OF_ONE: Final = 2**25  # per device, before droppable messages are dropped
_TAKEN: Final = 2**18  # bytes between confirmations
_BATCH: Final = 64  # messages received before sending
_ENDING: Final = 200  # milliseconds for final messages
# Events of a lost or failed connection.
_LOST: Final = (
    zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)  # fmt: skip


class Kind(IntEnum):
    """Purposes of frames."""

    READY = 1  # a worker serves; `value`: its vocabulary
    ALIVE = 2  # its threads work
    MESSAGE = 3  # from or for the device `peer`: `frame`; `value`: its opening, or the last one taken in
    GONE = 4  # the device, or its last session there, is gone
    PASSED = 5  # `value` bytes in total left the queue for `peer`
    METRICS = 6  # requests metrics, or has them in `frame` (Prometheus' text format)
    TAKEN = 7  # `value` more notes taken in


@dataclass(frozen=True, slots=True)
class Note:
    """A frame."""

    kind: Kind
    peer: Peer | None = None
    value: int = 0
    frame: bytes = b""


def pack_note(note: Note) -> bytes:
    connection, key = (0, None) if note.peer is None else (note.peer.connection, note.peer.key)
    packed: bytes = msgpack.packb((int(note.kind), connection, key, note.value, note.frame))
    return packed


def unpack_note(data: bytes) -> Note:
    """Raises `ValueError` for a foreign frame."""
    try:
        kind, connection, key, value, frame = msgpack.unpackb(data)
    except (TypeError, msgpack.UnpackException):
        raise ValueError("a note must be an array of five values") from None
    return Note(Kind(kind), Peer(connection, key) if connection else None, value, frame)


@dataclass(frozen=True, slots=True)
class _Outgoing(OutgoingMessage):
    share: tuple[int, str | int] | None  # process and device


@dataclass(frozen=True, slots=True)
class ChannelKeys:
    """CURVE keys of one gateway's channel, new at each start. Its workers share a pair."""

    gateway: str  # its public key (Z85)
    worker: KeyPair
    secret: str | None = field(default=None, repr=False)  # the gateway's own

    @classmethod
    def new(cls) -> Self:
        own = KeyPair.new()
        return cls(own.public, KeyPair.new(), own.secret)


class Channel:
    """The thread that owns one socket: sends queued notes and delivers received ones.

    One end listens for named others, which connect once. A lost connection loses its notes, is not replaced, and
    calls `died`. Notes wait until the receiver has taken them in.
    """

    def __init__(
        self,
        address: str,
        take: Callable[[int, Note], None],
        *,
        name: int | None = None,
        keys: ChannelKeys | None = None,
        died: Died | None = None,
        tick: Callable[[], None] = lambda: None,
        period: float | None = None,
    ) -> None:
        """`take` gets the sender's number (0: the listener) and the note, on the thread.

        `name` is this process's number, None for the listener. `keys` encrypt, and admit only holders of the
        workers' pair. `tick` is called every `period` seconds. Raises `ConfigurationError` for an unusable address.
        """
        self.turns = Turns("channel", died)
        self._take = take
        self._tick = tick
        self._period = period
        self._next = 0.0  # time of the next tick
        self._listens = name is None
        self._died = died
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER if self._listens else zmq.DEALER)
        self._socket.set_hwm(0)  # the outbox has limits
        self._socket.tcp_keepalive = 1
        self._outbox = Outbox(MOST_BYTES // _LEAST, MOST_BYTES, self.turns.signal)
        self._under_way: dict[int, deque[OutgoingMessage]] = {}  # in flight per process, without frames
        self._shares: Counter[tuple[int, str | int]] = Counter()  # waiting bytes by process and device
        self._lock = threading.Lock()  # of these
        self._taken = [0, 0]  # notes and bytes not yet confirmed
        self.sockets: list[tuple[Any, int]] = [(self._socket, zmq.POLLIN)]
        self.receiving = [self._receive]
        self.sending = [self._send, self._tick_when_due]
        self._doorman: ZapAuthenticator | None = None
        self._monitor: zmq.Socket[Any] | None = None
        if name is None:
            if keys is not None:
                self._doorman = self._guarded(keys)
                self.receiving.append(self._doorman.answer)
            self._bind(address)
        else:
            if keys is not None:
                self._socket.curve_serverkey = keys.gateway.encode()
                self._socket.curve_publickey = keys.worker.public.encode()
                self._socket.curve_secretkey = keys.worker.secret.encode()
            self._socket.setsockopt(zmq.IDENTITY, _routing(name))
            self._socket.reconnect_ivl = NEVER
            self._monitor = self._socket.get_monitor_socket(_LOST)
            self.sockets.append((self._monitor, zmq.POLLIN))
            self.sending.append(self._listen)
            self._socket.connect(address)
            self._outbox.open(0)
        self.address = self._socket.get_string(zmq.LAST_ENDPOINT) if self._listens else address
        self.turns.add(self)

    def start(self) -> None:
        self.turns.start()

    def close(self) -> None:
        """Sends waiting notes for a moment, then ends the thread."""
        self.turns.close()

    def ask(self, answer: Callable[[], None]) -> None:
        """Has the thread call `answer`, as a sign of life. From any thread."""
        self.turns.ask(answer)

    def open(self, number: int) -> None:
        """Accepts notes for a process."""
        self._under_way[number] = deque()
        self._outbox.open(number)

    def shut(self, number: int) -> None:
        self._outbox.shut(number)
        for outgoing in self._under_way.pop(number, ()):
            self._mark_taken(outgoing)

    def full(self, number: int, peer: Peer) -> bool:
        """Whether a process's queue, in total or for this device, takes only essential notes.

        From any thread.
        """
        return 2 * self._outbox.pending(number) > MOST_BYTES or self._shares[number, tenant_of(peer)] > MOST_OF_ONE

    def send(self, note: Note, number: int = 0) -> bool:
        """Queues a note, from any thread. Returns False for a full queue."""
        data = pack_note(note)
        share = None if note.peer is None else (number, tenant_of(note.peer))
        outgoing = _Outgoing(number, note.kind.name, data, _size(data), share)
        self._count(share, outgoing.size)
        put = self._outbox.put(outgoing)
        if not put:
            self._count(share, -outgoing.size)
        return put

    def _count(self, share: tuple[int, str | int] | None, size: int) -> None:
        if share is not None:
            with self._lock:
                self._shares[share] += size
                if not self._shares[share]:
                    del self._shares[share]

    def _mark_taken(self, outgoing: OutgoingMessage) -> None:
        assert isinstance(outgoing, _Outgoing)
        self._outbox.mark_sent(outgoing)
        self._count(outgoing.share, -outgoing.size)

    def _guarded(self, keys: ChannelKeys) -> ZapAuthenticator:
        """Returns an authenticator that admits only workers."""
        assert keys.secret is not None
        doorman = ZapAuthenticator(self._context, lambda key: key == keys.worker.public, lambda key: False)
        doorman.protect(self._socket, keys.secret.encode())
        self.sockets.append((doorman.socket, zmq.POLLIN))
        return doorman

    def _bind(self, address: str) -> None:
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            self.turns.close()
            self._context.destroy(0)
            folder = "; set data to a folder of a file system that has sockets" if address.startswith("ipc:") else ""
            reason = zmq.strerror(error.errno or 0).lower()
            raise ConfigurationError(f"workers can't be listened for at {address} ({reason}){folder}") from None

    # --- the thread

    def deadline(self) -> float | None:
        return None if self._period is None else self._next

    def _tick_when_due(self) -> None:
        now = time.monotonic()
        if self._period is not None and now >= self._next:
            self._next = now + self._period
            self._tick()

    def _receive(self) -> None:
        for _ in range(_BATCH):
            try:
                *routing, data = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            number, note = int(routing[0]) if routing else 0, unpack_note(data)
            if note.kind is Kind.TAKEN:
                self._confirm(number, note.value)
            elif routing:
                self._take(number, note)
            else:
                self._take_in(note, _size(data))

    def _take_in(self, note: Note, size: int) -> None:
        self._taken = [self._taken[0] + 1, self._taken[1] + size]
        if self._taken[1] >= _TAKEN and self.send(Note(Kind.TAKEN, value=self._taken[0])):
            self._taken = [0, 0]
        self._take(0, note)

    def _confirm(self, number: int, count: int) -> None:
        under_way = self._under_way.get(number, deque())
        for _ in range(min(count, len(under_way))):
            self._mark_taken(under_way.popleft())

    def _send(self) -> None:
        for outgoing in self._outbox.take():
            routing = [_routing(outgoing.connection)] if self._listens else []
            self._socket.send_multipart([*routing, outgoing.frame], zmq.DONTWAIT)
            if (under_way := self._under_way.get(outgoing.connection)) is None:
                self._mark_taken(outgoing)
            else:
                under_way.append(replace(outgoing, frame=b""))

    def _listen(self) -> None:
        assert self._monitor is not None
        with contextlib.suppress(zmq.Again):
            read_event(self._monitor)
            if self._died is not None and not self.turns.closing.is_set():
                self._died("channel", ConnectionError("the connection to the gateway is lost"))
            self.turns.closing.set()

    def end(self) -> None:
        """Sends the rest for a moment, then closes everything."""
        with contextlib.suppress(zmq.ZMQError):
            self._send()
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close(0)
        self._socket.close(_ENDING)
        if self._doorman is not None:
            self._doorman.close()
        self._outbox.close()
        self._context.term()


def _size(data: bytes) -> int:
    return max(len(data), _LEAST)


def _routing(number: int) -> bytes:
    return str(number).encode()


# --- worker_link
# The devices behind the gateway, as a worker sees them.

_SIGN: Final = 20.0  # seconds between signs of life, at most


class WorkerLink:
    """Implements `LinkToDevices`, and calls a handler as the devices' link would.

    Devices have shares of this thread. Implements `LivenessMonitor` for the gateway.
    """

    def __init__(
        self,
        address: str,
        number: int,
        handler: Handler,
        *,
        keys: ChannelKeys | None = None,
        metrics: Callable[[], bytes] = bytes,
        silence: float = math.inf,
        died: Died | None = None,
    ) -> None:
        """`metrics` returns this worker's metrics, in Prometheus' text format.

        The gateway kills a worker after `silence` seconds without a sign of life.
        """
        self.watchdog = min(_SIGN, silence)
        self._handler = handler
        self._accounts = Accounts(DEFAULT_LIMITS.work_per_second, DEFAULT_LIMITS.work_burst)
        rate = DEFAULT_LIMITS.errors_per_second
        self._complaints = Accounts(rate, max(1.0, rate))
        self._metrics = metrics
        self._sent: dict[Peer, int] = {}  # bytes
        self._passed: dict[Peer, int] = {}  # of these, gone from all queues
        self._openings: dict[Peer, int] = {}  # the latest taken in
        self._lock = threading.Lock()  # of all three
        self._channel = Channel(address, self._taken, name=number, keys=keys, died=died)

    def start(self) -> None:
        self._channel.start()

    def close(self) -> None:
        self._channel.close()

    def ask(self, answer: Callable[[], None]) -> None:
        """Has the link's thread call `answer`, as a sign of life. From any thread."""
        self._channel.ask(answer)

    def ready(self, vocabulary: int) -> None:
        self._channel.send(Note(Kind.READY, value=vocabulary))

    def alive(self) -> None:
        self._channel.send(Note(Kind.ALIVE))

    def send(self, peer: Peer, message: Message) -> int:
        """Queues `message`, from any thread. Returns its wire bytes, 0 if dropped."""
        frame = encode(message, LARGEST_PAYLOAD)
        with self._lock:
            if peer not in self._sent:
                return 0
            if not self._channel.send(Note(Kind.MESSAGE, peer, self._openings[peer], frame)):
                return 0
            self._sent[peer] += len(frame)
        return wire_size(frame)

    def queued(self, peer: Peer) -> int:
        """Returns the bytes that wait here or at the gateway."""
        with self._lock:
            return self._sent.get(peer, 0) - self._passed.get(peer, 0)

    # --- on the channel's thread

    def _taken(self, number: int, note: Note) -> None:
        if note.kind is Kind.METRICS:
            self._channel.send(Note(Kind.METRICS, frame=self._metrics()))
        peer = note.peer
        if peer is None:
            return
        match note.kind:
            case Kind.MESSAGE:
                new = peer not in self._sent
                if new and not note.value:
                    return  # the device is gone
                if note.value:  # set with a device's first message, too
                    with self._lock:
                        self._sent.setdefault(peer, 0)
                        self._openings[peer] = note.value
                if new:
                    self._call(self._handler.on_connected, peer)
                self._call(self._hand_over, peer, note.frame, new)
            case Kind.PASSED if peer in self._sent:
                with self._lock:
                    self._passed[peer] = note.value
            case Kind.GONE if peer in self._sent:
                with self._lock:
                    del self._sent[peer]
                    self._passed.pop(peer, None)
                    self._openings.pop(peer, None)
                self._call(self._handler.on_gone, peer)
            case _:
                pass

    def _hand_over(self, peer: Peer, frame: bytes, new: bool) -> None:
        """Charges the work to its device, and refuses work of an overdrawn one.

        Always takes a device's first message, which introduces it, and ends of sessions.
        """
        begun, now = time.thread_time(), time.monotonic()
        account = self._accounts.of(tenant_of(peer), now)
        wait = account.wait(now)
        try:
            message = decode(frame, LARGEST_PAYLOAD)
            if wait and not new and not isinstance(message, Cancel | Close | Error):
                self._refuse(peer, message, wait, now)
            else:
                self._handler.on_message(peer, message, wire_size(frame))
        finally:
            account.charge(now, time.thread_time() - begun)

    def _refuse(self, peer: Peer, message: Message, wait: float, now: float) -> None:
        if isinstance(message, Open | Fetch):
            self._handler.on_message(peer, Cancel(message.session), 0)  # the reply frees it at the gateway
            self.send(peer, Busy(message.session, int(1e6 * wait)))
        elif self._complaints.of(tenant_of(peer), now).take(now):
            self.send(
                peer, Error(0, "quota", "This device asks for more work per second than this cloud allows; slow down.")
            )

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        """One device's message must not stop the others."""
        try:
            function(*arguments)
        except Exception as error:
            self._channel.turns.mishaps.note(getattr(function, "__name__", "handler"), error)
