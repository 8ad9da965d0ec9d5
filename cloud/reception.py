"""Receives devices while the cloud is starting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from cloud.settings import CloudSettings
from common.answer.failures import starting
from common.daemon.ticker import Ticker
from common.process.startup import Startup
from common.process.vital import Died
from common.transport.interface import Peer
from common.transport.keys import CloudKeys
from common.transport.link import CloudLink
from proto.errors import ProtocolError
from proto.messages import Hello, Message

PERIOD: Final = 1.0  # seconds between two messages to a device that waits


class Link(Protocol):
    """The transport as the reception uses it."""

    def send(self, peer: Peer, message: Message) -> int: ...


class Reception:
    """Handler of the link of a cloud that has nothing to answer with yet: tells whoever says hello what it is at, then
    and when that changes.
    """

    def __init__(self, startup: Startup) -> None:
        self.link: Link | None = None  # set before the link starts to deliver
        self._startup = startup
        self._waiting: dict[Peer, str] = {}  # what each was told last
        self._lock = threading.Lock()
        self._next = 0.0  # when they may be told again

    def on_connected(self, peer: Peer) -> None:
        pass

    def on_message(self, peer: Peer, message: Message, size: int) -> None:
        if isinstance(message, Hello):
            with self._lock:
                self._tell(peer, str(self._startup))

    def on_invalid(self, peer: Peer, error: ProtocolError) -> None:
        pass

    def on_gone(self, peer: Peer) -> None:
        with self._lock:
            self._waiting.pop(peer, None)

    def tick(self, now: float) -> bool:
        """Tell those who wait the news. Whether any do."""
        if now >= self._next:
            self._next, doing = now + PERIOD, str(self._startup)
            with self._lock:
                for peer, told in list(self._waiting.items()):
                    if told != doing:
                        self._tell(peer, doing)
        return bool(self._waiting)

    def _tell(self, peer: Peer, doing: str) -> None:
        self._waiting[peer] = doing
        if self.link is not None:
            self.link.send(peer, starting(doing))


@contextmanager
def receiving(settings: CloudSettings, keys: CloudKeys | None, startup: Startup, died: Died) -> Iterator[str]:
    """Listen where `settings` say, for the time of the block, and tell devices how far the `startup` is.

    The block gets the address, which nobody else can take meanwhile. Behind it the connections are closed, and devices
    come again. Raises `TransportError` if the address can't be listened on.
    """
    reception = Reception(startup)
    ticker = Ticker(reception.tick, died)
    link = CloudLink(settings.bind, keys, reception, insecure=settings.insecure, died=died)
    reception.link = link
    with link:
        ticker.start()
        try:
            yield link.address
        finally:
            ticker.close()
