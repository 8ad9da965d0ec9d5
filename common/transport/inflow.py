"""Cut connections that send a message without an end.

ZeroMQ bounds a frame (MAXMSGSIZE) and counts whole messages (high-water mark), but not the frames of one
message: it keeps them all in memory and shows none before the last, so the program never gets to refuse them.
The kernel knows better: TCP_INFO tells how many bytes a connection received. One that received more than a
message can have since its last whole message is shut down, which makes ZeroMQ free what it kept.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

# tcpi_bytes_received in Linux's `struct tcp_info`: 8 bytes, 24 32-bit and 3 64-bit fields precede it.
_BYTES_RECEIVED = struct.Struct("=Q")
_BYTES_RECEIVED_AT: Final = 8 + 24 * 4 + 3 * 8
# Heartbeats aren't messages: an otherwise silent connection may receive this many bytes per second forever.
_TRICKLE: Final = 1024
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER that makes close() send RST
_OVERHEAD: Final = 64  # bytes; more than ZMTP and CURVE add to a frame


@dataclass(slots=True)
class _Flow:
    remote: Any  # the peer's TCP address, by which a reused descriptor is told apart
    since: float  # when the baseline was set
    baseline: int = 0  # bytes received up to the last whole message
    received: int = 0  # at the last sweep
    delivered: int = 0  # in whole messages, since the last sweep


class InflowGuard:
    """Watches TCP connections by descriptor. Where the system has no TCP_INFO, it does nothing.

    `limit` is in bytes, `now` in seconds of a monotonic clock.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._flows: dict[int, _Flow] = {}

    def __len__(self) -> int:
        return len(self._flows)

    def watch(self, descriptor: int, now: float) -> None:
        """A connection was made."""
        with contextlib.suppress(OSError), _borrow(descriptor) as connection:
            self._flows[descriptor] = _Flow(connection.getpeername(), now)

    def forget(self, descriptor: int) -> None:
        """The connection is closed."""
        self._flows.pop(descriptor, None)

    def clear(self) -> None:
        self._flows.clear()

    def heard(self, descriptor: int, frames: Sequence[bytes]) -> None:
        """A whole message of the connection arrived."""
        flow = self._flows.get(descriptor)
        if flow is not None:
            flow.delivered += sum(map(len, frames)) + _OVERHEAD * len(frames)

    def sweep(self, now: float) -> list[int]:
        """Shut down the connections above the limit, and name them."""
        return [descriptor for descriptor, flow in self._flows.items() if self._exceeds(descriptor, flow, now)]

    def disconnect(self, descriptor: int) -> None:
        """Shut one connection down; ZeroMQ then reports it as disconnected."""
        flow = self._flows.get(descriptor)
        if flow is not None:
            with contextlib.suppress(OSError), _borrow(descriptor) as connection:
                if connection.getpeername() == flow.remote:
                    _abort(connection)

    def _exceeds(self, descriptor: int, flow: _Flow, now: float) -> bool:
        try:
            with _borrow(descriptor) as connection:
                if connection.getpeername() != flow.remote:
                    return False
                received = _bytes_received(connection)
                before, flow.received = flow.received, received
                if flow.delivered:
                    # Not all that was received since is thereby accounted for: a message without an end may
                    # have begun right after the last whole one.
                    flow.baseline, flow.since = min(received, before + flow.delivered), now
                    flow.delivered = 0
                    return False
                if received - flow.baseline <= self._limit + _TRICKLE * (now - flow.since):
                    return False
                _abort(connection)
                return True
        except OSError:
            return False


def _borrow(descriptor: int) -> socket.socket:
    """A second handle, closed again at once: while it is open the connection outlives ZeroMQ's closing it."""
    duplicate = os.dup(descriptor)
    try:
        return socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        raise


def _abort(connection: socket.socket) -> None:
    """End a connection under ZeroMQ, which then closes it. The reset needs no consent of the peer."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    connection.shutdown(socket.SHUT_RDWR)


def _bytes_received(connection: socket.socket) -> int:
    if not hasattr(socket, "TCP_INFO"):
        return 0
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    if len(information) < _BYTES_RECEIVED_AT + _BYTES_RECEIVED.size:
        return 0
    return int(_BYTES_RECEIVED.unpack_from(information, _BYTES_RECEIVED_AT)[0])
