"""Frames between the gateway and its workers, over sockets of this machine that only their user can reach."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import msgpack
import zmq

from common.process.vital import Died
from common.transport.interface import Peer
from common.transport.outbox import Outbox, OutgoingMessage
from common.transport.turns import Turns

MOST_MESSAGES: Final = 2**16  # that wait for one process
MOST_BYTES: Final = 2**28
_BATCH: Final = 64  # messages that are taken before what waits is sent
_ENDING: Final = 200  # milliseconds for what is queued, in the end


class Kind(IntEnum):
    """Purposes of frames."""

    READY = 1  # a worker serves; `value`: tokens of its vocabulary
    ALIVE = 2  # its threads work
    MESSAGE = 3  # of or for the device `peer`: `frame`
    GONE = 4  # the device's connection is lost
    PASSED = 5  # `value` bytes in all, of those for `peer`, wait here no more


@dataclass(frozen=True, slots=True)
class Note:
    """A frame."""

    kind: Kind
    peer: Peer | None = None
    value: int = 0
    frame: bytes = b""


def packed(note: Note) -> bytes:
    """A note on its way."""
    connection, key = (0, None) if note.peer is None else (note.peer.connection, note.peer.key)
    packed: bytes = msgpack.packb((int(note.kind), connection, key, note.value, note.frame))
    return packed


def unpacked(data: bytes) -> Note:
    """Raises `ValueError` for what no process of ours can have sent."""
    try:
        kind, connection, key, value, frame = msgpack.unpackb(data)
    except (TypeError, msgpack.UnpackException):
        raise ValueError("a note must be an array of five values") from None
    return Note(Kind(kind), Peer(connection, key) if connection else None, value, frame)


class Channel:
    """The thread that owns one socket: sends what other threads hand in, and hands over what comes.

    One end listens, for as many others as come, by their names; the others connect, under the name that they are given.
    """

    def __init__(
        self,
        address: str,
        take: Callable[[int, Note], None],
        *,
        name: int | None = None,
        died: Died | None = None,
        tick: Callable[[], None] = lambda: None,
        period: float | None = None,
    ) -> None:
        """`take` is called on the thread with the number of the process that a note is from, 0 for the listener's;
        `name` is this process's number, None for the listener. `tick` is called every `period` seconds.
        """
        self._take = take
        self._tick = tick
        self._period = None if period is None else int(1e3 * period)
        self._listens = name is None
        self._context: zmq.Context[Any] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER if self._listens else zmq.DEALER)
        self._socket.set_hwm(0)  # the outbox has the bounds
        self._outbox = Outbox(MOST_MESSAGES, MOST_BYTES)
        if name is None:
            self._socket.bind(address)
        else:
            self._socket.setsockopt(zmq.IDENTITY, _routing(name))
            self._socket.connect(address)
            self._outbox.open(0)
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._outbox.fileno(), zmq.POLLIN)
        self._turns = Turns("channel", [self._wait, self._receive, self._send, self._tick], self._wake, self._end, died)

    def start(self) -> None:
        self._turns.start()

    def close(self) -> None:
        """Send what waits, if that takes no longer than a moment, and end the thread."""
        self._turns.close()

    def ask(self, answer: Callable[[], None]) -> None:
        """Have the thread call `answer` soon, as a sign that it works. From any thread."""
        self._turns.ask(answer)

    def open(self, number: int) -> None:
        """Let notes be sent to the process of this number."""
        self._outbox.open(number)

    def shut(self, number: int) -> None:
        """Send no more to it."""
        self._outbox.shut(number)

    def send(self, note: Note, number: int = 0) -> bool:
        """Hand a note over for a process, from any thread; False where it was dropped, as too much waits for it."""
        data = packed(note)
        return self._outbox.put(OutgoingMessage(number, note.kind.name, data, len(data)))

    # --- the thread

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            self._outbox.wake()

    def _wait(self) -> None:
        if self._outbox.fileno() in dict(self._poller.poll(self._period)):
            self._outbox.acknowledge()

    def _receive(self) -> None:
        for _ in range(_BATCH):
            try:
                *routing, data = self._socket.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return
            self._take(int(routing[0]) if routing else 0, unpacked(data))

    def _send(self) -> None:
        for outgoing in self._outbox.take():
            routing = [_routing(outgoing.connection)] if self._listens else []
            self._socket.send_multipart([*routing, outgoing.frame], zmq.DONTWAIT)
            self._outbox.mark_sent(outgoing)

    def _end(self) -> None:
        with contextlib.suppress(zmq.ZMQError):
            self._send()
        self._socket.close(_ENDING)
        self._outbox.close()
        self._context.term()


def _routing(number: int) -> bytes:
    return str(number).encode()
