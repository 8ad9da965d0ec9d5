"""The device's view of its cloud: the handshake, and whether answers can count on it now."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from common.methods.request import Privacy
from common.runtime.handshake import refusal
from common.runtime.peer_estimates import PeerEstimates
from common.runtime.side import SideRuntime
from common.transport.interface import LinkStatus, Peer
from device.interface import CloudStatus
from proto.errors import ProtocolError
from proto.messages import Error, Hello, Message, ProbeReply, Welcome

log = logging.getLogger(__name__)


class Link(Protocol):
    """The transport as the connection uses it."""

    def send(self, message: Message) -> int: ...

    def status(self) -> LinkStatus: ...


class CloudConnection:
    """Handler of the link. `deliver` gets the messages of sessions, `welcomed` is called after each handshake."""

    def __init__(
        self,
        address: str,
        side: SideRuntime,
        deliver: Callable[[Message, int], None],
        welcomed: Callable[[], None],
    ) -> None:
        self.address = address
        self.welcome: Welcome | None = None  # the cloud and its limits, while the handshake stands
        self._side = side
        self._deliver = deliver
        self._welcomed = welcomed
        self._link: Link | None = None
        self.peer: PeerEstimates = side.profiler.nobody  # of the latest connection
        self._refusal: str | None = None

    def attach(self, link: Link) -> None:
        """Use `link` from now on. To be called before the link starts to deliver."""
        self._link = link

    def send(self, message: Message) -> int:
        """Hand over to the link; returns the message's bytes on the wire, 0 when there is no connection."""
        return 0 if self._link is None else self._link.send(message)

    def on_connected(self, peer: Peer) -> None:
        self._refusal = None
        self.send(self._side.hello)

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        match message:
            case ProbeReply():
                self.peer.meter.replied(message)
            case Welcome() if (reason := refusal(self._side.hello, message.hello)) is not None:
                self.welcome, self._refusal = None, reason
                log.warning("the cloud at %s is refused: %s", self.address, reason)
            case Welcome():
                self._measure_anew(message.hello)
                self.welcome = message
                log.info("connected to the cloud at %s", self.address)
                self._welcomed()
            case Error(session=0):
                self._refusal = message.text
                log.warning("the cloud at %s refuses: %s", self.address, message.text)
            case _:
                self._deliver(message, size)

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        log.warning("the cloud sent a malformed message: %s", error)

    def on_gone(self, peer: Peer) -> None:
        if self.welcome is not None:
            log.warning("lost the cloud at %s", self.address)
        self.welcome = None

    def _measure_anew(self, hello: Hello) -> None:
        """Start new estimates, as another machine may have another clock, round trip, decode time and library."""
        self._side.profiler.forget(self.peer)
        self.peer = self._side.profiler.watch(hello, self.send)

    def status(self) -> CloudStatus:
        """State of the connection, for the user."""
        rtt = self.peer.meter.rtt
        rtt_ms = None if rtt is None else 1000 * rtt
        if self.welcome is not None:
            return CloudStatus("connected", self.address, "", rtt_ms, self.welcome.hello.model)
        if self._refusal is not None:
            return CloudStatus("refused", self.address, self._refusal, None, None)
        link = self._link.status() if self._link is not None else LinkStatus("connecting", "")
        if link.state in ("away", "refused"):
            return CloudStatus(link.state, self.address, link.detail, None, None)
        return CloudStatus("connecting", self.address, f"Connecting to {self.address}.", None, None)


def alone(privacy: Privacy) -> CloudStatus:
    """The status of a device that has no cloud, or keeps everything to itself."""
    reason = "privacy = 'offline' keeps everything here." if privacy == "offline" else "No cloud is configured."
    return CloudStatus("off", "", reason, None, None)
