"""The thread in which the HTTP interface runs."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

import uvicorn

from common.process.lifetime import Startup
from common.process.threads import Died, vital_thread
from device.access.tls import server_context
from device.http.app import Api
from device.http.connections import Connection, ConnectionLog
from device.http.listening import Listener, Loop
from device.http.options import HttpOptions
from device.interface import Engine

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
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
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
