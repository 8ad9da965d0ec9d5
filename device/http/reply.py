"""The response that carries an answer: whole or as server-sent events, cancelled when its client is gone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from device.http.errors import ApiError, reader_too_slow
from device.http.event_stream import EventStream
from device.http.payloads import Envelope
from device.interface import Finished

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


class WholeReply(Response):
    """Waits for the answer and sends one JSON object."""

    def __init__(self, answer: EventStream, envelope: Envelope) -> None:
        self._answer = answer
        self._envelope = envelope
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _while_connected(self._write(scope, receive, send), receive, self._answer)

    async def _write(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer.begun()
        pieces: list[str] = []
        while not isinstance(event := await self._answer.next(), Finished):
            if event is not None:
                pieces.append(event.text)
        await JSONResponse(self._envelope.whole(event, pieces))(scope, receive, send)


class StreamedReply(Response):
    """Sends every piece of text as it becomes final; a failure after the first byte is an error event.

    `keep_alive` (seconds): silence after which a comment is sent. `stall_limit` (seconds): how long one
    write may wait for the reader before the answer is given up.
    """

    def __init__(self, answer: EventStream, envelope: Envelope, keep_alive: float, stall_limit: float) -> None:
        self._answer = answer
        self._envelope = envelope
        self._keep_alive = keep_alive
        self._stall_limit = stall_limit
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _while_connected(self._write(send), receive, self._answer)

    async def _write(self, send: Send) -> None:
        await self._answer.begun()
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            await self._events(send)
        except ApiError as failure:
            await self._send(send, _event(failure.body()))
        except TimeoutError:
            # Nothing can be told to a client that doesn't read: the server drops the connection.
            self._answer.cancel(reader_too_slow())
            return
        await self._send(send, b"", more=False)

    async def _events(self, send: Send) -> None:
        pieces: list[str] = []
        sent = ""
        for chunk in self._envelope.opening():
            await self._send(send, _event(chunk))
        while not isinstance(event := await self._answer.next(self._keep_alive), Finished):
            if event is None:
                await self._send(send, KEEP_ALIVE)
                continue
            pieces.append(event.text)
            if event.text:
                sent += event.text
                await self._send(send, _event(self._envelope.piece(event.text)))
        if event.text.startswith(sent) and (held_back := event.text[len(sent) :]):
            await self._send(send, _event(self._envelope.piece(held_back)))
        for chunk in self._envelope.closing(event, pieces):
            await self._send(send, _event(chunk))
        await self._send(send, DONE)

    async def _send(self, send: Send, body: bytes, more: bool = True) -> None:
        async with asyncio.timeout(self._stall_limit):
            await send({"type": "http.response.body", "body": body, "more_body": more})


async def _while_connected(writing: Any, receive: Receive, answer: EventStream) -> None:
    """Run `writing` until it is done or the client disconnects; either way the answer is let go."""
    work = asyncio.create_task(writing)
    gone = asyncio.create_task(_disconnected(receive))
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        answer.cancel()
        work.cancel()
        gone.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n\n"
