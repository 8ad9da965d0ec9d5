"""The cloud's end of the link: a ROUTER for many devices."""

from __future__ import annotations

import errno
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import zmq

from common.process.threads import Accounts, Died, QuietLog
from common.transport.address import TransportError, numeric, require_safe
from common.transport.keys import CloudKeys, fingerprint, z85_key
from common.transport.loop import SocketLoop, Turns
from common.transport.sending import (
    DEFAULT_LIMITS,
    HANDSHAKE_BROKEN,
    HANDSHAKE_REFUSED,
    ConnectionState,
    Handler,
    Limits,
    Pauses,
    Peer,
    Quota,
    metadata,
    prepare_socket,
    tenant_of,
)
from proto.messages import Message

# --- crowd
# Fair shares of a full link.


def choose_evicted(tenants: Sequence[str], newcomer: str) -> int | None:
    """Returns the index of the connection to cut, None to refuse the newcomer.

    `tenants` own the connections, oldest first. The largest tenant gives up its oldest connection, perhaps a dead
    one, but never falls below the newcomer's count, or both would take turns in cutting. So a tenant's only
    connection is safe from any number of keys or addresses.
    """
    counts = Counter(tenants)
    crowd, count = max(counts.items(), key=lambda each: each[1], default=("", 0))
    return tenants.index(crowd) if count > counts[newcomer] + 1 else None


# --- cloud_link

_LOG = logging.getLogger(__name__)
_LAST_WORDS: Final = 5.0  # seconds to read a lost connection's last messages


class CloudLink(SocketLoop):
    """A cloud's socket for all its devices. Listens when the constructor returns.

    A peer is known from its first message. With keys, only peers allowed by `keys.allows` connect, and every
    message's `Peer.key` is checked. `died` is called if a link's thread dies. A link `beside` other turns uses their
    thread. Raises `TransportError` if `bind` is unusable.
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
        beside: Turns | None = None,
    ) -> None:
        require_safe(bind, keys is not None, insecure)
        self._accounts = Accounts(limits.work_per_second, limits.work_burst)
        secret = None if keys is None else z85_key(keys.own.secret)
        allows = None if keys is None else keys.allows
        encrypted = keys is not None
        self._pauses = Pauses(limits.pause_first, limits.pause_last)  # by key
        super().__init__(
            handler, limits, "cloud-link", addressed=True, encrypted=encrypted, allows=allows, died=died, beside=beside
        )
        self._routes: dict[bytes, ConnectionState] = {}
        self._gone: set[bytes] = set()  # ids of ended connections that may have unread messages
        self._live: dict[int, ConnectionState | None] = {}  # by descriptor; None before the first message
        self._strangers: dict[int, float] = {}  # descriptors without a message, and their start; oldest first
        self._leaving: list[ConnectionState] = []  # ended connections that may have unread messages
        self._leave_at = 0.0  # latest time to report `_leaving`
        self._emptied = True  # whether all input was read since
        self._quotas: dict[str, Quota] = {}  # by key, so that reconnecting doesn't refill one
        self._lines = QuietLog(_LOG)
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
        """Queues `message` for `peer`, from any thread.

        Returns its bytes on the wire, or 0 if dropped: peer gone or queue full. A broken connection loses messages
        in flight. Raises `ProtocolError` for a message out of bounds.
        """
        return self._post(peer.connection, message)

    def forward(self, peer: Peer, kind: str, frame: bytes) -> int:
        """Like `send`, for an encoded message of type `kind`."""
        return self._put(peer.connection, kind, frame)

    def queued(self, peer: Peer) -> int:
        """Returns the bytes queued for `peer` outside ZeroMQ."""
        return self._outbox.pending(peer.connection)

    def _on_event(self, event: int, value: int, now: float) -> None:
        if event == zmq.EVENT_ACCEPTED:
            self._live[value], self._strangers[value] = None, now
            self._guard.watch(value, self.limits.handshake_timeout, now)
            if len(self._strangers) > self.limits.strangers:
                self._turn_away(next(iter(self._strangers)))
        elif event == zmq.EVENT_DISCONNECTED:
            reason = self._guard.forget(value)
            self._strangers.pop(value, None)
            lost = self._live.pop(value, None)
            if lost is not None:
                lost.watched = -1
                self._leaving.append(lost)
                self._leave_at, self._emptied = now + _LAST_WORDS, False
            if reason is not None and reason != "silent":
                self._counters.disconnected += 1
                self._clearing = True
            if reason == "flood":
                self._expel(lost, now)
        elif event in HANDSHAKE_REFUSED or event == HANDSHAKE_BROKEN:
            self._counters.refused += 1

    def _expel(self, connection: ConnectionState | None, now: float) -> None:
        """Bans the key of a flooding connection. Cuts its other connections."""
        key = None if connection is None else connection.peer.key
        if connection is not None:
            connection.cut = True
        if key is None:
            self._lines.tell(logging.WARNING, "closed a connection that sent more than this link accepts")
            return
        seconds = self._pauses.begin(key, now)
        text = "the device with the fingerprint %s sent more than this link accepts and is blocked for %d s"
        self._lines.tell(logging.WARNING, text, fingerprint(key), seconds)
        for other in self._live.values():
            if other is not None and other.peer.key == key:
                other.cut = True
                self._guard.disconnect(other.descriptor, "crowd")

    def _paused(self, key: str) -> bool:
        return self._pauses.lasts(key, time.monotonic())

    def _is_over(self, first: zmq.Frame) -> bool:
        return bool(self._gone) and first.bytes in self._gone

    def _on_emptied(self) -> None:
        super()._on_emptied()
        self._emptied = True
        if not self._leaving:
            self._gone.clear()

    def _sender(self, first: zmq.Frame, now: float) -> ConnectionState | None:
        routing = first.bytes
        descriptor = int(metadata(first, "__fd") or -1)
        key = metadata(first, "User-Id") if self._encrypted else None
        if self._encrypted and not key:
            return None
        known = self._routes.get(routing)
        if known is not None and (known.descriptor, known.peer.key) == (descriptor, key):
            return known
        if descriptor not in self._live:
            return None  # first message of a closed connection
        # Defensive: routing ids never change.
        for former in (known, self._live[descriptor]):
            if former is not None:
                self._on_unreachable(former)
        tenant = key or metadata(first, "Peer-Address") or ""
        if not self._has_room(tenant):
            self._lines.tell(logging.WARNING, "refused a device: this link accepts %d at a time", self.limits.peers)
            self._turn_away(descriptor)
            return None
        # Slow handshakes allow a longer silence: replies to this side's messages are in flight.
        shaking = now - self._strangers.pop(descriptor, now)
        self._guard.be_patient(descriptor, self.limits.heartbeat_timeout + shaking)
        connection = self._admit(key, routing, descriptor, self._quota(key, now), now)
        connection.tenant = tenant
        self._routes[routing] = self._live[descriptor] = connection
        return connection

    def _has_room(self, tenant: str) -> bool:
        """Whether `tenant` may connect, perhaps after cutting a larger tenant's connection."""
        if len(self._connections) < self.limits.peers:
            return True
        present = [connection for connection in self._connections.values() if not connection.cut]
        if len(present) < self.limits.peers:
            return True
        standing = [connection for connection in present if connection.watched != -1]  # the others end by themselves
        index = choose_evicted([connection.tenant for connection in standing], tenant)
        if index is not None:
            self._cut_of_crowd(standing[index])
        return index is not None

    def _cut_of_crowd(self, connection: ConnectionState) -> None:
        key = connection.peer.key
        whose = f"at {connection.tenant}" if key is None else f"with the fingerprint {fingerprint(key)}"
        text = "closed the oldest connection of the device %s, which has the most: this link accepts %d at a time"
        self._lines.tell(logging.WARNING, text, whose, self.limits.peers)
        connection.cut = True
        self._guard.disconnect(connection.watched, "crowd")

    def _turn_away(self, descriptor: int) -> None:
        self._strangers.pop(descriptor, None)
        self._live.pop(descriptor, None)  # so that its later messages do not admit it
        self._guard.disconnect(descriptor, "crowd")

    def _quota(self, key: str | None, now: float) -> Quota:
        if len(self._quotas) > self.limits.peers:
            self._quotas = {tenant: quota for tenant, quota in self._quotas.items() if not quota.full(now)}
        fresh = Quota(self.limits, now)
        return fresh if key is None else self._quotas.setdefault(key, fresh)

    def _hand_over(self, connection: ConnectionState, frames: Sequence[bytes], now: float) -> None:
        account = self._accounts.of(tenant_of(connection.peer), now)
        if account.wait(now):
            self._counters.over_quota += 1
            self._complain(
                connection, "quota", "This device asks for more work per second than this link allows; slow down.", now
            )
            return
        begun = time.thread_time()
        super()._hand_over(connection, frames, now)
        account.charge(now, time.thread_time() - begun)

    def _on_turn(self) -> None:
        # Their last messages are read in other turns.
        if self._leaving and (self._emptied or time.monotonic() >= self._leave_at):
            for connection in self._leaving:
                self._on_unreachable(connection)
            self._leaving.clear()

    def _deadline(self) -> float | None:
        return self._leave_at if self._leaving else None

    def _on_unreachable(self, connection: ConnectionState) -> None:
        if self._routes.get(connection.routing) is connection:
            del self._routes[connection.routing]
            self._gone.add(connection.routing)
        if self._live.get(connection.descriptor) is connection:
            self._live[connection.descriptor] = None
        self._dismiss(connection)


def _name_connections(router: zmq.Socket[Any]) -> None:
    """Makes the bound `router` choose the routing id of every connection.

    A ROUTER accepts a peer's own id. If that equals libzmq's next counted id, libzmq aborts, and ZAP can't see the
    id. In raw mode a ROUTER chooses every id.

    Connections copy the options at bind, so they still speak ZMTP. Switched off again, raw mode only affects ids,
    and limits sent messages to one frame. ZeroMQ accepts no connection before the next send, receive or poll.
    """
    router.setsockopt(zmq.ROUTER_RAW, 1)
    router.setsockopt(zmq.ROUTER_RAW, 0)


def _why(bind: str, error: zmq.ZMQError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"{bind} is in use by another program; stop it, or choose another port."
    if error.errno == errno.EACCES:
        return f"This user may not listen on {bind}; choose a port above 1023."
    return f"{bind} is not an address of this machine; use one of its own or 127.0.0.1."
