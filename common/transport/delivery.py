"""Hands the outbox's messages to ZeroMQ: what it or the peer has no room for waits per connection, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import zmq

from common.transport.counters import LinkCounters
from common.transport.outbox import Outbox, OutgoingMessage
from common.transport.sockets import Connection
from common.transport.window import PATIENCE
from proto.framing import encode, wire_size
from proto.messages import Message

_RETRY: Final = 0.002  # seconds until a message that there was no room for is offered again


class Delivery:
    """Sends on the link's thread. `unreachable` is told of a connection that ZeroMQ doesn't know the way to."""

    def __init__(
        self,
        outbox: Outbox,
        counters: LinkCounters,
        connections: Mapping[int, Connection],
        unreachable: Callable[[Connection], None],
    ) -> None:
        self.socket: zmq.Socket[Any] | None = None
        self._outbox = outbox
        self._counters = counters
        self._connections = connections
        self._unreachable = unreachable
        self._stuck: dict[int, Connection] = {}  # those with a backlog
        self._full: set[int] = set()  # of these, those whose window is full: nothing goes before a reply comes

    @property
    def retry(self) -> float | None:
        """Seconds until something is to be offered again; None if nothing waits."""
        if not self._stuck:
            return None
        return _RETRY if len(self._stuck) > len(self._full) else PATIENCE

    def forget(self, connection: Connection) -> None:
        """Drop what waits for a connection that is gone."""
        self._stuck.pop(connection.peer.connection, None)
        self._full.discard(connection.peer.connection)
        self._counters.dropped += len(connection.backlog)

    def reply(self, connection: Connection, message: Message) -> None:
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

    def _resume(self, connection: Connection) -> None:
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

    def _offer(self, connection: Connection, outgoing: OutgoingMessage) -> bool:
        """Send a message if its turn has come; False if there is no room for it now."""
        now, window = time.monotonic(), connection.window
        (self._full.add if window.full(outgoing.size) else self._full.discard)(outgoing.connection)
        room = window.allows(outgoing.size, now) and self._hand_over(connection, outgoing)
        if room:
            window.note(outgoing.size, now)
        if (probe := window.probe(now)) is not None:
            self.reply(connection, probe)
        return room

    def _hand_over(self, connection: Connection, outgoing: OutgoingMessage) -> bool:
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
        self._counters.sent(outgoing.kind, outgoing.size)
        return True
