"""A thread that answers scrapes, for a daemon that serves no HTTP otherwise.

The library's own server has a thread for each connection and waits for a silent one forever. Here one thread has all
of them: a connection is cut after `PATIENCE` seconds, whatever it does, and the oldest one where there are too many, so
that clients who send or read nothing keep nobody out.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from common.metrics.exposition import CONTENT_TYPE
from common.process.threads import vital_thread
from common.transport.address import TransportError

log = logging.getLogger(__name__)

PATH: Final = "/metrics"
PATIENCE: Final = 10.0  # seconds for a connection, from its beginning to the last byte that its client takes
MOST_CONNECTIONS: Final = 32  # at a time; a scrape takes milliseconds
LONGEST_HEAD: Final = 8192  # bytes of a request, which has no body
_ENDING: Final = 1.0  # seconds for the thread to end

_PLAIN: Final = "text/plain; charset=utf-8"


class MetricsServer:
    """Serves `GET /metrics` at `HOST:PORT`, which is taken from the constructor on. A context manager.

    Until there is something to `serve`, clients get 503. Raises `TransportError` for an address that can't be had.
    """

    def __init__(self, address: str) -> None:
        self._text: Callable[[], bytes] | None = None
        self._open: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._ready = threading.Event()
        self._socket = _bound(address)
        host, port = self._socket.getsockname()[:2]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._thread = vital_thread(self._run, "metrics")

    def serve(self, text: Callable[[], bytes]) -> None:
        """Answer with `text`, which is called for every scrape, from now on."""
        self._text = text
        log.info("metrics on http://%s%s", self.address, PATH)

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._open)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(_ENDING)
        self._socket.close()

    # --- the thread

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._talk, sock=self._socket, limit=LONGEST_HEAD)
        self._ready.set()
        await self._stop.wait()
        server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= MOST_CONNECTIONS:
            oldest = next(iter(self._open))
            del self._open[oldest]
            oldest.transport.abort()
        self._open[writer] = None
        try:
            async with asyncio.timeout(PATIENCE):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._response(head))
                writer.close()
                await writer.wait_closed()  # the client has taken it
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # nobody is left to be told
        finally:
            self._open.pop(writer, None)
            writer.transport.abort()

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b"\r\n")[0].decode("latin-1").partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if path != PATH:
            return _made("404 Not Found", f"There is nothing but {PATH}.\n".encode())
        if method not in ("GET", "HEAD"):
            return _made("405 Method Not Allowed", b"Ask with GET.\n", allow="GET, HEAD")
        if self._text is None:
            return _made("503 Service Unavailable", b"The daemon is starting.\n", retry_after="1")
        try:
            body = self._text()
        except Exception as error:  # a figure that can't be told must not end the thread
            log.error("metrics can't be told: %s", type(error).__name__)
            return _made("500 Internal Server Error", b"The daemon's log says why.\n")
        return _made("200 OK", body, CONTENT_TYPE, without_body=method == "HEAD")


def _made(status: str, body: bytes, kind: str = _PLAIN, without_body: bool = False, **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-type: {kind}", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + (b"" if without_body else body)


def _bound(address: str) -> socket.socket:
    """A socket that listens at `HOST:PORT`."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, *_, place = found[0]
        return socket.create_server(place[:2], family=family, backlog=MOST_CONNECTIONS)
    except (OSError, UnicodeError) as error:
        if isinstance(error, UnicodeError):
            why = "no such name"  # nor can there be: a part of it is empty, or too long
        else:
            # Python's own text of a known number is longer; those of names are negative, and have theirs only.
            why = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error.strerror)
        raise TransportError(
            f"{address} can't be listened on for metrics ({why.lower()}); stop what uses it, or choose another "
            "--metrics."
        ) from None
