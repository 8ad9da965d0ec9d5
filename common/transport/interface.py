"""Events that a link reports to the program, and the peer at its other end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from proto.errors import ProtocolError
from proto.messages import Message


@dataclass(frozen=True, slots=True)
class Peer:
    """One connection of a peer; a reconnect is another `Peer`.

    `connection` counts up within a link. `key` is the authenticated public key (Z85), None without CURVE;
    bind sessions to it, so that nobody else can continue them.
    """

    connection: int
    key: str | None


def owner(peer: Peer) -> str | int:
    """The device that a peer counts for: by its key, if any, so that more connections don't get it more."""
    return peer.connection if peer.key is None else peer.key


class Handler(Protocol):
    """Called on the link's thread, in the order of events. Must be quick: everything else waits meanwhile.

    For one peer: `on_connected`, then any number of `on_message` and `on_invalid`, then `on_gone`. None of
    them after `close()` returned, and no `on_gone` for peers that are connected then.
    """

    def on_connected(self, peer: Peer) -> None:
        """Device: the handshake succeeded. Cloud: the peer's first message is about to be handed over."""
        ...

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        """A valid message and its bytes on the wire. Probes are answered by the link and not seen here."""
        ...

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        """The peer sent something that the codec refuses; the link has told it, now and then."""
        ...

    def on_gone(self, peer: Peer) -> None:
        """The connection is lost. What was queued for it is dropped."""
        ...


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """State of a device's link; `detail` is a sentence for the user, empty when connected."""

    state: Literal["connecting", "connected", "away", "refused", "closed"]
    detail: str
