"""The response that carries answers: whole or as server-sent events, cancelled when its client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from device.http.answers import Answers, Told
from device.http.errors import ApiError, reader_too_slow
from device.http.rendering import Rendering
from device.interface import Finished, TokenEvent

KEEP_ALIVE = b": keep-alive\n\n"


class WholeReply(Response):
    """Waits for the answers and sends one JSON object."""

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
    """Sends every piece of text as it becomes final, and what may follow; a late failure is an error event.

    `keep_alive` (seconds): silence after which a comment is sent. `stall_limit` (seconds): how long one
    write may wait for the reader before the answers are given up.
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
            # Nothing can be told to a client that doesn't read: the server drops the connection.
            self._answers.cancel(reader_too_slow())
            return
        await self._send(send, [b""], more=False)

    async def _events(self, send: Send) -> None:
        count = self._answers.count
        tokens: list[list[TokenEvent]] = [[] for _ in range(count)]
        sent = [0] * count  # of them
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
                told = Told(event, tuple(tokens[index]))
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
    """Run `writing` until it is done or the client disconnects; either way the answers are let go."""
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
