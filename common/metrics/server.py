"""A thread for scrapes, in a daemon without other HTTP.

The metrics library's server uses a thread per connection and waits for silent clients forever. Here uvicorn serves all
on one thread. Every connection is cut after `PATIENCE` seconds, and the oldest above `MOST_CONNECTIONS`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import uvicorn
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from common.metrics.exposition import CONTENT_TYPE
from common.process.threads import vital_thread
from common.transport.address import TransportError

log = logging.getLogger(__name__)

PATH: Final = "/metrics"
PATIENCE: Final = 10.0  # seconds for a whole connection, to the last byte taken by its client
MOST_CONNECTIONS: Final = 32  # a scrape takes milliseconds
LONGEST_HEAD: Final = 8192  # bytes of a request, which has no body
_ENDING: Final = 1.0  # seconds for the thread to end

BARE: Final[Mapping[str, Any]] = {
    "ws": "none",
    "lifespan": "off",
    "interface": "asgi3",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "proxy_headers": False,
}
"""Options of all HTTP servers of this program: no other protocols, headers or logs."""


class MetricsServer:
    """Serves `GET /metrics` at `HOST:PORT`, bound in the constructor; a context manager.

    Clients get 503 until `serve`. Raises `TransportError` for an unusable address.
    """

    def __init__(self, address: str) -> None:
        self._text: Callable[[], bytes] | None = None
        self._socket = _bound(address)
        host, port = self._socket.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        config = uvicorn.Config(
            self._answer,
            http=_Connection,
            log_level="error",
            backlog=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=LONGEST_HEAD,
            **BARE,
        )
        self._server = uvicorn.Server(config)
        self._thread = vital_thread(partial(self._server.run, [self._socket]), "metrics")

    def serve(self, text: Callable[[], bytes]) -> None:
        """Answers every scrape from now on with a call of `text`."""
        self._text = text
        log.info("metrics on http://%s%s", self.address, PATH)

    @property
    def connections(self) -> int:
        return len(self._server.server_state.connections)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(_ENDING)
        self._socket.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._response(scope["method"], scope["path"])
        response.headers["connection"] = "close"
        await response(scope, receive, send)

    def _response(self, method: str, path: str) -> Response:
        if path != PATH:
            return PlainTextResponse(f"Only {PATH} is served here.\n", 404)
        if method not in ("GET", "HEAD"):
            return PlainTextResponse("Ask with GET.\n", 405, {"allow": "GET, HEAD"})
        if self._text is None:
            return PlainTextResponse("The daemon is starting.\n", 503, {"retry-after": "1"})
        try:
            return Response(self._text(), headers={"content-type": CONTENT_TYPE})
        except Exception as error:  # a failing metric must not end the thread
            log.error("metrics can't be computed: %s", type(error).__name__)
            return PlainTextResponse("The daemon's log says why.\n", 500)


class _Connection(H11Protocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.began = self.loop.time()
        self._cut = self.loop.call_later(PATIENCE, transport.abort)
        if len(self.connections) > MOST_CONNECTIONS:
            oldest = min(
                (each for each in self.connections if isinstance(each, _Connection)), key=lambda each: each.began
            )
            self.connections.discard(oldest)  # the loop reports the loss later
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cut.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Aborts without waiting, as the server ends."""
        self.transport.abort()


def _bound(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, place = found[0]
        return socket.create_server(place[:2], family=family, backlog=MOST_CONNECTIONS)
    except (OSError, UnicodeError) as error:
        if isinstance(error, UnicodeError):
            why = "no such name"  # part of the name is empty or too long
        else:
            # Python's own text for a known number is longer. Negative numbers, for names, have only strerror.
            why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror)
        raise TransportError(
            f"The daemon can't listen on {address} for metrics ({why.lower()}); stop the program that uses it, or "
            "choose another --metrics."
        ) from None
