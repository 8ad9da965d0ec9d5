"""Clients' connections: how many there may be, and how slow one may be."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from common.process.threads import QuietLog
from device.http.errors import ApiError, too_many_connections
from device.http.options import HttpOptions

# A client that has something to ask has begun to by then: it doesn't lose its place to one that comes later.
_SETTLING = 0.25  # seconds


class ConnectionLog(logging.LoggerAdapter[logging.Logger]):
    """The server's log of what is wrong with connections, which every client can cause: some lines of it.

    Without tracebacks: the text of an exception can hold what was being asked.
    """

    def __init__(self) -> None:
        super().__init__(logging.getLogger("uvicorn.error"))
        self.level = self.logger.level  # which the server looks at
        self._quiet = QuietLog(self.logger)

    def log(self, level: int, msg: object, *args: object, **_: Any) -> None:
        """Log a line, if there are not too many."""
        self._quiet.tell(level, str(msg).rstrip("\n."), *args)


class Connection(H11Protocol):
    """One client's connection. Ends by itself when the client neither asks nor reads; see `check`.

    When all places are taken, the connection that has been waiting longest for a request makes room for a new one, so
    that clients who connect and stay silent keep nobody out. Where all are being answered, the new one gets 503.
    """

    def __init__(
        self, options: HttpOptions, settled: Callable[[int], None], log: ConnectionLog, *arguments: Any, **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self.logger = log  # type: ignore[assignment]  # the methods of a logger that are used
        self._settled = settled  # told the descriptor of a connection that is made, after its handshake
        self._options = options
        self._refused = False
        self._waiting_since = self._moved = self.loop.time()
        self._unsent = 0  # bytes at the last check

    def check(self, now: float) -> None:
        """End the connection of a client that is too slow; called a few times per second, `now` is the loop's time."""
        if not self._busy and now - self._waiting_since > self._options.head_patience:
            self.transport.close()
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0 or unsent < self._unsent:
            self._moved = now
        self._unsent = unsent
        if now - self._moved > self._options.stall_limit:
            self.transport.abort()  # closing would wait for the client to read what is left

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._settled(transport.get_extra_info("socket").fileno())
        if len(self.connections) >= self._options.max_connections and not self._make_room():
            self._refused = True
            transport.write(_raw(too_many_connections(len(self.connections))))
            transport.close()
            return
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if not self._refused:
            super().data_received(data)

    def on_response_complete(self) -> None:
        """Begin to wait for the next request: an answer that was quick may have come and gone between two checks."""
        self._waiting_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._refused:
            super().connection_lost(exc)

    @property
    def _busy(self) -> bool:
        """Whether a request has arrived that is not answered. Its body and its answer have limits of their own."""
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> bool:
        idle = [other for other in self.connections if isinstance(other, Connection) and not other._busy]
        longest = min(idle, key=lambda other: other._waiting_since, default=None)
        if longest is None or self.loop.time() - longest._waiting_since < _SETTLING:
            return False
        self.connections.discard(longest)  # when it is told that it is lost is up to the loop
        longest.transport.abort()
        return True


def _raw(refusal: ApiError) -> bytes:
    body = json.dumps(refusal.body()).encode()
    head = f"HTTP/1.1 {refusal.status} Service Unavailable\r\ncontent-type: application/json\r\n"
    return head.encode() + f"content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body
