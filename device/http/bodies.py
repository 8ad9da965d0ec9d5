"""The bytes of a request's body."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from device.http.errors import ApiError
from device.http.options import HttpOptions

SLOWEST_UPLOAD = 1e5  # bytes per second


async def json_body(http: HttpRequest, options: HttpOptions, limit: int | None = None) -> bytes:
    """The body, which must be declared as JSON: browsers don't send that across sites without asking.

    It has `limit` bytes at most, None: as any body. Raises `ApiError`.
    """
    if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "The Content-Type must be application/json.", code="unsupported_media_type")
    if limit is None:
        return await body_of(http, options.body_limit, options.body_patience)
    return await body_of(http, limit, options.body_patience + limit / SLOWEST_UPLOAD)


def declared(http: HttpRequest) -> int:
    """Bytes that the body is said to have; 0 where nothing is said."""
    told = http.headers.get("content-length", "0")
    return int(told) if told.isdecimal() else 0


async def file_body(http: HttpRequest, options: HttpOptions, limit: int) -> bytes:
    """A file of at most `limit` bytes, which must be declared as that, for the same reason. Raises `ApiError`."""
    if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/octet-stream":
        raise ApiError(415, "The Content-Type must be application/octet-stream.", code="unsupported_media_type")
    return await body_of(http, limit, options.body_patience + limit / SLOWEST_UPLOAD)


def body_too_large(limit: int) -> ApiError:
    """The body has more bytes than one of its kind may have."""
    return ApiError(413, f"The body is larger than {limit} bytes.", code="body_too_large")


async def body_of(http: HttpRequest, limit: int, patience: float) -> bytes:
    """The body, of at most `limit` bytes and within `patience` seconds. Raises `ApiError`."""
    too_large = body_too_large(limit)
    if declared(http) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(patience):
            async for part in http.stream():
                body += part
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise ApiError(408, "The body did not arrive in time.", code="timeout") from None
    except ClientDisconnect:
        raise disconnected() from None
    return bytes(body)


def disconnected() -> ApiError:
    """Nobody is there to be answered."""
    return ApiError(400, "The client went away.", code="disconnected")
