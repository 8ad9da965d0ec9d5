"""Traffic of the link: the bytes as a router on the way sees them, and the messages that they carry."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

from proto.framing import LARGEST_PAYLOAD, decode
from proto.messages import Message

_HOST = "127.0.0.1"
_GREETING = 64  # bytes, ZMTP 3 (ZeroMQ RFC 23)
_MORE, _LARGE, _COMMAND = 1, 2, 4  # flags of a frame


class WireTap:
    """Forwards connections to `port` and keeps every byte of both directions. A context manager."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._up: list[bytearray] = []  # from the device, one per connection
        self._down: list[bytearray] = []
        self._listener = socket.create_server((_HOST, 0))
        self._open: list[socket.socket] = [self._listener]
        self._cut_when: Callable[[], bool] | None = None
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> WireTap:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def cut(self, when: Callable[[], bool]) -> None:
        """Break the connection once: at the first bytes after which `when` is true."""
        self._cut_when = when

    @property
    def sent(self) -> bytes:
        """Everything that the device sent so far."""
        return b"".join(bytes(connection) for connection in self._up)

    @property
    def messages(self) -> list[Message]:
        """The same as messages. Raises `ProtocolError` for anything that is none."""
        return [message for message, _ in self.up]

    @property
    def up(self) -> list[tuple[Message, int]]:
        """The device's messages, with the bytes of each, ZeroMQ's framing included."""
        return _messages(self._up)

    @property
    def down(self) -> list[tuple[Message, int]]:
        """The same of the cloud."""
        return _messages(self._down)

    def _accept(self) -> None:
        while True:
            try:
                device, _ = self._listener.accept()
            except OSError:
                return
            try:
                cloud = socket.create_connection((_HOST, self._target))
            except OSError:
                device.close()
                continue
            self._open += [device, cloud]
            for records, source, sink in ((self._up, device, cloud), (self._down, cloud, device)):
                records.append(bytearray())
                threading.Thread(target=self._copy, args=(source, sink, records[-1]), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, record: bytearray) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(2**16):
                record += part
                if self._cut_when is not None and self._cut_when():
                    self._cut_when = None
                    break
                sink.sendall(part)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _messages(connections: list[bytearray]) -> list[tuple[Message, int]]:
    return [
        (decode(body, LARGEST_PAYLOAD), size) for connection in connections for body, size in _frames(bytes(connection))
    ]


def _frames(data: bytes) -> Iterator[tuple[bytes, int]]:
    """The messages of one direction of a connection, each of one frame, and the frames' sizes; an incomplete one is
    left out.
    """
    at = _GREETING
    while at < len(data):
        flags = data[at]
        header = 9 if flags & _LARGE else 2
        if at + header > len(data):
            return
        (size,) = struct.unpack_from(">Q", data, at + 1) if flags & _LARGE else (data[at + 1],)
        body = data[at + header : at + header + size]
        if len(body) < size:
            return
        at += header + size
        if flags & _COMMAND:  # handshake and heartbeats
            continue
        assert not flags & _MORE
        yield body, header + size
