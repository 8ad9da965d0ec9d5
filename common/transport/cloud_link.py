"""The cloud's end of the link: a ROUTER for many devices."""

from __future__ import annotations

import errno
from typing import Any

import zmq

from common.transport.address import TransportError, numeric, require_safe
from common.transport.interface import Handler, Peer
from common.transport.keys import CloudKeys, z85_key
from common.transport.limits import DEFAULT_LIMITS, Limits, TokenBucket
from common.transport.loop import SocketLoop
from common.transport.sockets import HANDSHAKE_BROKEN, HANDSHAKE_REFUSED, Connection, metadata, prepare_socket
from common.vital import Died
from proto.messages import Message


class CloudLink(SocketLoop):
    """A cloud's socket for all its devices, listening when the constructor returns.

    A peer is known from its first message on. With keys, exactly the peers that `keys.allows` get in, and
    `Peer.key` is checked on every message. `died` is told if the link's thread ends by itself. Raises
    `TransportError` if `bind` can't be listened on.
    """

    def __init__(
        self,
        bind: str,
        keys: CloudKeys | None,
        handler: Handler,
        limits: Limits = DEFAULT_LIMITS,
        *,
        insecure: bool = False,
        died: Died | None = None,
    ) -> None:
        require_safe(bind, keys is not None, insecure)
        secret = None if keys is None else z85_key(keys.own.secret)
        allows = None if keys is None else keys.allows
        super().__init__(handler, limits, "cloud-link", addressed=True, allows=allows, died=died)
        self._encrypted = keys is not None
        self._routes: dict[bytes, Connection] = {}
        self._live: dict[int, Connection | None] = {}  # by descriptor; None before the first message
        self._strangers: dict[int, None] = {}  # descriptors without a message, oldest first
        self._leaving: list[Connection] = []
        self._quotas: dict[str, TokenBucket] = {}  # by key, so that reconnecting doesn't refill one
        made, monitor = prepare_socket(self._context, zmq.ROUTER, numeric(bind), self.limits)
        self._adopt(made, monitor)
        made.router_mandatory = True
        self._authenticator.protect(made, secret)
        try:
            made.bind(numeric(bind))
        except zmq.ZMQError as error:
            self.close()
            raise TransportError(_why(bind, error)) from None
        _name_connections(made)
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
            self._live[value] = self._strangers[value] = None
            self._guard.watch(value, now)
            if len(self._strangers) > self.limits.strangers:
                self._turn_away(next(iter(self._strangers)))
        elif event == zmq.EVENT_DISCONNECTED:
            self._guard.forget(value)
            self._strangers.pop(value, None)
            lost = self._live.pop(value, None)
            if lost is not None:
                self._leaving.append(lost)
        elif event in HANDSHAKE_REFUSED or event == HANDSHAKE_BROKEN:
            self._counters.refused += 1

    def _sender(self, first: zmq.Frame, now: float) -> Connection | None:
        routing = first.bytes
        descriptor = int(metadata(first, "__fd") or -1)
        key = metadata(first, "User-Id") if self._encrypted else None
        if self._encrypted and not key:
            return None
        known = self._routes.get(routing)
        if known is not None and (known.descriptor, known.peer.key) == (descriptor, key):
            return known
        if descriptor not in self._live:
            return None  # first words of a connection that is closed already: nobody to answer
        # A routing id is given once, but should that change: former owners are gone.
        for former in (known, self._live[descriptor]):
            if former is not None:
                self._on_unreachable(former)
        if len(self._connections) >= self.limits.peers:
            self._turn_away(descriptor)
            return None
        self._strangers.pop(descriptor, None)
        connection = self._admit(key, routing, descriptor, self._quota(key, now), now)
        self._routes[routing] = self._live[descriptor] = connection
        return connection

    def _turn_away(self, descriptor: int) -> None:
        self._strangers.pop(descriptor, None)
        self._guard.disconnect(descriptor)
        self._counters.disconnected += 1

    def _quota(self, key: str | None, now: float) -> TokenBucket:
        limits = self.limits
        if len(self._quotas) > limits.peers:
            self._quotas = {owner: bucket for owner, bucket in self._quotas.items() if not bucket.full(now)}
        fresh = TokenBucket(limits.messages_per_second, limits.messages_burst, now)
        return fresh if key is None else self._quotas.setdefault(key, fresh)

    def _on_turn(self) -> None:
        if self._leaving:
            self._drain()
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


def _name_connections(router: zmq.Socket[Any]) -> None:
    """Make `router`, bound already, give every connection a routing id of its own, whatever the peer asks for.

    A ROUTER takes the id that a peer brings. One that brings the id that libzmq would make up for a later
    connection (they are counted up) makes libzmq abort the process, and ZAP doesn't get to see what a peer brings.
    In raw mode a ROUTER makes up every id. Connections take over the options as they were at bind, so they go on
    to speak ZMTP; switched off again, the mode only stays in how ids are made, and in that a message sent has one
    frame. No connection is taken up between bind and here: ZeroMQ does that in calls that send, receive or poll.
    """
    router.setsockopt(zmq.ROUTER_RAW, 1)
    router.setsockopt(zmq.ROUTER_RAW, 0)


def _why(bind: str, error: zmq.ZMQError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{bind} is in use by another program; stop it, or choose another port."
    if error.errno == errno.EACCES:
        return f"{bind} may not be listened on by this user; choose a port above 1023."
    return f"{bind} is no address of this machine that can be listened on; use one of its own or 127.0.0.1."
