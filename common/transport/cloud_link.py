"""The cloud's end of the link: a ROUTER for many devices."""

from __future__ import annotations

import errno
from typing import Any

import zmq

from common.transport.address import TransportError, numeric, require_safe
from common.transport.gate import Gate
from common.transport.interface import Handler, Peer
from common.transport.keys import CloudKeys, z85_key
from common.transport.limits import DEFAULT_LIMITS, Limits, TokenBucket
from common.transport.loop import SocketLoop
from common.transport.sockets import HANDSHAKE_BROKEN, HANDSHAKE_REFUSED, Connection, prepare_socket
from proto.messages import Message


class CloudLink(SocketLoop):
    """A cloud's socket for all its devices, listening when the constructor returns.

    A peer is known from its first message on. With keys, exactly the peers that `keys.allows` get in, and
    `Peer.key` is checked on every message. Raises `TransportError` if `bind` can't be listened on.
    """

    def __init__(
        self,
        bind: str,
        keys: CloudKeys | None,
        handler: Handler,
        limits: Limits = DEFAULT_LIMITS,
        *,
        insecure: bool = False,
    ) -> None:
        require_safe(bind, keys is not None, insecure)
        secret = None if keys is None else z85_key(keys.own.secret)
        super().__init__(handler, limits, "cloud-link", addressed=True)
        self._routes: dict[bytes, Connection] = {}
        self._live: dict[int, Connection | None] = {}  # by descriptor; None before the first message
        self._leaving: list[Connection] = []
        self._quotas: dict[str, TokenBucket] = {}  # by key, so that reconnecting doesn't refill one
        self._gate: Gate | None = None
        made, monitor = prepare_socket(self._context, zmq.ROUTER, numeric(bind), self.limits)
        self._adopt(made, monitor)
        made.router_mandatory = True
        if keys is not None and secret is not None:
            self._gate = Gate(self._context, keys.allows)
            self._gate.guard(made, secret)
            self._poller.register(self._gate.socket, zmq.POLLIN)
        try:
            made.bind(numeric(bind))
        except zmq.ZMQError as error:
            self.close()
            raise TransportError(_why(bind, error)) from None
        self.address = made.getsockopt_string(zmq.LAST_ENDPOINT)

    def send(self, peer: Peer, message: Message) -> int:
        """Hand `message` over for `peer`, from any thread.

        Its bytes on the wire, or 0 if it was dropped: the peer is gone, or too much is queued for it. More than 0
        promises nothing: what is on its way when the connection breaks is lost. Raises `ProtocolError` for a message
        out of bounds.
        """
        return self._post(peer.connection, message)

    def queued(self, peer: Peer) -> int:
        """Bytes that wait for `peer`, beside what ZeroMQ has taken over."""
        return self._outbox.pending(peer.connection)

    def _on_event(self, event: int, value: int, now: float) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._live[value] = None
            self._guard.watch(value, now)
        elif event == zmq.EVENT_DISCONNECTED:
            self._guard.forget(value)
            lost = self._live.pop(value, None)
            if lost is not None:
                self._leaving.append(lost)
        elif event in HANDSHAKE_REFUSED or event == HANDSHAKE_BROKEN:
            self._counters.refused += 1

    def _sender(self, first: zmq.Frame, now: float) -> Connection | None:
        routing = first.bytes
        descriptor = int(first.get("__fd"))
        key = None if self._gate is None else str(first.get("User-Id"))
        known = self._routes.get(routing)
        if known is not None and (known.descriptor, known.peer.key) == (descriptor, key):
            return known
        if descriptor not in self._live:
            self._watch(now)  # the connection may be younger than this turn
        if descriptor not in self._live:
            return None  # first words of a connection that is closed already: nobody to answer
        # A routing id has one connection at a time, and a connection one routing id: former owners are gone.
        for former in (known, self._live[descriptor]):
            if former is not None:
                self._on_unreachable(former)
        if len(self._connections) >= self.limits.peers:
            self._guard.disconnect(descriptor)
            self._counters.disconnected += 1
            return None
        connection = self._admit(key, routing, descriptor, self._quota(key, now), now)
        self._routes[routing] = self._live[descriptor] = connection
        return connection

    def _quota(self, key: str | None, now: float) -> TokenBucket:
        limits = self.limits
        if len(self._quotas) > limits.peers:
            self._quotas = {owner: bucket for owner, bucket in self._quotas.items() if not bucket.full(now)}
        fresh = TokenBucket(limits.messages_per_second, limits.messages_burst, now)
        return fresh if key is None else self._quotas.setdefault(key, fresh)

    def _on_turn(self, readable: dict[Any, int], now: float) -> None:
        if self._gate is not None and self._gate.socket in readable:
            self._gate.answer()
        if self._leaving:
            self._drain(now)
            for connection in self._leaving:
                self._on_unreachable(connection)
            self._leaving.clear()

    def _deadline(self) -> float | None:
        return None

    def _on_unreachable(self, connection: Connection) -> None:
        if self._routes.get(connection.routing) is connection:
            del self._routes[connection.routing]
        if self._live.get(connection.descriptor) is connection:
            self._live[connection.descriptor] = None
        self._dismiss(connection)

    def _tear_down(self) -> None:
        if self._gate is not None:
            self._gate.close()
        super()._tear_down()


def _why(bind: str, error: zmq.ZMQError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{bind} is in use by another program; stop it, or choose another port."
    if error.errno == errno.EACCES:
        return f"{bind} may not be listened on by this user; choose a port above 1023."
    return f"{bind} is no address of this machine that can be listened on; use one of its own or 127.0.0.1."
