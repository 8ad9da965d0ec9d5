"""TCP connections that ZeroMQ owns, reached by their descriptors: what the kernel tells of them, and their end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

# tcpi_bytes_received in Linux's `struct tcp_info`: 8 bytes, 24 32-bit and 3 64-bit fields precede it.
_BYTES_RECEIVED = struct.Struct("=Q")
_BYTES_RECEIVED_AT: Final = 8 + 24 * 4 + 3 * 8
_UNREAD = struct.Struct("i")
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER that makes close() send RST
_DROPPED: Final = 2**20  # bytes at a time

MEASURED: Final = hasattr(socket, "TCP_INFO")  # whether the kernel tells how much a connection received


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes that a connection received: by the kernel, and of these by the program."""

    arrived: int
    read: int


def remote_of(descriptor: int) -> Any:
    """The peer's address, by which a descriptor that is used again is told apart. Raises `OSError`."""
    with _borrowed(descriptor) as connection:
        return connection.getpeername()


def received(descriptor: int, remote: Any) -> Received | None:
    """Bytes that the connection to `remote` received; None if it is not there any more, or nobody knows."""
    if not MEASURED:
        return None
    with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
        if connection.getpeername() == remote:
            information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            [unread] = _UNREAD.unpack(fcntl.ioctl(connection, termios.FIONREAD, bytes(_UNREAD.size)))
            if len(information) >= _BYTES_RECEIVED_AT + _BYTES_RECEIVED.size:
                [arrived] = _BYTES_RECEIVED.unpack_from(information, _BYTES_RECEIVED_AT)
                return Received(arrived, arrived - unread)
    return None


def end(descriptor: int, remote: Any) -> None:
    """End the connection to `remote` in order, under ZeroMQ, which then closes it: what was sent arrives."""
    with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
        if connection.getpeername() == remote:
            connection.shutdown(socket.SHUT_RDWR)


def cut(descriptor: int, remote: Any) -> None:
    """End the connection to `remote` without the peer's consent, and drop what ZeroMQ has not read of it."""
    with contextlib.suppress(OSError), _borrowed(descriptor) as connection:
        if connection.getpeername() == remote:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.shutdown(socket.SHUT_RDWR)
            while connection.recv(_DROPPED, socket.MSG_TRUNC | socket.MSG_DONTWAIT):
                pass


@contextlib.contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """A second handle, closed again at once: while it is open the connection outlives ZeroMQ's closing it."""
    duplicate = os.dup(descriptor)
    try:
        connection = socket.socket(fileno=duplicate)
    except OSError:
        os.close(duplicate)
        raise
    with connection:
        yield connection
