"""The bytes of a request's body."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from device.http.errors import ApiError
from device.http.options import HttpOptions


async def json_body(http: HttpRequest, options: HttpOptions) -> bytes:
    """The body, which must be declared as JSON: browsers don't send that across sites without asking.

    Raises `ApiError`.
    """
    if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ApiError(415, "The Content-Type must be application/json.", code="unsupported_media_type")
    limit = options.body_limit
    too_large = ApiError(413, f"The body is larger than {limit} bytes.", code="body_too_large")
    declared = http.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(options.body_patience):
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
