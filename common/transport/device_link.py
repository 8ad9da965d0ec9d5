"""The device's end of the link: a DEALER that connects and reconnects."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from typing import Final

import zmq

from common.process.threads import Died
from common.transport.address import AddressOrder, Lookup, TransportError, require_safe, split_address
from common.transport.inflow import MEASURED
from common.transport.keys import DeviceKeys, z85_key
from common.transport.loop import LATER, SocketLoop
from common.transport.sending import (
    DEFAULT_LIMITS,
    HANDSHAKE_BROKEN,
    HANDSHAKE_REFUSED,
    NEVER,
    ConnectionState,
    Handler,
    Limits,
    LinkStatus,
    Pauses,
    Quota,
    prepare_socket,
)
from proto.messages import Message

_ENDED: Final = {int(zmq.EVENT_DISCONNECTED), int(zmq.EVENT_CLOSED)}


class DeviceLink(SocketLoop):
    """A device's connection to its cloud. It reconnects forever, with growing pauses.

    Every connection has its own socket, so it gets no messages of an older one. Each attempt tries one address of
    the name, which is looked up again after each connection. The key identifies the cloud. `died` is called if the
    link's thread dies. Raises `TransportError` for an unusable address or key.
    """

    def __init__(
        self,
        address: str,
        keys: DeviceKeys | None,
        handler: Handler,
        limits: Limits = DEFAULT_LIMITS,
        *,
        insecure: bool = False,
        renew: Callable[[], DeviceKeys | None] | None = None,
        died: Died | None = None,
    ) -> None:
        """`renew` reads the keys again after a failed handshake."""
        require_safe(address, keys is not None, insecure)
        if split_address(address)[1] == 0:
            raise TransportError(f"{address} has no port; add the port that the cloud listens on.")
        self._take(keys)
        self._renew = renew
        super().__init__(
            handler, limits, "device-link", addressed=False, encrypted=keys is not None, allows=None, died=died
        )
        self.address = address
        self._lookup = Lookup(address, self._turns.signal.give)
        self._looking = False  # waiting for the lookup
        self._places = AddressOrder()
        self._current: ConnectionState | None = None
        self._number = 0  # of the current connection, 0 without one
        self._descriptor: int | None = None  # of the connection or attempt, after TCP connected
        self._since = 0.0  # start of the connection or attempt
        self._shaking = 0.0  # time when TCP connected
        self._silence = limits.connect_timeout  # seconds of silence that end an attempt
        self._retry_at: float | None = 0.0  # None during an attempt and a connection
        self._pause = limits.backoff_first
        self._pauses = Pauses(limits.pause_first, limits.pause_last)
        self._useful = False  # an answer progressed since the last loss
        self._end: LinkStatus | None = None
        self._status = LinkStatus("connecting", f"Connecting to {address}.")
        self._random = random.Random()

    def _take(self, keys: DeviceKeys | None) -> None:
        self._curve = None if keys is None else tuple(map(z85_key, (keys.cloud, keys.own.public, keys.own.secret)))
        self._key = None if keys is None else keys.cloud
        self._local = None if keys is None else keys.local

    def send(self, message: Message) -> int:
        """Queues `message` for the current connection, from any thread.

        Returns its bytes on the wire, or 0 if dropped: no connection or full queue. A broken connection loses
        messages in flight. Raises `ProtocolError` for a message out of bounds.
        """
        return self._post(self._number, message)

    def progressed(self) -> None:
        """Notes progress, so that a lost connection is retried at once. From any thread."""
        self._useful = True

    def status(self) -> LinkStatus:
        """Returns the link's state, from any thread."""
        return LinkStatus("closed", "The link is closed.") if self._turns.closing.is_set() else self._status

    @property
    def arriving(self) -> bool:
        """Whether a message is arriving. From any thread. False without byte counts."""
        descriptor = self._descriptor
        return descriptor is not None and self._guard.arriving(descriptor)

    def _on_event(self, event: int, value: int, now: float) -> None:
        if event == zmq.EVENT_CONNECTED:
            self._descriptor, self._shaking = value, now
            self._guard.watch(value, self._silence, now)
        elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._welcome(now)
        elif self._end is None:
            self._end = self._ending(event, value)

    def _welcome(self, now: float) -> None:
        if self._last_connection:
            self._counters.reconnects += 1
        self._status = LinkStatus("connected", "")
        limits, took = self.limits, now - self._shaking
        # A handshake takes at least three round trips, so the next reply comes within its duration.
        self._silence = min(max(limits.connect_timeout, took), limits.connect_timeout_last)
        self._since = now
        self._places.worked()
        self._number = self._last_connection + 1
        descriptor = -1 if self._descriptor is None else self._descriptor
        self._guard.be_patient(descriptor, limits.heartbeat_timeout + took)
        self._current = self._admit(self._key, b"", descriptor, Quota(limits, now), now)

    def _ending(self, event: int, value: int) -> LinkStatus | None:
        if event not in _ENDED and event not in HANDSHAKE_REFUSED and event != HANDSHAKE_BROKEN:
            return None
        reason = None if self._descriptor is None else self._guard.reason(self._descriptor)
        if reason == "silent":
            return self._unheard()
        if reason is not None:
            sentence = f"The cloud at {self.address} sent more than this device accepts; the device tries again later."
            return LinkStatus("away", sentence)
        if event in _ENDED:
            return LinkStatus("away", f"The cloud at {self.address} can't be reached.")
        self._counters.refused += 1
        if (event, value) == (zmq.EVENT_HANDSHAKE_FAILED_AUTH, LATER):
            sentence = f"The cloud at {self.address} blocks this device for a while, because the device sent too much."
            return LinkStatus("away", sentence)
        self._read_keys_again()
        return LinkStatus("away" if event == HANDSHAKE_BROKEN else "refused", self._shut_out(event))

    def _unheard(self) -> LinkStatus:
        if self._current is not None:
            return LinkStatus("away", f"The cloud at {self.address} can't be reached.")
        if self._looking:
            return LinkStatus("away", f"The address of {self._host} is not known yet; check this machine's network.")
        self._silence = min(2 * self._silence, self.limits.connect_timeout_last)
        return LinkStatus("away", f"The cloud at {self.address} doesn't answer.")

    def _read_keys_again(self) -> None:
        if self._curve is None or self._renew is None:
            return
        with contextlib.suppress(TransportError):  # the old keys stay
            if (keys := self._renew()) is not None:
                self._take(keys)

    def _shut_out(self, event: int) -> str:
        if self._local is not None:
            return (
                f"The cloud at {self.address} broke off the handshake. If this continues, it does not have the keys "
                f"in {self._local}: start it as the same user, with the same local_keys and curve = 'auto', or "
                "exchange keys with `dragon keys`."
            )
        if event == HANDSHAKE_BROKEN:
            return (
                f"{self.address} broke off the handshake. If this continues, check that a dragon cloud listens there "
                "and that this device trusts its public key."
            )
        return (
            f"The cloud at {self.address} doesn't accept this device's key; run `dragon keys show --role device` "
            "here, and `dragon keys trust --role cloud NAME KEY` with that key there."
        )

    def _sender(self, first: zmq.Frame, now: float) -> ConnectionState | None:
        return self._current

    def _on_turn(self) -> None:
        now = time.monotonic()
        if self._end is not None:
            self._drain()
            self._lose(self._end, now)
        elif self._retry_at is not None and now >= self._retry_at:
            self._attempt(now)
        elif self._looking and (found := self._lookup.take()) is not None:
            self._go_on(found, now)
        elif (limit := self._attempt_ends) is not None and now >= limit:
            self._lose(self._unheard(), now)

    def _deadline(self) -> float | None:
        return self._attempt_ends if self._retry_at is None else self._retry_at

    @property
    def _attempt_ends(self) -> float | None:
        """Time when an attempt ends; None without one, or if the guard watches it."""
        if self._retry_at is not None or self._current is not None or (MEASURED and self._descriptor is not None):
            return None
        return self._since + self._silence

    def _attempt(self, now: float) -> None:
        self._retry_at = None
        self._since = now
        if (place := self._places.next()) is not None:
            self._connect(place, now)
            return
        self._looking = True
        self._lookup.begin()
        if (found := self._lookup.take()) is not None:
            self._go_on(found, now)

    def _go_on(self, found: Sequence[str], now: float) -> None:
        self._looking = False
        self._places.found(found)
        if (place := self._places.next()) is not None:
            self._since = now
            self._connect(place, now)
            return
        sentence = f"The name {self._host} is not known here; check how it is spelled, and this machine's network."
        self._lose(LinkStatus("away", sentence), now)

    @property
    def _host(self) -> str:
        return split_address(self.address)[0]

    def _connect(self, place: str, now: float) -> None:
        made, monitor = prepare_socket(self._context, zmq.DEALER, place, self.limits)
        made.reconnect_ivl = NEVER
        made.connect_timeout = int(self._silence * 1000)
        self._authenticator.protect(made)
        if self._curve is not None:
            made.curve_serverkey, made.curve_publickey, made.curve_secretkey = self._curve
        self._adopt(made, monitor)
        try:
            made.connect(place)
        except zmq.ZMQError:
            self._lose(LinkStatus("away", f"{self.address} is not an address that can be connected to."), now)

    def _lose(self, status: LinkStatus, now: float) -> None:
        lost = self._current
        if lost is not None and (self._useful or now - self._since > self.limits.backoff_last):
            self._pause = self.limits.backoff_first  # a good connection, not a flapping one
            self._useful = False
        self._status, self._end = status, None
        self._current, self._number, self._looking = None, 0, False
        self._discard()
        # Random, so that a restarted cloud's devices don't all return at once.
        self._retry_at = now + self._pause * self._random.uniform(0.5, 1.0)
        self._pause = min(2 * self._pause, self.limits.backoff_last)
        reason = None if self._descriptor is None else self._guard.forget(self._descriptor)
        self._descriptor = None
        if reason is not None and reason != "silent":
            self._counters.disconnected += 1
            self._retry_at = now + self._pauses.begin(self.address, now)
        if lost is not None:
            self._dismiss(lost)

    def _on_unreachable(self, connection: ConnectionState) -> None:
        self._end = LinkStatus("away", f"The cloud at {self.address} can't be reached.")
