"""Middleware of every request: id, Host, Origin and key checks, log line, last catch."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import Final, Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from common.configuration.settings import is_loopback
from common.methods.open_message import session_number
from common.process.log_lines import AnswerName, CodePlace
from common.process.threads import QuietLog
from common.process.version import VERSION
from device.access.api_keys import hash_of
from device.http.endpoints import ENDPOINTS
from device.http.errors import ApiError, keys_unreadable, server_failed, wrong_key
from device.http.metrics import RequestTally
from device.http.options import HttpOptions
from device.http.page import PAGE
from device.settings import DEFAULT_PORTS

logger = logging.getLogger(__name__)

PUBLIC_PATHS = frozenset(path for each in ENDPOINTS if each.public for path in each.paths) | PAGE.keys()
OWN_FETCHES = frozenset({"same-origin", "none"})  # "none": the user's own action
# Other paths are the client's text, and not logged.
LOGGED_PATHS = frozenset(path for each in ENDPOINTS for path in each.paths if "{" not in path) | PAGE.keys()
# Requested every few seconds by the page, `dragon up`, Prometheus and health checks.
_POLLED: Final = frozenset({"/health", "/v1/health", "/status", "/library", "/metrics"}) | PAGE.keys()
_USUAL: Final = frozenset({200, 304, 503})  # 503 while starting or stopping
_LONGEST_METHOD: Final = 8  # characters
NUMBER: Final = "dragon.number"  # the request's number in its scope; also its first answer's
KEEPER: Final = "dragon.keeper"  # the hash of its API key, None without
OWN_ID: Final = "x-dragon-request"  # header with this daemon's id, next to a client's
# Echoed, but not logged, as it is the client's text.
_GIVEN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ABSOLUTE: Final = re.compile(r"https?://([^/?#]*)(/.*)?", re.IGNORECASE | re.DOTALL)
_SLASHES: Final = re.compile("/{2,}")
_REPEATED: Final = re.compile(r"^(?:/v1)+(?=/)")
EXPOSED = f"x-request-id, {OWN_ID}, x-dragon-notes, retry-after"  # readable for allowed origins' pages


class RequestGuard:
    """ASGI middleware that catches every exception.

    The server's handler would log an exception's text, which can quote a prompt.
    """

    def __init__(self, app: ASGIApp, options: HttpOptions, answered: Callable[[int | None], object]) -> None:
        """`answered` gets every status, None without a response."""
        self._app = app
        self._answered = answered
        self._admission = options.admission
        self._refusals = QuietLog(logger)
        self._tally = RequestTally(logger)
        self._local = is_loopback(options.host)
        self._allowed = options.allow_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        allowed = self._allowed_origin(headers)
        scope[NUMBER] = session_number()
        given = headers.get("x-request-id", "")
        exchange = _Exchange(send, allowed, scope[NUMBER], given if _GIVEN.fullmatch(given) else None)
        started = time.monotonic()
        try:
            _aim(scope, headers)
            self._check_host(headers)
            if allowed is not None and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                exchange.let_in = "anybody"
                await _preflight(headers)(scope, receive, exchange.send)
                return
            if scope["path"] in PUBLIC_PATHS:
                exchange.let_in = "anybody"
            else:
                self._check_page(headers, allowed)
                scope[KEEPER] = self._check_key(headers)
                exchange.let_in = "user"
            await self._app(scope, receive, exchange.send)
        except ApiError as refusal:
            await refusal.response()(scope, receive, exchange.send)
        except Exception as error:
            tell = logger.log if exchange.let_in == "user" else self._refusals.tell
            tell(logging.ERROR, "%s raised %s%s", exchange.identity, type(error).__name__, CodePlace.of(error))
            if exchange.status is None:
                await server_failed().response()(scope, receive, exchange.send)
        finally:
            self._tell(scope, exchange, time.monotonic() - started)

    def close(self) -> None:
        self._tally.tell()

    def _tell(self, scope: Scope, exchange: _Exchange, seconds: float) -> None:
        """Logs a request. Only admitted users can add unlimited lines."""
        self._answered(exchange.status)
        path = scope["path"] if scope["path"] in LOGGED_PATHS else "(other)"
        polled = path in _POLLED and exchange.status in _USUAL
        if exchange.let_in == "anybody":
            if not polled:
                self._tally.count(path, exchange.status)
            return
        tell = logger.log if exchange.let_in == "user" else self._refusals.tell
        method = scope["method"][:_LONGEST_METHOD]
        level = logging.DEBUG if polled and exchange.let_in == "user" else logging.INFO
        tell(level, "%s %s %s %s %.3f s", exchange.identity, method, path, exchange.status, seconds)

    def _allowed_origin(self, headers: Headers) -> str | None:
        origins = headers.getlist("origin")
        return origins[0] if len(origins) == 1 and origins[0] in self._allowed else None

    def _check_host(self, headers: Headers) -> None:
        # A site rebound to 127.0.0.1 still sends its own name. A local proxy may, if `allow_origins` has the name.
        host = headers.get("host", "")
        if self._local and not (_names_this_machine(host) or any(_serves(host, each) for each in self._allowed)):
            raise ApiError(
                403,
                "The Host header must name this machine (localhost or 127.0.0.1), or an origin of allow_origins.",
                code="host_not_allowed",
            )

    def _check_page(self, headers: Headers, allowed: str | None) -> None:
        # Browsers name the page; a client that can lie needs no browser.
        if allowed is None and not _asked_by_itself(headers):
            raise ApiError(
                403,
                "A web page of another origin may not use this daemon.",
                code="origin_not_allowed",
            )

    def _check_key(self, headers: Headers) -> str | None:
        """Returns the hash of the key, None where none is needed."""
        if self._admission is None or not self._admission.wanted:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        key = given.strip().encode("latin-1")  # the bytes as sent
        if scheme.lower() != "bearer" or not self._admission.admitted(key):
            raise keys_unreadable() if self._admission.broken else wrong_key()
        return hash_of(key)


class _Exchange:
    """Adds id and server header to a response, and remembers its status.

    Pages of the origin `allowed` may read it.
    """

    def __init__(self, send: Send, allowed: str | None, number: int, given: str | None) -> None:
        """`given` is the client's id, if it may be echoed."""
        self._allowed = allowed
        self.identity = AnswerName.of(number)
        self._given = given
        self.status: int | None = None
        self.let_in: Literal["nobody", "anybody", "user"] = "nobody"  # checks passed so far
        self._send = send

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._given or self.identity
            if self._given is not None:
                headers[OWN_ID] = self.identity
            headers["server"] = f"dragon/{VERSION}"
            headers["x-content-type-options"] = "nosniff"
            if self._allowed is not None:
                headers["access-control-allow-origin"] = self._allowed
                headers["access-control-expose-headers"] = EXPOSED
                headers.append("vary", "origin")
        await self._send(message)


def _aim(scope: Scope, headers: Headers) -> None:
    """Normalises the path. Raises `ApiError` for another host."""
    if (whole := _ABSOLUTE.fullmatch(scope["path"])) is not None:  # as sent to a proxy
        if whole[1].lower() != headers.get("host", "").lower():
            raise ApiError(400, "The target and the Host header name different hosts.", code="host_mismatch")
        scope["path"] = whole[2] or "/"
    # Base URLs may end with a slash, or repeat `/v1`.
    plain = _REPEATED.sub("/v1", _SLASHES.sub("/", scope["path"])).removesuffix("/") or "/"
    if plain in LOGGED_PATHS:
        scope["path"] = plain


def _preflight(headers: Headers) -> Response:
    permission = {
        "access-control-allow-methods": ", ".join(sorted({each.method for each in ENDPOINTS})),
        "access-control-allow-headers": headers.get("access-control-request-headers", ""),
        "access-control-max-age": "600",
    }
    if "access-control-request-private-network" in headers:
        permission["access-control-allow-private-network"] = "true"
    return Response(status_code=204, headers=permission)


def _asked_by_itself(headers: Headers) -> bool:
    """Whether no page, or this server's own, asks. Other ports are other origins."""
    if not OWN_FETCHES.issuperset(headers.getlist("sec-fetch-site")):
        return False
    return all(_serves(headers.get("host", ""), origin) for origin in headers.getlist("origin"))


def _serves(host: str, origin: str) -> bool:
    """Whether the Host header names the origin's host."""
    place = _place(origin)
    return place is not None and place == _place(f"{origin.partition('://')[0]}://{host}")


def _place(origin: str) -> tuple[str, int] | None:
    """Host and port of an origin, None without a host, as for `null`."""
    try:
        parts = urlsplit(origin)
        port = parts.port or DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname, port) if parts.hostname and port else None


def _names_this_machine(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)
