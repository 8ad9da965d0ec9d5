"""The listening socket, and how many TLS handshakes may be under way on it, and how long."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Any, Final

BACKLOG: Final = 128
MOST_HANDSHAKES: Final = 64
HANDSHAKE_PATIENCE: Final = 10.0  # seconds


class Listener(socket.socket):
    """Bound to an address. Where `handshakes` are made, the one under way longest makes room for a new one.

    A connection is none to the HTTP server before its handshake is done, so that its limits don't hold yet: clients
    that connect and stay silent would take descriptors that the engine needs. Raises OSError.
    """

    def __init__(self, host: str, port: int, handshakes: bool = False) -> None:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        super().__init__(family, kind, protocol)
        self._handshakes = handshakes
        self._under_way: list[socket.socket] = []
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address)
        except OSError:
            self.close()
            raise

    def open(self) -> None:
        """Take connections from now on. Raises OSError."""
        try:
            self.listen(BACKLOG)
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection."""
        connection, address = super().accept()
        if self._handshakes:
            self._under_way = [each for each in self._under_way if each.fileno() >= 0]
            if len(self._under_way) >= MOST_HANDSHAKES:
                self._drop(self._under_way.pop(0))
            self._under_way.append(connection)
        return connection, address

    def settled(self, descriptor: int) -> None:
        """Note that the handshake of this connection is done."""
        self._under_way = [each for each in self._under_way if each.fileno() not in (-1, descriptor)]

    @staticmethod
    def _drop(connection: socket.socket) -> None:
        with suppress(OSError):  # the client has gone
            connection.shutdown(socket.SHUT_RDWR)  # its owner, the event loop, closes it then


class Loop(asyncio.SelectorEventLoop):
    """The event loop of the HTTP interface: a handshake is given up after `HANDSHAKE_PATIENCE`."""

    def close(self) -> None:
        """As asyncio's, with the connections that are left: those that were refused are known to nobody else."""
        if not self.is_closed():
            for transport in list(getattr(self, "_transports", {}).values()):
                transport.abort()
            self.run_until_complete(asyncio.sleep(0))
        super().close()

    async def create_server(self, *arguments: Any, **more: Any) -> asyncio.Server:
        """As asyncio's, whose patience is a minute."""
        if more.get("ssl") is not None:
            more.setdefault("ssl_handshake_timeout", HANDSHAKE_PATIENCE)
        return await super().create_server(*arguments, **more)
