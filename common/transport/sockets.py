"""ZeroMQ sockets as the link wants them, and what it remembers of a connection."""

from __future__ import annotations

import itertools
import struct
from collections import deque
from typing import Any, Final

import zmq

from common.transport.address import is_four
from common.transport.interface import Peer
from common.transport.limits import Limits, TokenBucket
from common.transport.outbox import OutgoingMessage

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


class Connection:
    """A peer as the link's thread knows it."""

    __slots__ = ("backlog", "complaints", "descriptor", "peer", "quota", "routing")

    def __init__(self, peer: Peer, routing: bytes, descriptor: int, quota: TokenBucket, complaints: TokenBucket):
        self.peer = peer
        self.routing = routing  # frame in front of what is sent to it; empty for a DEALER
        self.descriptor = descriptor
        self.quota = quota
        self.complaints = complaints
        self.backlog: deque[OutgoingMessage] = deque()  # what ZeroMQ has no room for


def prepare_socket(
    context: zmq.Context[Any], kind: int, address: str, limits: Limits
) -> tuple[zmq.Socket[Any], zmq.Socket[Any]]:
    """A socket with the limits set, to be bound or connected to `address`, and its monitor."""
    made = context.socket(kind)
    made.linger = 0
    made.ipv6 = not is_four(address)  # or it would show as an IPv6 address
    made.maxmsgsize = limits.frame_bytes
    made.sndhwm = made.rcvhwm = int(limits.high_water_mark)
    made.handshake_ivl = int(limits.connect_timeout * 1000)
    made.heartbeat_ivl = int(limits.heartbeat_interval * 1000)
    made.heartbeat_timeout = int(limits.heartbeat_timeout * 1000)
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


def read_frames(socket: zmq.Socket[Any], first: zmq.Frame, keep: bool, most: int) -> list[bytes]:
    """The frames of the message that starts with `first`, `first` itself if `keep`, and not above `most`.

    The rest is dropped. All of it is here: ZeroMQ delivers whole messages.
    """
    frames = [first.bytes] if keep else []
    more = first.more
    while more:
        frame = socket.recv(zmq.DONTWAIT, copy=False)
        more = frame.more
        if len(frames) < most:
            frames.append(frame.bytes)
    return frames
