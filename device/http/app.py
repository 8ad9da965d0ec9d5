"""The routes of the HTTP interface and their handlers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from common.configuration.settings import is_loopback
from common.process.lifetime import Startup
from device.doctor.checks import Finding
from device.http import openapi
from device.http.answers import AnswerLimits, Answers, Rendering, StreamedReply, WholeReply
from device.http.bodies import body_too_large, disconnected, file_body, json_body
from device.http.embeddings import EmbeddingsBody, embeddings
from device.http.endpoints import ENDPOINTS
from device.http.errors import (
    MODEL_ALIAS,
    ApiError,
    diagnosis_late,
    server_failed,
    starting,
    stopping,
    unknown_model,
)
from device.http.library import (
    FolderBody,
    hit_json,
    listing_json,
    parameter,
    parse_number,
    parse_query,
    passage_json,
    run_in_thread,
)
from device.http.metrics import HttpMetrics
from device.http.options import ANY_MODEL, HttpOptions
from device.http.page import PAGE, PageFile
from device.http.payloads import FINGERPRINT_DIGITS, Completions, RequestFacts, model_json, status_json
from device.http.places import AnswerSlots
from device.http.prompts import RequestBatch, read_chat_request, read_completion_request
from device.http.request_guard import KEEPER, NUMBER, RequestGuard
from device.http.responses.payloads import Responses
from device.http.responses.schema import ResponsesBody
from device.http.schema import ChatBody, CompletionBody, GenerationBody, Model, parse
from device.http.tokens import DetokenizeBody, TokenizeBody, detokenized, tokenized
from device.interface import Engine

_READERS = 2  # threads
_DIAGNOSIS = 20.0  # seconds; it waits for the network
NOTES = "x-dragon-notes"  # header about the request's handling

Result = TypeVar("Result")
Endpoint = Callable[[HttpRequest], Awaitable[Response]]


class Api:
    """Endpoints over one engine, once it exists, on the server's event loop."""

    def __init__(self, options: HttpOptions, startup: Startup | None = None) -> None:
        self._served: Engine | None = None
        self._startup = Startup() if startup is None else startup
        self._options = options
        self._answers: set[Answers] = set()
        self._places = AnswerSlots(options.max_active, options.max_waiting)
        self._metering = HttpMetrics(lambda: self._places.waiting)
        self._embedding = AnswerSlots(1, options.max_waiting)
        self._searching = AnswerSlots(1, options.max_waiting)  # alternates with portions of embeddings
        self._uploading = AnswerSlots(1, options.max_waiting)  # an upload is in memory until it is stored
        # Own threads for the tokenizer, so that other work never waits for it.
        self._reading = AnswerSlots(_READERS, options.max_waiting)
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="reading")
        # Starts can take seconds (compiling a format); every slot has a thread.
        self._starters = ThreadPoolExecutor(options.max_active, thread_name_prefix="starting")
        self._doctors = ThreadPoolExecutor(1, thread_name_prefix="doctor")
        self._diagnosis: asyncio.Future[list[Finding]] | None = None
        self._stopping = False
        self._working: set[asyncio.Task[Response]] = set()  # on requests without a reply
        self._started = int(time.time())
        routes = [
            Route(path.replace("{model}", "{model:path}"), self._endpoint(each.handler), methods=[each.method])
            for each in ENDPOINTS
            for path in each.paths
        ]
        routes += [Route(path, _sent(file), methods=["GET"]) for path, file in PAGE.items()]
        handlers = {ApiError: _on_refusal, HTTPException: _on_routing_error, Exception: _on_crash}
        application = Starlette(routes=routes, exception_handlers=handlers)
        application.router.redirect_slashes = False
        self.application = RequestGuard(application, options, self._metering.answered)

    def serve(self, engine: Engine) -> None:
        """Answers with `engine` from now on. On any thread."""
        self._served = engine

    @property
    def _engine(self) -> Engine:
        """Raises `ApiError` before the engine exists."""
        if self._served is None:
            raise starting(str(self._startup))
        return self._served

    def stop(self) -> None:
        """Cancels running requests, refuses new ones."""
        self._stopping = True
        for answers in list(self._answers):
            answers.cancel(stopping())
        for task in self._working:
            task.cancel()

    def close(self) -> None:
        """Ends threads and log. Abandons the threads' work."""
        for threads in (self._readers, self._starters, self._doctors):
            threads.shutdown(wait=False, cancel_futures=True)
        self.application.close()

    def _endpoint(self, name: str) -> Endpoint:
        """Returns the handler `name`. A stop sends its client `stopping` at once."""
        handler: Callable[[HttpRequest], Coroutine[Any, Any, Response]] = getattr(self, f"_{name}")

        async def handle(http: HttpRequest) -> Response:
            task = asyncio.create_task(handler(http))
            self._working.add(task)
            try:
                return await task
            except asyncio.CancelledError:
                if self._stopping:
                    raise stopping() from None
                raise
            finally:
                self._working.discard(task)

        return handle

    async def _health(self, _: HttpRequest) -> Response:
        if self._stopping:
            return JSONResponse({"status": "stopping"}, 503)
        if self._served is None:
            return JSONResponse({"status": "starting", "doing": str(self._startup)}, 503)
        return JSONResponse({"status": "ok"})

    async def _status(self, _: HttpRequest) -> Response:
        return JSONResponse(status_json(await asyncio.to_thread(self._engine.status)))

    async def _doctor(self, _: HttpRequest) -> Response:
        """Runs one diagnosis, which concurrent requests share."""
        if self._diagnosis is None or self._diagnosis.done():
            loop = asyncio.get_running_loop()
            self._diagnosis = loop.run_in_executor(self._doctors, self._engine.diagnose)
        told, _waiting = await asyncio.wait([self._diagnosis], timeout=_DIAGNOSIS)
        if not told:
            raise diagnosis_late(_DIAGNOSIS)
        return JSONResponse({"findings": [asdict(each) for each in await self._diagnosis]})

    async def _metrics(self, _: HttpRequest) -> Response:
        return self._metering.response(await asyncio.to_thread(self._engine.metrics))

    async def _openapi(self, _: HttpRequest) -> Response:
        return JSONResponse(openapi.document())

    async def _models(self, _: HttpRequest) -> Response:
        names = dict.fromkeys((MODEL_ALIAS, self._engine.name, *sorted(self._options.model_aliases - {ANY_MODEL})))
        return JSONResponse({"object": "list", "data": [model_json(name, self._started) for name in names]})

    async def _model(self, http: HttpRequest) -> Response:
        name = http.path_params["model"]
        if name not in self._names:
            raise unknown_model(self._engine.name)
        return JSONResponse(model_json(name, self._started))

    async def _completions(self, http: HttpRequest) -> Response:
        body, notes = await self._parsed(CompletionBody, http)
        self._places.check(len(body.prompt) * body.n)  # before reading the prompts
        read = partial(read_completion_request, body, self._options, self._engine)
        asked = read() if isinstance(body.prompt[0], str) else await self._aside(http, read)
        return self._reply(http, body, asked, notes, lambda served: _completions(body, asked, served, chat=False))

    async def _chat_completions(self, http: HttpRequest) -> Response:
        body, notes = await self._parsed(ChatBody, http)
        asked = read_chat_request(body.messages, body.options, body.n, self._options, self._engine, body.toolbox)
        return self._reply(http, body, asked, notes, lambda served: _completions(body, asked, served, chat=True))

    async def _responses(self, http: HttpRequest) -> Response:
        body, notes = await self._parsed(ResponsesBody, http)
        asked = read_chat_request(body.messages, body.options, 1, self._options, self._engine, body.toolbox, "input")
        return self._reply(
            http, body, asked, notes, lambda served: Responses(served, body, asked.requests[0], asked.shape)
        )

    async def _embeddings(self, http: HttpRequest) -> Response:
        body, notes = await self._parsed(EmbeddingsBody, http)
        async with self._embedding.turn():
            value, notes = await embeddings(body, self._engine, notes, partial(self._wanted, http))
        return JSONResponse(value, headers=_headers(notes))

    async def _library(self, _: HttpRequest) -> Response:
        return await run_in_thread(lambda: JSONResponse(listing_json(self._engine.documents.listing())))

    async def _library_search(self, http: HttpRequest) -> Response:
        text, count = parse_query(http.query_params)
        async with self._searching.turn():
            hits = await run_in_thread(lambda: self._engine.documents.search(text, count))
        return JSONResponse({"hits": [hit_json(hit) for hit in hits]})

    async def _library_passage(self, http: HttpRequest) -> Response:
        chunk = parse_number(http.path_params["chunk"], "chunk")
        return JSONResponse(passage_json(await run_in_thread(lambda: self._engine.documents.passage(chunk))))

    async def _library_upload(self, http: HttpRequest) -> Response:
        name, documents = parameter(http.query_params, "name"), self._engine.documents
        limit = await run_in_thread(lambda: documents.most_bytes(name))
        async with self._uploading.turn():
            content = await file_body(http, self._options, limit)
            replaced = await run_in_thread(lambda: documents.put(name, content))
        return JSONResponse({"name": name, "bytes": len(content), "replaced": replaced}, 201)

    async def _library_forget(self, http: HttpRequest) -> Response:
        document = parse_number(http.path_params["document"], "document")
        return JSONResponse({"forgotten": await run_in_thread(lambda: self._engine.documents.forget(document))})

    async def _library_discard(self, http: HttpRequest) -> Response:
        name = parameter(http.query_params, "name")
        return JSONResponse({"forgotten": await run_in_thread(lambda: self._engine.documents.discard(name))})

    async def _library_watch(self, http: HttpRequest) -> Response:
        body, notes = await self._parsed(FolderBody, http)
        if not is_loopback(self._options.host):
            raise ApiError(
                403,
                "A request can name folders only if the daemon listens on loopback; upload the documents instead.",
                code="not_on_loopback",
            )
        await run_in_thread(lambda: self._engine.documents.watch(body.path))
        return JSONResponse({"path": body.path}, 202, headers=_headers(notes))

    async def _library_unwatch(self, http: HttpRequest) -> Response:
        path = parameter(http.query_params, "path")
        await run_in_thread(lambda: self._engine.documents.unwatch(path))
        return JSONResponse({})

    async def _tokenize(self, http: HttpRequest) -> Response:
        body, notes = await self._parsed(TokenizeBody, http)
        return await self._aside(http, lambda: JSONResponse(tokenized(body, self._engine), headers=_headers(notes)))

    async def _detokenize(self, http: HttpRequest) -> Response:
        body, notes = await self._parsed(DetokenizeBody, http)
        return await self._aside(http, lambda: JSONResponse(detokenized(body, self._engine), headers=_headers(notes)))

    async def _aside(self, http: HttpRequest, work: Callable[[], Result]) -> Result:
        """Returns the result of `work`, from a tokenizer thread, first come, first served.

        Raises `ApiError`, also if nobody waits.
        """
        async with self._reading.turn():
            await self._wanted(http)
            return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    async def _wanted(self, http: HttpRequest) -> None:
        """Raises `ApiError` if nobody waits for the answer."""
        if self._stopping:
            raise stopping()
        if await http.is_disconnected():
            raise disconnected()

    async def _parsed(self, kind: type[Model], http: HttpRequest) -> tuple[Model, tuple[str, ...]]:
        body, notes = await self._read(kind, http)
        if isinstance(body, GenerationBody):
            self._check_model(body.model)
        return body, notes

    async def _read(self, kind: type[Model], http: HttpRequest) -> tuple[Model, tuple[str, ...]]:
        if not issubclass(kind, GenerationBody):
            return parse(kind, await json_body(http, self._options))
        async with AsyncExitStack() as turns:

            async def room() -> int:
                await turns.enter_async_context(self._uploading.turn())
                return self._options.files_limit

            content = await json_body(http, self._options, room)
            if len(content) <= self._options.body_limit:
                return parse(kind, content)
            if b'"files"' not in content:
                raise body_too_large(self._options.body_limit)
            return await asyncio.to_thread(parse, kind, content)

    @property
    def _names(self) -> tuple[str, ...]:
        return MODEL_ALIAS, self._engine.name, self._engine.model, *self._options.model_aliases

    def _check_model(self, name: str) -> None:
        """Raises `ApiError`."""
        if name not in self._names and ANY_MODEL not in self._options.model_aliases:
            raise unknown_model(self._engine.name)

    def _reply(
        self,
        http: HttpRequest,
        body: GenerationBody,
        asked: RequestBatch,
        notes: tuple[str, ...],
        rendering: Callable[[RequestFacts], Rendering],
    ) -> Response:
        if self._stopping:
            raise stopping()
        notes += asked.notes
        fingerprint = f"dragon-{self._engine.model[:FINGERPRINT_DIGITS]}"
        number: int = http.scope[NUMBER]
        identity = f"{number:08x}{secrets.token_hex(8)}"
        served = RequestFacts(identity, int(time.time()), self._engine.name, fingerprint, notes, asked.per_prompt)
        rendered = rendering(served)
        keeper = {"keeper": http.scope.get(KEEPER)}
        answers = Answers(
            self._engine,
            [request.model_copy(update=keeper) for request in asked.requests],
            self._places.take(len(asked.requests)),
            AnswerLimits(self._options.wait_patience, self._options.unread_limit if body.stream else None),
            self._starters,
            number,
            continued=asked.continued,
            closed=self._answers.discard,
        )
        self._answers.add(answers)
        headers = _headers(notes)
        if body.stream:
            return StreamedReply(answers, rendered, headers, self._options.keep_alive, self._options.stall_limit)
        return WholeReply(answers, rendered, headers)


def _completions(body: CompletionBody | ChatBody, asked: RequestBatch, served: RequestFacts, chat: bool) -> Completions:
    requests = asked.requests
    shape, formed = asked.shape, requests[0].response_format is not None
    return Completions(served, chat, len(requests), body.include_usage, requests[0].top_logprobs, shape, formed)


def _headers(notes: tuple[str, ...]) -> dict[str, str]:
    """Header with notes, which quote only field names from the request."""
    return {NOTES: " ".join(notes).encode("ascii", "replace").decode()} if notes else {}


def _sent(file: PageFile) -> Endpoint:
    async def send(http: HttpRequest) -> Response:
        return file.response(http)

    return send


async def _on_refusal(_: HttpRequest, error: Exception) -> Response:
    if not isinstance(error, ApiError):
        raise error
    return error.response()


async def _on_routing_error(http: HttpRequest, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    headers = error.headers
    if error.status_code == 405:  # the error knows only the first route
        matching = [route for route in http.app.routes if route.matches(http.scope)[0] is not Match.NONE]
        headers = {"allow": ", ".join(sorted({method for route in matching for method in route.methods or ()}))}
    unknown = "Unknown path. GET /openapi.json lists all; the base URL of OpenAI's clients ends with /v1."
    known = {404: (unknown, "unknown_path"), 405: ("Method not allowed here.", "method_not_allowed")}
    message, code = known.get(error.status_code, ("The request was refused.", "refused"))
    return ApiError(error.status_code, message, code=code, headers=headers).response()


async def _on_crash(_: HttpRequest, __: Exception) -> Response:
    return server_failed().response()
