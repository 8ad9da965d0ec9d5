"""The routes of the HTTP interface and what they do with a request."""

from __future__ import annotations

import asyncio
import secrets
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from common.methods.request import Request
from device.http.errors import ApiError, busy, server_failed, stopping
from device.http.event_stream import EventStream
from device.http.options import HttpOptions
from device.http.payloads import Envelope, model_json, status_json
from device.http.prompts import chat_request, completion_request
from device.http.reply import StreamedReply, WholeReply
from device.http.request_guard import RequestGuard
from device.http.schema import GenerationBody, parse_chat, parse_completion
from device.interface import Engine

MODEL_ALIAS = "dragon"  # whatever model the daemon runs


class Api:
    """The endpoints over one engine. Its methods run on the server's event loop."""

    def __init__(self, engine: Engine, options: HttpOptions) -> None:
        self._engine = engine
        self._options = options
        self._answers: set[EventStream] = set()
        self._stopping = False
        self._started = int(time.time())
        routes = [
            Route("/health", self._health, methods=["GET"]),
            Route("/status", self._status, methods=["GET"]),
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/v1/models/{model:path}", self._model, methods=["GET"]),
            Route("/v1/completions", self._completions, methods=["POST"]),
            Route("/v1/chat/completions", self._chat_completions, methods=["POST"]),
        ]
        handlers = {ApiError: _on_refusal, HTTPException: _on_routing_error, Exception: _on_crash}
        application = Starlette(routes=routes, exception_handlers=handlers)
        application.router.redirect_slashes = False
        self.application: ASGIApp = RequestGuard(application, options)

    def stop(self) -> None:
        """Cancel what runs and refuse what comes."""
        self._stopping = True
        for answer in list(self._answers):
            answer.cancel(stopping())

    async def _health(self, _: HttpRequest) -> Response:
        return JSONResponse({"status": "stopping" if self._stopping else "ok"}, 503 if self._stopping else 200)

    async def _status(self, _: HttpRequest) -> Response:
        return JSONResponse(status_json(await asyncio.to_thread(self._engine.status)))

    async def _models(self, _: HttpRequest) -> Response:
        return JSONResponse({"object": "list", "data": [model_json(self._engine.model, self._started)]})

    async def _model(self, http: HttpRequest) -> Response:
        served = self._check_model(http.path_params["model"])
        return JSONResponse(model_json(served, self._started))

    async def _completions(self, http: HttpRequest) -> Response:
        body = parse_completion(await self._json_body(http))
        request = completion_request(body, self._options.defaults)
        return await self._reply(body, request, chat=False)

    async def _chat_completions(self, http: HttpRequest) -> Response:
        body = parse_chat(await self._json_body(http))
        request = chat_request(body, self._options.defaults, self._engine.put)
        return await self._reply(body, request, chat=True)

    async def _reply(self, body: GenerationBody, request: Request, chat: bool) -> Response:
        model = self._check_model(body.model)
        envelope = Envelope(secrets.token_hex(12), int(time.time()), model, chat, body.include_usage)
        if self._stopping:
            raise stopping()
        if len(self._answers) >= self._options.max_active:
            raise busy(len(self._answers))
        unread_limit = self._options.unread_limit if body.stream else None
        answer = EventStream(self._engine, request, unread_limit, self._answers.discard)
        self._answers.add(answer)
        if body.stream:
            return StreamedReply(answer, envelope, self._options.keep_alive, self._options.stall_limit)
        return WholeReply(answer, envelope)

    def _check_model(self, name: str) -> str:
        served = self._engine.model
        if name not in (served, MODEL_ALIAS):
            raise ApiError(
                404,
                f"This daemon does not serve that model; it serves '{served}' (also as '{MODEL_ALIAS}').",
                param="model",
                code="model_not_found",
            )
        return served

    async def _json_body(self, http: HttpRequest) -> bytes:
        """The body, which must be declared as JSON: browsers don't send that across sites without asking."""
        if http.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise ApiError(415, "The Content-Type must be application/json.", code="unsupported_media_type")
        limit = self._options.body_limit
        too_large = ApiError(413, f"The body is larger than {limit} bytes.", code="body_too_large")
        declared = http.headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > limit:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._options.body_patience):
                async for part in http.stream():
                    body += part
                    if len(body) > limit:
                        raise too_large
        except TimeoutError:
            raise ApiError(408, "The body did not arrive in time.", code="timeout") from None
        except ClientDisconnect:
            raise ApiError(400, "The client went away.", code="disconnected") from None
        return bytes(body)


async def _on_refusal(_: HttpRequest, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error.response()


async def _on_routing_error(_: HttpRequest, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    known = {404: ("Unknown path.", "unknown_path"), 405: ("Method not allowed here.", "method_not_allowed")}
    message, code = known.get(error.status_code, ("The request was refused.", "refused"))
    return ApiError(error.status_code, message, code=code, headers=error.headers).response()


async def _on_crash(_: HttpRequest, __: Exception) -> Response:
    return server_failed().response()
