"""ZeroMQ sockets as the link wants them, and what it remembers of a connection."""

from __future__ import annotations

import itertools
import struct
from collections import deque
from typing import Any, Final

import zmq

from common.process.accounts import TokenBucket
from common.transport.address import is_four
from common.transport.interface import Peer
from common.transport.limits import Limits, Quota
from common.transport.outbox import OutgoingMessage
from common.transport.tcp import MEASURED
from common.transport.window import SendWindow

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


class Connection:
    """A peer as the link's thread knows it."""

    __slots__ = (
        "backlog",
        "complaints",
        "cut",
        "descriptor",
        "holder",
        "peer",
        "quota",
        "routing",
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
        self.holder = peer.key or ""  # who it counts for where there are too many


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
