"""Hands the outbox's messages to ZeroMQ: what it has no room for waits per connection, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import zmq

from common.transport.counters import LinkCounters
from common.transport.outbox import Outbox, OutgoingMessage
from common.transport.sockets import Connection
from proto.framing import encode, wire_size
from proto.messages import Message


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

    @property
    def waits(self) -> bool:
        """Whether something is to be offered again soon."""
        return bool(self._stuck)

    def forget(self, connection: Connection) -> None:
        """Drop what waits for a connection that is gone."""
        self._stuck.pop(connection.peer.connection, None)
        self._counters.dropped += len(connection.backlog)

    def reply(self, connection: Connection, message: Message) -> None:
        """Send at once and past the queue, or not at all."""
        frame = encode(message)
        outgoing = OutgoingMessage(connection.peer.connection, type(message).__name__, frame, wire_size(frame))
        if not self._offer(connection, outgoing):
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

    def _resume(self, connection: Connection) -> None:
        while connection.backlog and self._offer(connection, connection.backlog[0]):
            self._outbox.mark_sent(connection.backlog.popleft())
        if not connection.backlog:
            self._stuck.pop(connection.peer.connection, None)

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
