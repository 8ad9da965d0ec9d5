"""Receives devices while the cloud is starting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from cloud.settings import CloudSettings
from common.answer.failures import starting
from common.process.vital import Died
from common.transport.interface import Peer
from common.transport.keys import CloudKeys
from common.transport.link import CloudLink
from proto.errors import ProtocolError
from proto.messages import Hello, Message


class Link(Protocol):
    """The transport as the reception uses it."""

    def send(self, peer: Peer, message: Message) -> int: ...


class Reception:
    """Handler of the link of a cloud that has nothing to answer with yet: tells so whoever says hello."""

    def __init__(self) -> None:
        self.link: Link | None = None  # set before the link starts to deliver

    def on_connected(self, peer: Peer) -> None:
        pass

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        if isinstance(message, Hello) and self.link is not None:
            self.link.send(peer, starting())

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        pass

    def on_gone(self, peer: Peer) -> None:
        pass


@contextmanager
def receiving(settings: CloudSettings, keys: CloudKeys | None, died: Died) -> Iterator[str]:
    """Listen where `settings` say, for the time of the block, and tell devices that the cloud is starting.

    The block gets the address, which nobody else can take meanwhile. Behind it the connections are closed, and devices
    come again. Raises `TransportError` if the address can't be listened on.
    """
    reception = Reception()
    link = CloudLink(settings.bind, keys, reception, insecure=settings.insecure, died=died)
    reception.link = link
    with link:
        yield link.address
