"""The queue between the threads that send and the thread that owns the socket."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from common.transport.signal import Signal


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
