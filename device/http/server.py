"""The HTTP interface's thread, its socket, and limits on connections."""

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

# Active clients have asked by then, and keep their connection.
_SETTLING = 0.25  # seconds


class ConnectionLog(logging.LoggerAdapter[logging.Logger]):
    """The server's log on connections, limited because every client can cause lines.

    Without tracebacks, which can quote a request.
    """

    def __init__(self) -> None:
        super().__init__(logging.getLogger("uvicorn.error"))
        self.level = self.logger.level  # for the server
        self._quiet = QuietLog(self.logger)

    def log(self, level: int, msg: object, *args: object, **_: Any) -> None:
        self._quiet.tell(level, str(msg).rstrip("\n."), *args)


class Connection(H11Protocol):
    """A client's connection. Ends when the client neither asks nor reads; see `check`.

    At the limit, a new connection replaces the longest idle one, so silent clients block nobody. If all are busy, it
    gets 503.
    """

    def __init__(
        self, options: HttpOptions, settled: Callable[[int], None], log: ConnectionLog, *arguments: Any, **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self.logger = log  # type: ignore[assignment]  # the methods of a logger that are used
        self._settled = settled  # gets a connection's descriptor after its handshake
        self._options = options
        self._refused = False
        self._waiting_since = self._moved = self.loop.time()
        self._unsent = 0  # at the last check

    def check(self, now: float) -> None:
        """Ends a slow client's connection. Called a few times per second with the loop's time."""
        if not self._busy and now - self._waiting_since > self._options.head_patience:
            self.transport.close()
        unsent = self.transport.get_write_buffer_size()
        if unsent == 0 or unsent < self._unsent:
            self._moved = now
        self._unsent = unsent
        if now - self._moved > self._options.stall_limit:
            self.transport.abort()  # closing would wait for the client

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
        """Restarts the wait for a request: quick answers fit between two checks."""
        self._waiting_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._refused:
            super().connection_lost(exc)

    @property
    def _busy(self) -> bool:
        """Whether a request is unanswered; body and answer have their own limits."""
        return self.cycle is not None and not self.cycle.response_complete

    def _make_room(self) -> bool:
        idle = [other for other in self.connections if isinstance(other, Connection) and not other._busy]
        longest = min(idle, key=lambda other: other._waiting_since, default=None)
        if longest is None or self.loop.time() - longest._waiting_since < _SETTLING:
            return False
        self.connections.discard(longest)  # the loop reports the loss later
        longest.transport.abort()
        return True


def _raw(refusal: ApiError) -> bytes:
    body = json.dumps(refusal.body()).encode()
    head = f"HTTP/1.1 {refusal.status} Service Unavailable\r\ncontent-type: application/json\r\n"
    return head.encode() + f"content-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body


# --- listening
# The listening socket, with limits on TLS handshakes.

BACKLOG: Final = 128
MOST_HANDSHAKES: Final = 64
HANDSHAKE_PATIENCE: Final = 10.0  # seconds


class Listener(socket.socket):
    """Bound to an address. Above the limit, a new handshake replaces the oldest.

    The server's own limits begin after the handshake: silent clients could take all descriptors. Raises OSError.
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
        """Raises OSError."""
        try:
            self.listen(BACKLOG)
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        if self._handshakes:
            self._under_way = [each for each in self._under_way if each.fileno() >= 0]
            if len(self._under_way) >= MOST_HANDSHAKES:
                self._drop(self._under_way.pop(0))
            self._under_way.append(connection)
        return connection, address

    def settled(self, descriptor: int) -> None:
        self._under_way = [each for each in self._under_way if each.fileno() not in (-1, descriptor)]

    @staticmethod
    def _drop(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)  # the event loop closes it


class Loop(asyncio.SelectorEventLoop):
    """Limits handshakes to `HANDSHAKE_PATIENCE`."""

    def close(self) -> None:
        """Closes refused connections, which only the loop knows."""
        if not self.is_closed():
            for transport in list(getattr(self, "_transports", {}).values()):
                transport.abort()
            self.run_until_complete(asyncio.sleep(0))
        super().close()

    async def create_server(self, *arguments: Any, **more: Any) -> asyncio.Server:
        """Shortens asyncio's minute of patience for a handshake."""
        if more.get("ssl") is not None:
            more.setdefault("ssl_handshake_timeout", HANDSHAKE_PATIENCE)
        return await super().create_server(*arguments, **more)


# --- server

GRACE = 0.5  # seconds for connections to finish
REST = 0.2  # seconds for the thread to end; it may be blocked


class HttpServer:
    """Serves an engine over HTTP from a thread. A context manager; `stop` is idempotent.

    Before `serve`, clients get the progress of `startup`. The constructor raises OSError for an unusable address,
    and `TlsError` for unusable files.
    """

    def __init__(self, options: HttpOptions, startup: Startup | None = None, died: Died | None = None) -> None:
        # Its lines contain clients' paths and queries; no logging configuration re-enables it.
        logging.getLogger("uvicorn.access").disabled = True
        self.listener = Listener(options.host, options.port, handshakes=options.tls is not None)
        if options.admission is not None:
            # The address is ours now, so no running daemon loses its key. No client has the former key yet.
            options.admission.open_locally()
        self.listener.open()
        self._options = options
        self._address: tuple[str, int] = self.listener.getsockname()[:2]
        self._api = Api(options, startup)
        # Called with keywords, like the class that it replaces.
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
        """The bound address, e.g. `http://127.0.0.1:8600`."""
        host, port = self._address
        scheme = "http" if self._options.tls is None else "https"
        return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    def serve(self, engine: Engine) -> HttpServer:
        """Answers with `engine` from now on. Returns itself."""
        self._api.serve(engine)
        return self

    def ask(self, answer: Callable[[], None]) -> None:
        """Has the loop call `answer`, as a sign of life, after `start`. From any thread."""
        if self._server.loop is not None:
            self._server.loop.call_soon_threadsafe(answer)

    def start(self) -> None:
        """Starts the thread; returns when it takes connections."""
        self._thread.start()
        self._server.ready.wait()

    def stop(self) -> None:
        """Cancels answers and ends the thread, within `GRACE` and `REST`."""
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
    """Reports its start and loop; checks slow clients."""

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
