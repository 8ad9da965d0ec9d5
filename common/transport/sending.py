"""Sending: the queue in front of the socket's thread, delivery within a window, limits and counters."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

import zmq

from common.process.threads import TokenBucket
from common.transport.address import is_four
from common.transport.inflow import MEASURED
from proto.errors import ProtocolError
from proto.framing import HEADER_LIMIT, LARGEST_PAYLOAD, PAYLOAD_LIMIT, encode, wire_size
from proto.messages import SEQUENCES, Message, Probe, ProbeReply


def reply_to_probe(probe: Probe, now: int) -> ProbeReply:
    """The reply to a probe that arrived at `now` (microseconds of the replier's monotonic clock)."""
    return ProbeReply(probe.sequence, probe.sent, now)


# --- signal
# The signal that something is to be done by a thread which polls.


class Signal:
    """Wakes the one thread that polls `fileno()`, from any thread; while it works, nobody has to.

    No wake-up is lost: who gives the signal puts his work where it is looked for first, and the thread looks behind
    `lower`. Either the giver sees the lowered signal and wakes it, or it sees the work.
    """

    def __init__(self) -> None:
        self._given = False
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def fileno(self) -> int:
        return self._receiver.fileno()

    def give(self) -> None:
        """Make `fileno()` readable, unless the thread will look anyway."""
        if not self._given:
            self._given = True
            # A full buffer is a signal already; a closed one has no reader left.
            with contextlib.suppress(OSError):
                self._sender.send(b"\0")

    def take(self, readable: bool) -> None:
        """Begin a turn: until `lower` nobody wakes the thread. On the thread, which knows whether it is `readable`."""
        self._given = True
        if readable:
            with contextlib.suppress(BlockingIOError):
                self._receiver.recv(4096)

    def lower(self) -> None:
        """Before the thread looks for work, behind which it may sleep. On the thread."""
        self._given = False

    def close(self) -> None:
        self._receiver.close()
        self._sender.close()


# --- outbox


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """An encoded message on its way to one connection."""

    connection: int
    kind: str  # type name of the message
    frame: bytes
    size: int  # bytes on the wire, by which the queue is bounded


class Outbox:
    """Bounded per connection in messages and bytes, so that one slow peer can't take another's place.

    A message counts until `mark_sent`, which the link calls when ZeroMQ has taken it: what waits for a slow peer
    stays within the bound. The `signal` is given when messages may be waiting.
    """

    def __init__(self, messages: int, size: int, signal: Signal) -> None:
        self._signal = signal
        self._limits = (messages, size)
        self._messages: deque[OutgoingMessage] = deque()
        self._pending: dict[int, list[int]] = {}  # connection -> [messages, bytes]
        self._lock = threading.Lock()
        self.refused = 0

    def open(self, connection: int) -> None:
        """Accept messages for a connection."""
        with self._lock:
            self._pending[connection] = [0, 0]

    def shut(self, connection: int) -> None:
        """Accept none any more. Those in the queue are handed out still; the link drops them."""
        with self._lock:
            self._pending.pop(connection, None)

    def put(self, message: OutgoingMessage) -> bool:
        """Queue a message, from any thread. False: the connection is gone, or its share of the queue full."""
        most, size = self._limits
        with self._lock:
            pending = self._pending.get(message.connection)
            if pending is None or pending[0] >= most or pending[1] + message.size > size:
                self.refused += 1
                return False
            pending[0] += 1
            pending[1] += message.size
            self._messages.append(message)
        self._signal.give()
        return True

    def pending(self, connection: int) -> int:
        """Bytes that wait for `connection`; 0 as well when it is gone."""
        with self._lock:
            return self._pending.get(connection, (0, 0))[1]

    def take(self) -> list[OutgoingMessage]:
        """Everything queued, oldest first. Link thread only."""
        with self._lock:
            taken = list(self._messages)
            self._messages.clear()
        return taken

    def mark_sent(self, message: OutgoingMessage) -> None:
        """Take a message off the queue's account: ZeroMQ has it, or it was dropped."""
        with self._lock:
            pending = self._pending.get(message.connection)
            if pending is not None:
                pending[0] -= 1
                pending[1] -= message.size

    def close(self) -> None:
        with self._lock:
            self._pending.clear()
            self._messages.clear()


# --- counters
# Counts of the messages and bytes of a link.


@dataclass(slots=True)
class Flow:
    """Messages of one type in one direction; bytes are those of the frames."""

    messages: int = 0
    bytes: int = 0


@dataclass(slots=True)
class LinkCounters:
    """Counts of a link. Only its own thread changes them; others get a `snapshot`.

    `sent` and `received` are by message type name, e.g. `received["Draft"].bytes`.
    """

    sent: dict[str, Flow] = field(default_factory=dict)
    received: dict[str, Flow] = field(default_factory=dict)
    malformed: int = 0  # messages the codec refused
    over_quota: int = 0  # messages above a peer's rate, or of one that was cut for that; not decoded
    dropped: int = 0  # messages not sent: the peer was gone or its queue full
    strays: int = 0  # arrivals that belong to no live or admitted connection
    faults: int = 0  # exceptions of the handler
    connects: int = 0
    reconnects: int = 0
    refused: int = 0  # failed handshakes
    disconnected: int = 0  # connections cut for what they sent, or above the number of peers or strangers
    mishaps: int = 0  # exceptions that the link's thread outlived; each is a fault in this program

    def snapshot(self, refused_sends: int, mishaps: int) -> LinkCounters:
        """The counts now; `refused_sends` are the messages that the queue did not take."""
        sent, received = _copied(self.sent), _copied(self.received)
        return replace(self, sent=sent, received=received, dropped=self.dropped + refused_sends, mishaps=mishaps)


def _copied(flows: dict[str, Flow]) -> dict[str, Flow]:
    return {kind: replace(flow) for kind, flow in flows.copy().items()}  # `copy` is one step under the interpreter lock


def count_message(flows: dict[str, Flow], kind: str, size: int) -> None:
    """Count a message in one of a link's `flows`."""
    flow = flows.get(kind)
    if flow is None:
        flow = flows[kind] = Flow()
    flow.messages += 1
    flow.bytes += size


# --- interface
# Events that a link reports to the program, and the peer at its other end.


@dataclass(frozen=True, slots=True)
class Peer:
    """One connection of a peer; a reconnect is another `Peer`.

    `connection` counts up within a link. `key` is the authenticated public key (Z85), None without CURVE;
    bind sessions to it, so that nobody else can continue them.
    """

    connection: int
    key: str | None


def tenant_of(peer: Peer) -> str | int:
    """The device that a peer counts for: by its key, if any, so that more connections don't get it more."""
    return peer.connection if peer.key is None else peer.key


class Handler(Protocol):
    """Called on the link's thread, in the order of events. Must be quick: everything else waits meanwhile.

    For one peer: `on_connected`, then any number of `on_message` and `on_invalid`, then `on_gone`. None of
    them after `close()` returned, and no `on_gone` for peers that are connected then.
    """

    def on_connected(self, peer: Peer) -> None:
        """Device: the handshake succeeded. Cloud: the peer's first message is about to be handed over."""
        ...

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        """A valid message and its bytes on the wire. Probes are answered by the link and not seen here."""
        ...

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        """The peer sent something that the codec refuses; the link has told it, now and then."""
        ...

    def on_gone(self, peer: Peer) -> None:
        """The connection is lost. What was queued for it is dropped."""
        ...


class LinkToDevices(Protocol):
    """A cloud's link, as the handlers of its messages use it."""

    def send(self, peer: Peer, message: Message) -> int:
        """Queue a message, from any thread. Returns its bytes on the wire, 0 if it was dropped."""
        ...

    def queued(self, peer: Peer) -> int:
        """Bytes that wait for `peer`."""
        ...


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """State of a device's link; `detail` is a sentence for the user, empty when connected."""

    state: Literal["connecting", "connected", "away", "refused", "closed"]
    detail: str


# --- limits
# Limits on the cost of one peer: bounds of the link, and the token bucket that enforces a rate.

_RAW_TOKEN = 4  # bytes of a token in codec `raw`
_RAW_HEADER = 64  # bytes, generously
_CURVE_OVERHEAD = 64  # bytes; an encrypted frame carries a command name, a nonce and a tag


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a link; seconds and bytes. All are per peer, but `peers`, `strangers` and those that are times."""

    payload_bytes: int = PAYLOAD_LIMIT  # both sides must allow what one of them sends
    queue_messages: int = 8192  # a whole run-ahead of drafts fits in
    queue_bytes: int = 2**23
    window_bytes: int = 2**23  # under way to a peer; who has twice as many under way to this side is cut
    high_water_mark: int = 256  # messages on their way out inside ZeroMQ per peer; the rest waits in our queue
    messages_per_second: float = 5000.0
    messages_burst: float = 10000.0
    bytes_per_second: float = 2.0**28  # that are sent; twice as many may come
    bytes_burst: float = 2.0**27
    refused_per_second: float = 100.0  # messages above these rates, which are dropped; above this one the peer is cut
    refused_burst: float = 2000.0
    errors_per_second: float = 5.0  # answers to malformed messages
    work_per_second: float = 0.5  # seconds of a cloud's link thread, for messages of one device
    work_burst: float = 1.0
    peers: int = 1024
    strangers: int = 512  # connections that have not sent a message yet; beyond, the oldest goes
    heartbeat_interval: float = 1.0
    heartbeat_timeout: float = 3.0  # without a byte, beside the time that the handshake took
    connect_timeout: float = 5.0  # without a byte, at the first attempt; doubled after each in vain
    connect_timeout_last: float = 20.0  # with more, whoever is back would be found late: TCP asks ever more seldom
    handshake_timeout: float = 60.0  # in all
    backoff_first: float = 0.02
    backoff_last: float = 2.0
    pause_first: float = 1.0  # for a peer that was cut for what it sent; doubled each time
    pause_last: float = 60.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"Link limit {name} is {getattr(self, name)!r}; it must be above zero.")
        if self.payload_bytes > LARGEST_PAYLOAD:
            raise ValueError(f"Link limit payload_bytes must be at most {LARGEST_PAYLOAD}.")

    @property
    def frame_bytes(self) -> int:
        """Bytes of the longest frame that ZeroMQ accepts; a peer that sends a longer one is disconnected."""
        return HEADER_LIMIT + self.payload_bytes + _CURVE_OVERHEAD


DEFAULT_LIMITS = Limits()


def largest_payload(vocabulary: int) -> int:
    """Bytes of a payload that daemons with so many tokens take: a whole distribution in codec `raw`."""
    return max(PAYLOAD_LIMIT, min(_RAW_TOKEN * vocabulary + _RAW_HEADER, LARGEST_PAYLOAD))


class Quota:
    """Messages and bytes that a peer may send, and how much more is forgiven."""

    __slots__ = ("_bytes", "_messages", "_refused")

    def __init__(self, limits: Limits, now: float) -> None:
        self._messages = TokenBucket(limits.messages_per_second, limits.messages_burst, now)
        # What was sent at the rate allowed may arrive at once, where the network stood still.
        self._bytes = TokenBucket(2 * limits.bytes_per_second, 2 * limits.bytes_burst, now)
        self._refused = TokenBucket(limits.refused_per_second, limits.refused_burst, now)

    def take(self, now: float, size: int) -> bool:
        """Whether one more message, of `size` bytes, is allowed."""
        return self._bytes.allows(now, size) and self._messages.take(now) and self._bytes.take(now, size)

    def forgives(self, now: float) -> bool:
        """Whether a refused message is to be left at that; False if the peer goes too far."""
        return self._refused.take(now)

    def full(self, now: float) -> bool:
        """Whether a new one would behave the same."""
        return all(bucket.full(now) for bucket in (self._messages, self._bytes, self._refused))


class Pauses:
    """Exclusion of those who went too far, by name: each time twice as long, until all is forgiven."""

    def __init__(self, first: float, last: float) -> None:
        self._first = first
        self._last = last
        self._pauses: dict[str, tuple[float, float]] = {}  # name -> when it began, seconds

    def begin(self, name: str, now: float) -> float:
        """Begin a pause; its length in seconds."""
        self._pauses = {each: pause for each, pause in self._pauses.items() if not self._forgiven(pause, now)}
        before = self._pauses.get(name)
        seconds = self._first if before is None else min(2 * before[1], self._last)
        self._pauses[name] = now, seconds
        return seconds

    def lasts(self, name: str, now: float) -> bool:
        began, seconds = self._pauses.get(name, (0.0, 0.0))
        return now < began + seconds

    def _forgiven(self, pause: tuple[float, float], now: float) -> bool:
        began, seconds = pause
        return now > began + seconds + self._last


# --- window
# Flow control: what a connection is sent waits until the other side has taken in most of what came before.
#
# ZeroMQ's input is never stopped, so TCP doesn't hold back a sender whose receiver is slow; what is under way would
# fill the receiver's memory. A probe is answered by the receiver's link once everything before it was taken in.

_PROBES: Final = 8  # in a window
PATIENCE: Final = 1.0  # seconds until a probe without an answer is repeated: it may have been lost


class SendWindow:
    """One connection's. The caller brings a monotonic clock in seconds."""

    __slots__ = ("_confirmed", "_limit", "_pace", "_probed", "_probed_at", "_sent", "_sequence", "_waiting")

    def __init__(self, limits: Limits, now: float) -> None:
        self._limit = limits.window_bytes
        self._pace = TokenBucket(limits.bytes_per_second, limits.bytes_burst, now)
        self._sent = 0  # bytes
        self._confirmed = 0  # of these
        self._probed = 0  # of these, before the latest probe
        self._probed_at = now
        self._sequence = 0
        self._waiting: deque[tuple[int, int]] = deque(maxlen=2 * _PROBES)  # probes and the bytes sent before each

    def full(self, size: int) -> bool:
        """Whether `size` more bytes have to wait for a reply. One message may always be under way."""
        under_way = self._sent - self._confirmed
        return under_way > 0 and under_way + size > self._limit

    def allows(self, size: int, now: float) -> bool:
        """Whether `size` more bytes may be sent now."""
        return not self.full(size) and self._pace.allows(now, size)

    def note(self, size: int, now: float) -> None:
        """So many bytes were sent."""
        self._pace.take(now, size)
        self._sent += size

    @property
    def confirmed(self) -> bool:
        """Whether the other side has taken in all that was sent."""
        return self._confirmed == self._sent

    def probe(self, now: float) -> Probe | None:
        """A probe to be sent now, if it is time."""
        under_way = self._sent - self._confirmed
        overdue = 2 * under_way > self._limit and now - self._probed_at >= PATIENCE
        if _PROBES * (self._sent - self._probed) < self._limit and not overdue:
            return None
        return self.last_probe(now)

    def last_probe(self, now: float) -> Probe:
        """A probe to be sent behind all the rest."""
        self._sequence = (self._sequence + 1) % SEQUENCES
        self._probed, self._probed_at = self._sent, now
        self._waiting.append((SEQUENCES + self._sequence, self._sent))
        return Probe(SEQUENCES + self._sequence, int(1e6 * now))

    def replied(self, reply: ProbeReply) -> bool:
        """Take in the reply to a probe; whether it is one of these, and not for those who measure the link."""
        if reply.sequence < SEQUENCES:
            return False
        if any(sequence == reply.sequence for sequence, _ in self._waiting):
            while self._waiting:
                sequence, self._confirmed = self._waiting.popleft()
                if sequence == reply.sequence:
                    break
        return True


# --- sockets
# ZeroMQ sockets as the link wants them, and what it remembers of a connection.

# Milliseconds until ZeroMQ connects again by itself; a lost socket is replaced, or given up, long before. Not -1, which
# means never: then the end of a context whose connection was just lost may wait for ever.
NEVER: Final = 3_600_000
# Events of the socket monitor.
HANDSHAKE_REFUSED: Final = {int(zmq.EVENT_HANDSHAKE_FAILED_AUTH), int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)}
HANDSHAKE_BROKEN: Final = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
# Nothing else is told: with no descriptor left, failing to accept alone would be 100,000 events per second.
_EVENTS: Final = (
    zmq.EVENT_ACCEPTED | zmq.EVENT_CONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)  # fmt: skip
_NUMBERS: Final = itertools.count()  # of monitors: a name is free again some time after its socket is closed
_EVENT: Final = struct.Struct("=Hi")
_ENCRYPTED: Final = 33  # bytes that CURVE adds to a frame: the command's name, a nonce, a tag and the flags


class ConnectionState:
    """A peer as the link's thread knows it."""

    __slots__ = (
        "backlog",
        "complaints",
        "cut",
        "descriptor",
        "peer",
        "quota",
        "routing",
        "tenant",
        "watched",
        "window",
    )

    def __init__(
        self, peer: Peer, routing: bytes, descriptor: int, quota: Quota, complaints: TokenBucket, window: SendWindow
    ) -> None:
        self.peer = peer
        self.routing = routing  # frame in front of what is sent to it; empty for a DEALER
        self.descriptor = descriptor
        self.watched = descriptor  # by which the guard knows it; -1 when it has ended: another one may have that now
        self.quota = quota
        self.complaints = complaints
        self.window = window
        self.backlog: deque[OutgoingMessage] = deque()  # what ZeroMQ has no room for
        self.cut = False  # what it sent and is left is not read any more
        self.tenant = peer.key or ""  # who it counts for where there are too many


def prepare_socket(
    context: zmq.Context[Any], kind: int, address: str, limits: Limits
) -> tuple[zmq.Socket[Any], zmq.Socket[Any]]:
    """A socket with the limits set, to be bound or connected to `address`, and its monitor."""
    made = context.socket(kind)
    made.linger = 0
    made.ipv6 = not is_four(address)  # or it would show as an IPv6 address
    made.maxmsgsize = limits.frame_bytes
    made.sndhwm = int(limits.high_water_mark)
    made.rcvhwm = 0  # see `inflow`
    made.handshake_ivl = int(limits.handshake_timeout * 1000)
    made.heartbeat_ivl = int(limits.heartbeat_interval * 1000)
    # ZeroMQ would take a connection for dead on which a large message takes longer than this; the guard counts bytes.
    made.heartbeat_timeout = 0 if MEASURED else int(limits.heartbeat_timeout * 1000)
    events = f"inproc://events-{next(_NUMBERS)}"
    made.monitor(events, _EVENTS)
    monitor = context.socket(zmq.PAIR)
    monitor.linger = 0
    monitor.rcvhwm = 0  # with a bound, ZeroMQ's thread would wait for us, and closing the socket for that thread
    monitor.connect(events)
    return made, monitor


def read_event(monitor: zmq.Socket[Any]) -> tuple[int, int]:
    """Number and value of the monitor's next event. Raises `zmq.Again` without one, `ValueError` for another thing."""
    event = monitor.recv_multipart(zmq.DONTWAIT)[0]
    if len(event) != _EVENT.size:
        raise ValueError(f"an event of {len(event)} bytes")
    number, value = _EVENT.unpack(event)
    return number, value


def metadata(frame: zmq.Frame, name: str) -> str | None:
    """ZeroMQ's metadata `name` of the connection that `frame` came from; None where it has none."""
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return None


def read_frames(
    socket: zmq.Socket[Any], first: zmq.Frame, keep: bool, most: int, encrypted: bool
) -> tuple[list[bytes], int]:
    """The frames of the message that starts with `first`, `first` itself if `keep`, and not above `most`.

    The rest is dropped. All of it is here: ZeroMQ delivers whole messages. Also the bytes that it had on the wire,
    without `first` if that is not kept.
    """
    frames, more = [first.bytes] if keep else [], first.more
    size = _wire_size(len(first), encrypted) if keep else 0
    while more:
        frame = socket.recv(zmq.DONTWAIT, copy=False)
        more = frame.more
        size += _wire_size(len(frame), encrypted)
        if len(frames) < most:
            frames.append(frame.bytes)
    return frames, size


def drop_rest(socket: zmq.Socket[Any], first: zmq.Frame) -> None:
    """Drop the message that starts with `first`."""
    more = first.more
    while more:
        more = socket.recv(zmq.DONTWAIT, copy=False).more


def _wire_size(length: int, encrypted: bool) -> int:
    """Bytes of a frame on a ZMTP 3 connection."""
    if encrypted:
        length += _ENCRYPTED
    return length + (2 if length < 256 else 9)


# --- delivery
# Hands the outbox's messages to ZeroMQ: what it or the peer has no room for waits per connection, in order.

_RETRY: Final = 0.002  # seconds until a message that there was no room for is offered again


class Delivery:
    """Sends on the link's thread. `unreachable` is told of a connection that ZeroMQ doesn't know the way to."""

    def __init__(
        self,
        outbox: Outbox,
        counters: LinkCounters,
        connections: Mapping[int, ConnectionState],
        unreachable: Callable[[ConnectionState], None],
    ) -> None:
        self.socket: zmq.Socket[Any] | None = None
        self._outbox = outbox
        self._counters = counters
        self._connections = connections
        self._unreachable = unreachable
        self._stuck: dict[int, ConnectionState] = {}  # those with a backlog
        self._full: set[int] = set()  # of these, those whose window is full: nothing goes before a reply comes

    @property
    def retry(self) -> float | None:
        """Seconds until something is to be offered again; None if nothing waits."""
        if not self._stuck:
            return None
        return _RETRY if len(self._stuck) > len(self._full) else PATIENCE

    def forget(self, connection: ConnectionState) -> None:
        """Drop what waits for a connection that is gone."""
        self._stuck.pop(connection.peer.connection, None)
        self._full.discard(connection.peer.connection)
        self._counters.dropped += len(connection.backlog)

    def reply(self, connection: ConnectionState, message: Message) -> None:
        """Send at once and past the queue, or not at all."""
        frame = encode(message)
        outgoing = OutgoingMessage(connection.peer.connection, type(message).__name__, frame, wire_size(frame))
        if not self._hand_over(connection, outgoing):
            self._counters.dropped += 1

    def send(self) -> None:
        """Send what waits since an earlier turn, and what the outbox holds.

        A connection that can't be sent to costs the others nothing: the last failure is raised at the end.
        """
        failure: Exception | None = None
        for connection in list(self._stuck.values()):
            try:
                self._resume(connection)
            except Exception as error:
                failure = error
        for outgoing in self._outbox.take():
            try:
                self._begin(outgoing)
            except Exception as error:
                failure = error
        if failure is not None:
            raise failure

    def finish(self) -> None:
        """Send what there is room for, and ask every connection that was sent something to confirm it."""
        try:
            self.send()
        finally:
            now = time.monotonic()
            for connection in list(self._connections.values()):
                if not connection.window.confirmed:
                    self.reply(connection, connection.window.last_probe(now))

    def _resume(self, connection: ConnectionState) -> None:
        number = connection.peer.connection
        while number in self._stuck and connection.backlog and self._offer(connection, connection.backlog[0]):
            self._outbox.mark_sent(connection.backlog.popleft())  # or, where it was found to be gone, `forget` has all
        if not connection.backlog:
            self._stuck.pop(number, None)

    def _begin(self, outgoing: OutgoingMessage) -> None:
        receiver = self._connections.get(outgoing.connection)
        if receiver is None:
            self._counters.dropped += 1
        elif receiver.backlog or not self._offer(receiver, outgoing):
            receiver.backlog.append(outgoing)
            self._stuck[outgoing.connection] = receiver
        else:
            self._outbox.mark_sent(outgoing)

    def _offer(self, connection: ConnectionState, outgoing: OutgoingMessage) -> bool:
        """Send a message if its turn has come; False if there is no room for it now."""
        now, window = time.monotonic(), connection.window
        (self._full.add if window.full(outgoing.size) else self._full.discard)(outgoing.connection)
        room = window.allows(outgoing.size, now) and self._hand_over(connection, outgoing)
        if room:
            window.note(outgoing.size, now)
        if (probe := window.probe(now)) is not None:
            self.reply(connection, probe)
        return room

    def _hand_over(self, connection: ConnectionState, outgoing: OutgoingMessage) -> bool:
        """Give a message to ZeroMQ; False if it has no room for this peer now."""
        if self.socket is None:
            return False
        frames = [connection.routing, outgoing.frame] if connection.routing else [outgoing.frame]
        try:
            self.socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                self._unreachable(connection)
                raise
            if not connection.backlog:  # otherwise the message is its head, and counted with it
                self._counters.dropped += 1
            self._unreachable(connection)
            return True  # nothing to offer again
        count_message(self._counters.sent, outgoing.kind, outgoing.size)
        return True
