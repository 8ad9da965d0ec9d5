"""Sending on a link: the outbox, flow control, limits and counters."""

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
    """Returns the reply; `now` is the probe's arrival in microseconds of the monotonic clock."""
    return ProbeReply(probe.sequence, probe.sent, now)


# --- signal


class Signal:
    """Wakes the one thread that polls `fileno()`, from any thread.

    No wake-up is lost: work is queued before `give`, and looked for after `lower`. Either the giver sees the lowered
    signal, or the thread sees the work.
    """

    def __init__(self) -> None:
        self._given = False
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def fileno(self) -> int:
        return self._receiver.fileno()

    def give(self) -> None:
        """Makes `fileno()` readable unless the thread is awake."""
        if not self._given:
            self._given = True
            # A full buffer is a signal already; a closed one has no reader.
            with contextlib.suppress(OSError):
                self._sender.send(b"\0")

    def take(self, readable: bool) -> None:
        """Starts a turn, without wake-ups until `lower`. On the thread."""
        self._given = True
        if readable:
            with contextlib.suppress(BlockingIOError):
                self._receiver.recv(4096)

    def lower(self) -> None:
        """Allows wake-ups again, before the last look for work. On the thread."""
        self._given = False

    def close(self) -> None:
        self._receiver.close()
        self._sender.close()


# --- outbox


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    connection: int
    kind: str  # message type
    frame: bytes
    size: int  # on the wire, counted by the queue


class Outbox:
    """Queue bounded per connection, so that a slow peer blocks nobody else.

    A message counts until `mark_sent`, called once ZeroMQ has it. `put` gives the `signal`.
    """

    def __init__(self, messages: int, size: int, signal: Signal) -> None:
        self._signal = signal
        self._limits = (messages, size)
        self._messages: deque[OutgoingMessage] = deque()
        self._pending: dict[int, list[int]] = {}  # connection -> [messages, bytes]
        self._lock = threading.Lock()
        self.refused = 0

    def open(self, connection: int) -> None:
        with self._lock:
            self._pending[connection] = [0, 0]

    def shut(self, connection: int) -> None:
        """Accepts no more messages. Queued ones are still taken; the link drops them."""
        with self._lock:
            self._pending.pop(connection, None)

    def put(self, message: OutgoingMessage) -> bool:
        """Queues a message, from any thread. Returns False for a lost connection or a full queue."""
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
        """Returns the bytes queued, 0 for a lost connection."""
        with self._lock:
            return self._pending.get(connection, (0, 0))[1]

    def take(self) -> list[OutgoingMessage]:
        """Returns all messages, oldest first. Link thread only."""
        with self._lock:
            taken = list(self._messages)
            self._messages.clear()
        return taken

    def mark_sent(self, message: OutgoingMessage) -> None:
        """Stops counting a message that ZeroMQ has or that was dropped."""
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


@dataclass(slots=True)
class Flow:
    """Messages of one type in one direction, and their frames' bytes."""

    messages: int = 0
    bytes: int = 0


@dataclass(slots=True)
class LinkCounters:
    """Counts of a link, changed by its thread only. Others read a `snapshot`.

    `sent` and `received` have message type names as keys.
    """

    sent: dict[str, Flow] = field(default_factory=dict)
    received: dict[str, Flow] = field(default_factory=dict)
    malformed: int = 0  # refused by the codec
    over_quota: int = 0  # above a peer's rate or from a cut peer; not decoded
    dropped: int = 0  # not sent: peer gone or queue full
    strays: int = 0  # without a live, admitted connection
    faults: int = 0  # exceptions in the handler
    connects: int = 0
    reconnects: int = 0
    refused: int = 0  # failed handshakes
    disconnected: int = 0  # connections cut for traffic, or above the limit of peers or strangers
    mishaps: int = 0  # survived exceptions of the link's thread; each is a bug

    def snapshot(self, refused_sends: int, mishaps: int) -> LinkCounters:
        """Adds `refused_sends`, the messages that the queue refused, to `dropped`."""
        sent, received = _copied(self.sent), _copied(self.received)
        return replace(self, sent=sent, received=received, dropped=self.dropped + refused_sends, mishaps=mishaps)


def _copied(flows: dict[str, Flow]) -> dict[str, Flow]:
    return {kind: replace(flow) for kind, flow in flows.copy().items()}  # `copy` is atomic


def count_message(flows: dict[str, Flow], kind: str, size: int) -> None:
    flow = flows.get(kind)
    if flow is None:
        flow = flows[kind] = Flow()
    flow.messages += 1
    flow.bytes += size


# --- interface


@dataclass(frozen=True, slots=True)
class Peer:
    """One connection of a peer. A reconnect is another `Peer`.

    `connection` counts up within a link. `key` is the authenticated public key (Z85), None without CURVE. Bind
    sessions to it, so that nobody else can continue them.
    """

    connection: int
    key: str | None


def tenant_of(peer: Peer) -> str | int:
    """Returns the key, so that extra connections gain nothing, else the connection."""
    return peer.connection if peer.key is None else peer.key


class Handler(Protocol):
    """Receives a link's events in order, on the link's thread. Must be quick.

    Per peer: `on_connected`, any number of `on_message` and `on_invalid`, then `on_gone`. After `close()` there are
    no calls, not even `on_gone`.
    """

    def on_connected(self, peer: Peer) -> None:
        """Device: the handshake succeeded. Cloud: the first message follows."""
        ...

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        """Handles a valid message of `size` wire bytes. The link answers probes itself."""
        ...

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        """The codec refused a message. The link has answered, within a rate limit."""
        ...

    def on_gone(self, peer: Peer) -> None:
        """The connection is lost, its queue dropped."""
        ...


class LinkToDevices(Protocol):
    """A cloud's link as its handlers use it."""

    def send(self, peer: Peer, message: Message) -> int:
        """Queues a message, from any thread. Returns its wire bytes, 0 if dropped."""
        ...

    def queued(self, peer: Peer) -> int: ...


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """State of a device's link. `detail`: a sentence for the user, empty when connected."""

    state: Literal["connecting", "connected", "away", "refused", "closed"]
    detail: str


# --- limits
# Limits on the cost of one peer.

_RAW_TOKEN = 4  # bytes per token in codec `raw`
_RAW_HEADER = 64  # bytes, upper bound
_CURVE_OVERHEAD = 64  # bytes added to a frame: command name, nonce, tag


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds per peer, except `peers`, `strangers` and the times. In seconds and bytes."""

    payload_bytes: int = PAYLOAD_LIMIT  # both sides must allow it
    queue_messages: int = 8192  # a whole run-ahead of drafts
    queue_bytes: int = 2**23
    window_bytes: int = 2**23  # in flight to a peer; a peer with twice as many in flight to this side is cut
    high_water_mark: int = 256  # messages per peer inside ZeroMQ
    messages_per_second: float = 5000.0
    messages_burst: float = 10000.0
    bytes_per_second: float = 2.0**28  # sent; twice as many may arrive
    bytes_burst: float = 2.0**27
    refused_per_second: float = 100.0  # above the rates, and dropped; above this rate the peer is cut
    refused_burst: float = 2000.0
    errors_per_second: float = 5.0  # replies to malformed messages
    work_per_second: float = 0.5  # seconds of the cloud's link thread per device
    work_burst: float = 1.0
    peers: int = 1024
    strangers: int = 512  # connections without a message; above it the oldest is cut
    heartbeat_interval: float = 1.0
    heartbeat_timeout: float = 3.0  # without a byte, plus the handshake's duration
    connect_timeout: float = 5.0  # without a byte, first attempt; doubled after failures
    connect_timeout_last: float = 20.0  # longer would find a returning peer late, as TCP retries rarely
    handshake_timeout: float = 60.0  # in total
    backoff_first: float = 0.02
    backoff_last: float = 2.0
    pause_first: float = 1.0  # of a cut peer; doubled each time
    pause_last: float = 60.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) > 0:
                raise ValueError(f"Link limit {name} is {getattr(self, name)!r}; it must be above zero.")
        if self.payload_bytes > LARGEST_PAYLOAD:
            raise ValueError(f"Link limit payload_bytes must be at most {LARGEST_PAYLOAD}.")

    @property
    def frame_bytes(self) -> int:
        """Longest accepted frame; longer ones disconnect the peer."""
        return HEADER_LIMIT + self.payload_bytes + _CURVE_OVERHEAD


DEFAULT_LIMITS = Limits()


def largest_payload(vocabulary: int) -> int:
    """Returns the bytes of a whole distribution in codec `raw`, within bounds."""
    return max(PAYLOAD_LIMIT, min(_RAW_TOKEN * vocabulary + _RAW_HEADER, LARGEST_PAYLOAD))


class Quota:
    """A peer's allowed rates, and the forgiven excess."""

    __slots__ = ("_bytes", "_messages", "_refused")

    def __init__(self, limits: Limits, now: float) -> None:
        self._messages = TokenBucket(limits.messages_per_second, limits.messages_burst, now)
        # Doubled, as a stalled network may deliver at once.
        self._bytes = TokenBucket(2 * limits.bytes_per_second, 2 * limits.bytes_burst, now)
        self._refused = TokenBucket(limits.refused_per_second, limits.refused_burst, now)

    def take(self, now: float, size: int) -> bool:
        """Whether a message of `size` bytes is allowed; counts it."""
        return self._bytes.allows(now, size) and self._messages.take(now) and self._bytes.take(now, size)

    def forgives(self, now: float) -> bool:
        """Whether a refused message is forgiven. False: cut the peer."""
        return self._refused.take(now)

    def full(self, now: float) -> bool:
        """Whether a new quota would behave the same."""
        return all(bucket.full(now) for bucket in (self._messages, self._bytes, self._refused))


class Pauses:
    """Temporary bans by name, doubled by repetition until forgiven."""

    def __init__(self, first: float, last: float) -> None:
        self._first = first
        self._last = last
        self._pauses: dict[str, tuple[float, float]] = {}  # name -> start and length in seconds

    def begin(self, name: str, now: float) -> float:
        """Starts a pause and returns its seconds."""
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
# Flow control: a sender waits until most earlier bytes were taken in.
#
# ZeroMQ reads without limit, so TCP never holds back a sender, and a slow receiver's memory would fill. A receiver
# answers a probe after everything before it.

_PROBES: Final = 8  # per window
PATIENCE: Final = 1.0  # seconds until a probe is repeated; it may be lost


class SendWindow:
    """One connection's window. Times are monotonic seconds of the caller."""

    __slots__ = ("_confirmed", "_limit", "_pace", "_probed", "_probed_at", "_sent", "_sequence", "_waiting")

    def __init__(self, limits: Limits, now: float) -> None:
        self._limit = limits.window_bytes
        self._pace = TokenBucket(limits.bytes_per_second, limits.bytes_burst, now)
        self._sent = 0  # bytes
        self._confirmed = 0  # taken in by the peer
        self._probed = 0  # sent before the latest probe
        self._probed_at = now
        self._sequence = 0
        self._waiting: deque[tuple[int, int]] = deque(maxlen=2 * _PROBES)  # probes and the bytes before each

    def full(self, size: int) -> bool:
        """Whether `size` more bytes must wait. One message may always be in flight."""
        under_way = self._sent - self._confirmed
        return under_way > 0 and under_way + size > self._limit

    def allows(self, size: int, now: float) -> bool:
        return not self.full(size) and self._pace.allows(now, size)

    def note(self, size: int, now: float) -> None:
        self._pace.take(now, size)
        self._sent += size

    @property
    def confirmed(self) -> bool:
        """Whether the peer has taken in everything."""
        return self._confirmed == self._sent

    def probe(self, now: float) -> Probe | None:
        """Returns a probe to send now, or None."""
        under_way = self._sent - self._confirmed
        overdue = 2 * under_way > self._limit and now - self._probed_at >= PATIENCE
        if _PROBES * (self._sent - self._probed) < self._limit and not overdue:
            return None
        return self.last_probe(now)

    def last_probe(self, now: float) -> Probe:
        """Returns a probe to send after everything else."""
        self._sequence = (self._sequence + 1) % SEQUENCES
        self._probed, self._probed_at = self._sent, now
        self._waiting.append((SEQUENCES + self._sequence, self._sent))
        return Probe(SEQUENCES + self._sequence, int(1e6 * now))

    def replied(self, reply: ProbeReply) -> bool:
        """Takes a probe's reply. Returns False for one that measures the link."""
        if reply.sequence < SEQUENCES:
            return False
        if any(sequence == reply.sequence for sequence, _ in self._waiting):
            while self._waiting:
                sequence, self._confirmed = self._waiting.popleft()
                if sequence == reply.sequence:
                    break
        return True


# --- sockets
# ZeroMQ sockets with the link's options, and a connection's state.

# Milliseconds until ZeroMQ reconnects by itself: the link is faster. -1 (never) may block the context's end after a
# loss.
NEVER: Final = 3_600_000
HANDSHAKE_REFUSED: Final = {int(zmq.EVENT_HANDSHAKE_FAILED_AUTH), int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)}
HANDSHAKE_BROKEN: Final = int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL)
# No others: without descriptors, accepts fail 100,000 times per second.
_EVENTS: Final = (
    zmq.EVENT_ACCEPTED | zmq.EVENT_CONNECTED | zmq.EVENT_CLOSED | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
)  # fmt: skip
_NUMBERS: Final = itertools.count()  # of monitors; closed names stay taken for a while
_EVENT: Final = struct.Struct("=Hi")
_ENCRYPTED: Final = 33  # bytes added by CURVE: command name, nonce, tag, flags


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
        self.routing = routing  # first frame of messages to it; empty for a DEALER
        self.descriptor = descriptor
        self.watched = descriptor  # for the guard; -1 after the end, as numbers are reused
        self.quota = quota
        self.complaints = complaints
        self.window = window
        self.backlog: deque[OutgoingMessage] = deque()  # ZeroMQ has no room for these
        self.cut = False  # ignore the rest of its input
        self.tenant = peer.key or ""  # identity for shares when connections are too many


def prepare_socket(
    context: zmq.Context[Any], kind: int, address: str, limits: Limits
) -> tuple[zmq.Socket[Any], zmq.Socket[Any]]:
    """Returns a socket for `address`, not bound or connected, and its monitor."""
    made = context.socket(kind)
    made.linger = 0
    made.ipv6 = not is_four(address)  # otherwise IPv4 peers show IPv6 addresses
    made.maxmsgsize = limits.frame_bytes
    made.sndhwm = int(limits.high_water_mark)
    made.rcvhwm = 0  # see `inflow`
    made.handshake_ivl = int(limits.handshake_timeout * 1000)
    made.heartbeat_ivl = int(limits.heartbeat_interval * 1000)
    # ZeroMQ's would end a connection during a large message; the guard counts bytes.
    made.heartbeat_timeout = 0 if MEASURED else int(limits.heartbeat_timeout * 1000)
    events = f"inproc://events-{next(_NUMBERS)}"
    made.monitor(events, _EVENTS)
    monitor = context.socket(zmq.PAIR)
    monitor.linger = 0
    monitor.rcvhwm = 0  # a bound would block ZeroMQ's thread, and with it the close
    monitor.connect(events)
    return made, monitor


def read_event(monitor: zmq.Socket[Any]) -> tuple[int, int]:
    """Raises `zmq.Again` if there is no event and `ValueError` for malformed data."""
    event = monitor.recv_multipart(zmq.DONTWAIT)[0]
    if len(event) != _EVENT.size:
        raise ValueError(f"an event of {len(event)} bytes")
    number, value = _EVENT.unpack(event)
    return number, value


def metadata(frame: zmq.Frame, name: str) -> str | None:
    """Returns ZeroMQ's metadata of the frame's connection, None if absent."""
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return None


def read_frames(
    socket: zmq.Socket[Any], first: zmq.Frame, keep: bool, most: int, encrypted: bool
) -> tuple[list[bytes], int]:
    """Returns at most `most` frames of a message, and its bytes on the wire.

    `first` counts if `keep`. Drops further frames. Never blocks: ZeroMQ delivers whole messages.
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
    more = first.more
    while more:
        more = socket.recv(zmq.DONTWAIT, copy=False).more


def _wire_size(length: int, encrypted: bool) -> int:
    if encrypted:
        length += _ENCRYPTED
    return length + (2 if length < 256 else 9)


# --- delivery
# Hands messages to ZeroMQ. Without room they wait per connection, in order.

_RETRY: Final = 0.002  # seconds between offers of a message


class Delivery:
    """Sends on the link's thread. Calls `unreachable` for connections unknown to ZeroMQ."""

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
        self._stuck: dict[int, ConnectionState] = {}  # with a backlog
        self._full: set[int] = set()  # of these: full window, waiting for a reply

    @property
    def retry(self) -> float | None:
        """Seconds until the next attempt, None if nothing waits."""
        if not self._stuck:
            return None
        return _RETRY if len(self._stuck) > len(self._full) else PATIENCE

    def forget(self, connection: ConnectionState) -> None:
        self._stuck.pop(connection.peer.connection, None)
        self._full.discard(connection.peer.connection)
        self._counters.dropped += len(connection.backlog)

    def reply(self, connection: ConnectionState, message: Message) -> None:
        """Sends at once, bypassing the queue, or drops the message."""
        frame = encode(message)
        outgoing = OutgoingMessage(connection.peer.connection, type(message).__name__, frame, wire_size(frame))
        if not self._hand_over(connection, outgoing):
            self._counters.dropped += 1

    def send(self) -> None:
        """Sends backlogs, then the outbox. One failing connection does not stop others.

        Raises the last failure.
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
        """Sends while there is room, and probes unconfirmed connections."""
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
            self._outbox.mark_sent(connection.backlog.popleft())  # no effect if the connection is gone
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
        now, window = time.monotonic(), connection.window
        (self._full.add if window.full(outgoing.size) else self._full.discard)(outgoing.connection)
        room = window.allows(outgoing.size, now) and self._hand_over(connection, outgoing)
        if room:
            window.note(outgoing.size, now)
        if (probe := window.probe(now)) is not None:
            self.reply(connection, probe)
        return room

    def _hand_over(self, connection: ConnectionState, outgoing: OutgoingMessage) -> bool:
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
            if not connection.backlog:  # otherwise the backlog has it
                self._counters.dropped += 1
            self._unreachable(connection)
            return True
        count_message(self._counters.sent, outgoing.kind, outgoing.size)
        return True
