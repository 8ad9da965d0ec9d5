from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from device.http.errors import ApiError
from device.http.options import HttpOptions

SLOWEST_UPLOAD = 1e5  # bytes per second


Room = Callable[[], Awaitable[int]]


async def json_body(http: HttpRequest, options: HttpOptions, room: Room | None = None) -> bytes:
    """Returns a body declared as JSON, which browsers can't send across sites unasked.

    `room` is awaited for a larger body, and returns its limit. Raises `ApiError`.
    """
    if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "The Content-Type must be application/json.", code="unsupported_media_type")
    return await body_of(http, options.body_limit, options.body_patience, room)


def declared(http: HttpRequest) -> int:
    """Returns the declared bytes, 0 if undeclared."""
    told = http.headers.get("content-length", "0")
    return int(told) if told.isdecimal() else 0


async def file_body(http: HttpRequest, options: HttpOptions, limit: int) -> bytes:
    """Returns a body declared as octet-stream, for that reason. Raises `ApiError`."""
    if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/octet-stream":
        raise ApiError(415, "The Content-Type must be application/octet-stream.", code="unsupported_media_type")
    return await body_of(http, limit, options.body_patience + limit / SLOWEST_UPLOAD)


def body_too_large(limit: int) -> ApiError:
    return ApiError(413, f"The body is larger than {limit} bytes.", code="body_too_large")


async def body_of(http: HttpRequest, limit: int, patience: float, room: Room | None = None) -> bytes:
    """Returns a body of at most `limit` bytes, within `patience` seconds.

    For a larger body, `room` returns a new limit, and the time grows. Raises `ApiError`.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(patience) as clock:
            parts = http.stream()
            size = declared(http)
            while True:
                if size > limit and room is not None:
                    clock.reschedule(None)
                    limit, room = await room(), None
                    clock.reschedule(asyncio.get_running_loop().time() + patience + limit / SLOWEST_UPLOAD)
                if size > limit:
                    raise body_too_large(limit)
                part = await anext(parts, None)
                if part is None:
                    break
                body += part
                size = max(size, len(body))
    except TimeoutError:
        raise ApiError(408, "The body did not arrive in time.", code="timeout") from None
    except ClientDisconnect:
        raise disconnected() from None
    return bytes(body)


def disconnected() -> ApiError:
    return ApiError(400, "The client went away.", code="disconnected")
