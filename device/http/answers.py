"""Answers of one request: each starts when a slot is free, and one response carries all."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Protocol

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from common.answer.request import AnswerFailed, Request, RequestError, TooLong
from common.process.log_lines import AnswerName, CodePlace
from device.http.errors import ApiError, answer_failed, busy, engine_failed, reader_too_slow, stopping, too_long
from device.http.places import AnswerSlot
from device.interface import (
    AnswerEvent,
    Engine,
    Finished,
    Generation,
    PromptProgress,
    Provisional,
    TokenChance,
    TokenEvent,
    Unmatched,
    Waiting,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FinishedAnswer:
    finished: Finished
    tokens: tuple[TokenEvent, ...]

    @property
    def pieces(self) -> list[str]:
        return [token.text for token in self.tokens]

    @property
    def held_back(self) -> str:
        """The end of the text without a token."""
        shown = "".join(self.pieces)
        return self.finished.text[len(shown) :] if self.finished.text.startswith(shown) else ""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    place: float  # seconds until a request without a slot is refused
    unread: int | None  # unread events allowed; None: no limit


@dataclass(slots=True, eq=False)
class _Answer:
    request: Request
    place: AnswerSlot
    silent: bool  # only space was read so far
    starting: bool = False
    generation: Generation | None = None
    over: bool = False  # the engine reported its end
    closed: bool = False  # ignore further events
    unread: int = 0  # events
    last: AnswerEvent | ApiError | None = None  # event


class Answers:
    """Events of all answers with their index. For the event loop; one task reads.

    The engine never waits: an answer with too many unread events is cancelled. A `continued` answer keeps its
    leading space; others begin with a word.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[Request],
        places: Sequence[AnswerSlot],
        patience: AnswerLimits,
        starting: Executor,
        number: int,
        *,
        continued: bool,
        closed: Callable[[Answers], None],
    ) -> None:
        """The engine starts answers on the threads of `starting`, as this takes time.

        `number` is the request's and its first answer's. `closed` is called when reading ends.
        """
        self._engine = engine
        self._closed = closed
        self._patience = patience
        self._continued = continued
        self._starting = starting
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._events: deque[tuple[int, AnswerEvent | ApiError]] = deque()  # unread
        self._arrived = asyncio.Event()
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._answers = [_Answer(*pair, silent=not continued) for pair in zip(requests, places, strict=True)]
        self._tasks = [asyncio.create_task(self._start(index)) for index in range(len(self._answers))]

    @property
    def count(self) -> int:
        return len(self._answers)

    async def begun(self) -> None:
        """Waits until the engine accepts the first request. Raises `ApiError`."""
        await asyncio.shield(self._begun)

    async def next(self, patience: float | None = None) -> tuple[int, AnswerEvent] | None:
        """Returns the next event, None after `patience` seconds without one. Raises `ApiError`."""
        try:
            async with asyncio.timeout(patience):
                while True:
                    if self._events:
                        index, event = self._events.popleft()
                        return index, self._read(self._answers[index], event)
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            return None

    async def whole(self) -> list[FinishedAnswer]:
        """Returns all finished answers. Raises `ApiError`."""
        tokens: list[list[TokenEvent]] = [[] for _ in self._answers]
        told: dict[int, FinishedAnswer] = {}
        while len(told) < self.count:
            if (following := await self.next()) is None:
                continue
            index, event = following
            if isinstance(event, Finished):
                told[index] = FinishedAnswer(event, tuple(tokens[index]))
            elif isinstance(event, TokenEvent):
                tokens[index].append(event)
        return [told[index] for index in range(self.count)]

    def cancel(self, reason: ApiError) -> None:
        """Ends all answers. The reader gets `reason` in place of unread events."""
        for index, answer in enumerate(self._answers):
            if answer.starting:
                self._cancel(index, reason)
            else:
                answer.place.refuse(reason)

    def close(self) -> None:
        """Ends all answers and their reading."""
        self.cancel(stopping())
        for task in self._tasks:
            task.cancel()
        self._closed(self)

    # --- starting

    async def _start(self, index: int) -> None:
        answer = self._answers[index]
        try:
            await self._in_turn(answer.place)
        except ApiError as failure:
            self._fail(index, failure)
            return
        answer.starting = True
        tell = partial(self._hand_over, index)
        number = None if index else self._number
        start = partial(self._engine.generate, answer.request, tell, number, lambda: not answer.closed)
        future = self._loop.run_in_executor(self._starting, start)
        future.add_done_callback(partial(self._on_started, index))

    async def _in_turn(self, place: AnswerSlot) -> None:
        """The patience is for the first slot; other turns are then certain."""
        try:
            async with asyncio.timeout(self._patience.place if place is self._answers[0].place else None):
                await place.reached()
        except TimeoutError:
            place.leave()
            raise busy() from None

    def _on_started(self, index: int, future: asyncio.Future[Generation]) -> None:
        answer = self._answers[index]
        failure = stopping() if future.cancelled() else future.exception()
        if failure is not None:
            answer.place.leave()
            self._fail(index, failure if isinstance(failure, ApiError) else self._refusal(failure))
            return
        answer.generation = future.result()
        if not answer.closed:
            self._on_begun()
        elif not answer.over:
            answer.generation.cancel()

    def _on_begun(self) -> None:
        if not self._begun.done():
            self._begun.set_result(None)

    # --- events

    def _hand_over(self, index: int, event: AnswerEvent | Exception) -> None:
        """From any thread. Ignores events after the loop's end."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._on_event, index, event)

    def _on_event(self, index: int, event: AnswerEvent | Exception) -> None:
        answer = self._answers[index]
        if isinstance(event, Exception | Finished):
            answer.over = True
            answer.place.leave()
        if answer.closed:
            return
        if isinstance(event, Exception):
            self._fail(index, self._refusal(event))
        elif isinstance(event, Finished) and event.reason == "cancelled":
            self._fail(index, stopping())
        else:
            self._keep(index, event)

    def _keep(self, index: int, event: AnswerEvent) -> None:
        answer = self._answers[index]
        self._on_begun()  # may precede the start's return
        if answer.unread and isinstance(answer.last, Provisional | PromptProgress):
            self._events.remove((index, answer.last))  # superseded by this event
            answer.unread -= 1
        if self._patience.unread is not None and answer.unread >= self._patience.unread:
            self._cancel(index, reader_too_slow())
            return
        answer.closed = isinstance(event, Finished)
        answer.unread += 1
        self._put(index, event)

    def _put(self, index: int, event: AnswerEvent | ApiError) -> None:
        self._answers[index].last = event
        self._events.append((index, event))
        self._arrived.set()

    def _read(self, answer: _Answer, event: AnswerEvent | ApiError) -> AnswerEvent:
        """Removes the space before the first word. Raises `ApiError`."""
        if isinstance(event, ApiError):
            raise event
        answer.unread -= 1
        if isinstance(event, Waiting | PromptProgress | Unmatched):
            return event
        if answer.silent or (isinstance(event, Finished) and not self._continued):
            event = replace(event, text=event.text.lstrip())
            answer.silent = not event.text or isinstance(event, Provisional)
        return event

    # --- ends

    def _cancel(self, index: int, reason: ApiError) -> None:
        answer = self._answers[index]
        if answer.closed:
            return
        self._events = deque(each for each in self._events if each[0] != index)
        self._fail(index, reason)
        if answer.generation is not None:
            answer.generation.cancel()

    def _fail(self, index: int, failure: ApiError) -> None:
        answer = self._answers[index]
        if answer.closed:
            return
        answer.closed = True
        if not self._begun.done():
            self._begun.set_exception(failure)
            self._begun.exception()  # retrieved: the request may never ask
        self._put(index, failure)

    def _refusal(self, error: BaseException) -> ApiError:
        if isinstance(error, TooLong):
            return too_long(str(error), error.field)
        if isinstance(error, RequestError):
            return ApiError(400, str(error), param=error.field, code="invalid_value")
        if isinstance(error, AnswerFailed):
            return answer_failed(str(error))
        # Never the text, which can quote a prompt or document.
        name, where = AnswerName.of(self._number), CodePlace.of(error)
        logger.error("request %s: the engine raised %s%s", name, type(error).__name__, where)
        return engine_failed()


# --- rendering
# Answers as JSON, with one implementation per OpenAI format.

DONE = b"data: [DONE]\n\n"
_LINE_ENDINGS = "\x85\u2028\u2029"  # JSON leaves these unescaped


Aside = Provisional | Waiting | PromptProgress | Unmatched


class Rendering(Protocol):
    """One request's answers as JSON, whole or as server-sent events."""

    def whole(self, answers: Sequence[FinishedAnswer]) -> dict[str, Any]:
        """The response without `stream`."""
        ...

    def opening(self) -> Iterable[bytes]:
        """Events before the first token."""
        ...

    def piece(self, index: int, text: str, tokens: Sequence[TokenEvent]) -> Iterable[bytes]:
        """Events of final text and its tokens."""
        ...

    def aside(self, index: int, told: Aside) -> Iterable[bytes]:
        """Events of an aside, revoked by the next piece or the end."""
        ...

    def finished(self, index: int, told: FinishedAnswer) -> Iterable[bytes]:
        """Events after an answer's last token."""
        ...

    def closing(self) -> Iterable[bytes]:
        """Events after all answers."""
        ...

    def failed(self, failure: ApiError) -> Iterable[bytes]:
        """Last events of a failed stream."""
        ...


def aside_json(told: Aside) -> dict[str, Any]:
    """Returns the field `dragon` of an event without text."""
    match told:
        case Provisional(text):
            return {"provisional": text}
        case Waiting():
            return {"waiting": True}
        case PromptProgress():
            return {"reading": asdict(told)}
        case Unmatched():
            return {"doubt": asdict(told)}


def event(value: dict[str, Any], name: str | None = None) -> bytes:
    """Returns a server-sent event on one line.

    Escapes U+0085, U+2028 and U+2029, which end lines for some clients, e.g. Python's.
    """
    head = "" if name is None else f"event: {name}\n"
    data = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not data.isascii():
        for ending in _LINE_ENDINGS:
            data = data.replace(ending, f"\\u{ord(ending):04x}")
    return f"{head}data: {data}\n\n".encode()


def chat_entries(events: Iterable[TokenEvent], count: int) -> list[dict[str, Any]]:
    """Returns an entry per token, with `count` alternatives."""
    return [
        _entry(event.chances[0]) | {"top_logprobs": [_entry(chance) for chance in event.chances[1 : count + 1]]}
        for event in events
        if event.chances
    ]


def completion_lists(events: Sequence[TokenEvent], count: int, offset: int) -> dict[str, Any]:
    """Returns lists with an item per token; `offset` is the first one's character."""
    told = [event for event in events if event.chances]
    offsets = []
    for event in events:
        if event.chances:
            offsets.append(offset)
        offset += len(event.text)
    return {
        "tokens": [event.chances[0].text for event in told],
        "token_logprobs": [event.chances[0].logprob for event in told],
        "top_logprobs": [
            {chance.text: chance.logprob for chance in reversed(event.chances[1 : count + 1])} for event in told
        ],
        "text_offset": offsets,
    }


def _entry(chance: TokenChance) -> dict[str, Any]:
    return {
        "token": chance.text,
        "logprob": chance.logprob,
        "bytes": list(chance.raw or chance.text.encode()),
    }


# --- reply
# Responses that carry answers. A client's disconnect cancels them.

KEEP_ALIVE = b": keep-alive\n\n"


class WholeReply(Response):
    def __init__(self, answers: Answers, rendering: Rendering, headers: dict[str, str]) -> None:
        self._answers = answers
        self._rendering = rendering
        self._extra = headers
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _while_connected(self._write(scope, receive, send), receive, self._answers)

    async def _write(self, scope: Scope, receive: Receive, send: Send) -> None:
        value = self._rendering.whole(await self._answers.whole())
        await JSONResponse(value, headers=self._extra)(scope, receive, send)


class StreamedReply(Response):
    """Streams final text and asides. A late failure is an error event.

    `keep_alive`: seconds of silence before a comment. `stall_limit`: seconds that a write may wait before the
    answers are cancelled.
    """

    def __init__(
        self, answers: Answers, rendering: Rendering, headers: dict[str, str], keep_alive: float, stall_limit: float
    ) -> None:
        self._answers = answers
        self._rendering = rendering
        self._extra = headers
        self._keep_alive = keep_alive
        self._stall_limit = stall_limit
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _while_connected(self._write(send), receive, self._answers)

    async def _write(self, send: Send) -> None:
        await self._answers.begun()
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-store",
            "x-accel-buffering": "no",
        }
        raw = [(name.encode(), value.encode()) for name, value in (headers | self._extra).items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        try:
            await self._events(send)
        except ApiError as failure:
            await self._send(send, self._rendering.failed(failure))
        except TimeoutError:
            # The client does not read errors either: the server drops it.
            self._answers.cancel(reader_too_slow())
            return
        await self._send(send, [b""], more=False)

    async def _events(self, send: Send) -> None:
        count = self._answers.count
        tokens: list[list[TokenEvent]] = [[] for _ in range(count)]
        sent = [0] * count  # tokens
        await self._send(send, self._rendering.opening())
        open_answers = count
        while open_answers:
            following = await self._answers.next(self._keep_alive)
            if following is None:
                await self._send(send, [KEEP_ALIVE])
                continue
            index, event = following
            if isinstance(event, Finished):
                open_answers -= 1
                told = FinishedAnswer(event, tuple(tokens[index]))
                left = tokens[index][sent[index] :]
                if told.held_back or any(token.chances for token in left):
                    await self._send(send, self._rendering.piece(index, told.held_back, left))
                await self._send(send, self._rendering.finished(index, told))
                continue
            if not isinstance(event, TokenEvent):
                await self._send(send, self._rendering.aside(index, event))
                continue
            tokens[index].append(event)
            if event.text:
                await self._send(send, self._rendering.piece(index, event.text, tokens[index][sent[index] :]))
                sent[index] = len(tokens[index])
        await self._send(send, self._rendering.closing())

    async def _send(self, send: Send, events: Iterable[bytes], more: bool = True) -> None:
        for body in events:
            async with asyncio.timeout(self._stall_limit):
                await send({"type": "http.response.body", "body": body, "more_body": more})


async def _while_connected(writing: Any, receive: Receive, answers: Answers) -> None:
    """Closes the answers at the end or at the client's disconnect."""
    work = asyncio.create_task(writing)
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        answers.close()
        work.cancel()
        gone.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
