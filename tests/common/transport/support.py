"""A handler that remembers, and peers that misbehave."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from common.transport.cloud_link import CloudLink
from common.transport.sending import Peer
from proto.errors import ProtocolError
from proto.messages import Draft, Error, Message

SECONDS = 30.0  # in which everything that a test waits for must have happened, on a busy machine, too

Waited = TypeVar("Waited")


class Answer(Protocol):
    def __call__(self, peer: Peer, message: Message, /) -> object: ...


class Recorder:
    """Remembers what a link told it; `answer` is called with every message."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.changed = threading.Condition()
        self.order: list[str] = []
        self.connected: list[Peer] = []
        self.gone: list[Peer] = []
        self.messages: list[tuple[Peer, Message]] = []
        self.sizes: list[int] = []
        self.invalid: list[tuple[Peer, ProtocolError]] = []
        self.answer = answer

    def on_connected(self, peer: Peer) -> None:
        with self.changed:
            self.order.append("connected")
            self.connected.append(peer)
            self.changed.notify_all()

    def on_gone(self, peer: Peer) -> None:
        with self.changed:
            self.order.append("gone")
            self.gone.append(peer)
            self.changed.notify_all()

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        with self.changed:
            self.order.append(type(message).__name__)
            self.messages.append((peer, message))
            self.sizes.append(size)
            self.changed.notify_all()
        if self.answer is not None:
            self.answer(peer, message)

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        with self.changed:
            self.invalid.append((peer, error))
            self.changed.notify_all()

    def received(self, kind: type[Message] | None = None) -> list[Message]:
        return [message for _, message in self.messages if kind is None or isinstance(message, kind)]

    def errors(self) -> list[Error]:
        return [message for message in self.received() if isinstance(message, Error)]

    def wait(self, until: Callable[[], Waited], seconds: float = SECONDS) -> Waited:
        """The first true value of `until`, looked at whenever something happened."""
        with self.changed:
            value = self.changed.wait_for(until, seconds)
            assert value, f"not within {seconds} s; saw {self.order[-20:]}"
            return value

    def wait_polling(self, until: Callable[[], Waited], seconds: float = SECONDS) -> Waited:
        """As `wait`, for what changes without a call of the handler."""
        deadline = time.monotonic() + seconds
        with self.changed:
            while not (value := until()):
                assert time.monotonic() < deadline, f"not within {seconds} s; saw {self.order[-20:]}"
                self.changed.wait(0.005)
            return value


class Echo(Recorder):
    """A cloud's handler that returns every draft."""

    def __init__(self) -> None:
        super().__init__(self.echo)
        self.link: CloudLink | None = None

    def echo(self, peer: Peer, message: Message) -> None:
        if self.link is not None and isinstance(message, Draft):
            self.link.send(peer, message)


def draft(position: int, payload: bytes = b"x" * 100) -> Draft:
    return Draft(session=1, epoch=1, position=position, digest=7, evidence=0.5, decode_time=9, payload=payload)


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


class RawPeer:
    """Speaks ZMTP 3.0 by hand (ZeroMQ RFC 23, NULL mechanism): sends what no ZeroMQ library would."""

    MORE, LARGE, COMMAND = 1, 2, 4

    def __init__(self, address: str) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port_of(address)), timeout=SECONDS)
        try:
            self.greet(self.connection, b"DEALER")
        except BaseException:
            self.connection.close()
            raise

    @staticmethod
    def greet(connection: socket.socket, kind: bytes) -> None:
        """Shake hands as a socket of the type `kind`."""
        connection.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        _read(connection, 64)
        ready = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        connection.sendall(bytes([RawPeer.COMMAND, len(ready)]) + ready)
        _, length = _read(connection, 2)
        _read(connection, length)  # all of it: closing with something unread would reset the connection

    def frame(self, body: bytes, more: bool = False) -> bytes:
        return struct.pack(">BQ", self.LARGE | (self.MORE if more else 0), len(body)) + body

    def send(self, body: bytes, more: bool = False) -> None:
        self.connection.sendall(self.frame(body, more))

    def closed_by_peer(self) -> bool:
        """Read until the peer closes the connection; what it sends is ignored."""
        with suppress(ConnectionError):
            while self.connection.recv(2**16):
                pass
        return True

    def close(self) -> None:
        self.connection.close()


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "the peer closed the connection during the handshake"
        data += part
    return data


RawPeers = Callable[[str], RawPeer]
