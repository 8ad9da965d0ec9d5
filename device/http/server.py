"""The thread in which the HTTP interface runs, its listening socket, and limits on clients' connections."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from common.metrics.server import BARE
from common.process.lifetime import Startup
from common.process.threads import Died, QuietLog, vital_thread
from device.access.tls import server_context
from device.http.app import Api
from device.http.errors import ApiError, too_many_connections
from device.http.options import HttpOptions
from device.interface import Engine

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


# --- listening
# The listening socket, and how many TLS handshakes may be under way on it, and how long.

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


# --- server
# The thread in which the HTTP interface runs.

GRACE = 0.5  # seconds for connections to finish after their answers were cancelled
REST = 0.2  # seconds for the thread to end then; something that it waits for may not


class HttpServer:
    """Serves an engine over HTTP from a thread. A context manager; `stop` may be called more than once.

    Until there is an engine, `serve`, clients are told how far the `startup` is. Raises OSError from the constructor
    when the address can't be bound, and `TlsError` where the TLS files can't be used.
    """

    def __init__(self, options: HttpOptions, startup: Startup | None = None, died: Died | None = None) -> None:
        # Its lines hold the path and query as the client wrote them; no logging configuration brings it back.
        logging.getLogger("uvicorn.access").disabled = True
        self.listener = Listener(options.host, options.port, handshakes=options.tls is not None)
        if options.admission is not None:
            # The address is ours: no daemon loses its key that serves there. Nobody comes yet with the one before.
            options.admission.open_locally()
        self.listener.open()
        self._options = options
        self._address: tuple[str, int] = self.listener.getsockname()[:2]
        self._api = Api(options, startup)
        # Called with keywords, like the class that it stands for.
        protocol: Any = partial(Connection, options, self.listener.settled, ConnectionLog())
        config = uvicorn.Config(
            self._api.application,
            http=protocol,
            log_level="warning",
            **BARE,
        )
        config.load()
        config.ssl = None if options.tls is None else server_context(options.tls)
        self._server = _Server(config)
        self._thread = vital_thread(self._serve, "http", died)

    @property
    def url(self) -> str:
        """The address that was bound, e.g. `http://127.0.0.1:8600`."""
        host, port = self._address
        scheme = "http" if self._options.tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._server.server_state.connections)

    def serve(self, engine: Engine) -> HttpServer:
        """Answer by `engine` from now on. Returns itself."""
        self._api.serve(engine)
        return self

    def ask(self, answer: Callable[[], None]) -> None:
        """Have the server's loop call `answer` soon, as a sign that it works; not before `start`. From any thread."""
        if self._server.loop is not None:
            self._server.loop.call_soon_threadsafe(answer)

    def start(self) -> None:
        """Listen; connections are taken when this returns."""
        self._thread.start()
        self._server.ready.wait()

    def stop(self) -> None:
        """Cancel all answers, close all connections and end the thread, within `GRACE` and `REST`."""
        loop = self._server.loop
        if loop is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(self._api.stop)
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join(GRACE)
            self._server.force_exit = True
            self._thread.join(REST)
        self.listener.close()

    def __enter__(self) -> HttpServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=Loop) as runner:
                runner.run(self._server.serve(sockets=[self.listener]))
        finally:
            self._server.ready.set()
            self._api.close()


class _Server(uvicorn.Server):
    """Tells when it serves, and in which loop; looks after slow clients."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.ready.set()

    async def on_tick(self, counter: int) -> bool:
        now = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, Connection):
                connection.check(now)
        return await super().on_tick(counter)
