"""The answers of one request, merged: each one starts when there is a place for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from common.methods.request import Request
from device.http.errors import ApiError, busy, stopping
from device.http.event_stream import EventStream
from device.http.places import Place
from device.interface import AnswerEvent, Engine, Finished, Provisional, TokenEvent


@dataclass(frozen=True, slots=True)
class Told:
    """A finished answer and its tokens."""

    finished: Finished
    tokens: tuple[TokenEvent, ...]

    @property
    def pieces(self) -> list[str]:
        """The text of each token."""
        return [token.text for token in self.tokens]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long, and for how much, an answer waits for others."""

    place: float  # seconds until a request that has no place yet is refused
    unread: int | None  # events that its reader may lag behind; None: all


class Answers:
    """Events of all answers with their index. All methods belong to the event loop; read by one task.

    An answer that `continued` a text keeps the space that it begins with; any other one begins with a word.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[Request],
        places: Sequence[Place],
        patience: Patience,
        *,
        continued: bool,
        closed: Callable[[Answers], None],
    ) -> None:
        """`closed` is told when nobody reads the answers any more."""
        self._engine = engine
        self._closed = closed
        self._patience = patience
        self._continued = continued
        self._places = places
        self._streams: dict[int, EventStream] = {}
        self._events: asyncio.Queue[tuple[int, AnswerEvent | ApiError]] = asyncio.Queue(1)
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cancelled = False
        pairs = enumerate(zip(requests, places, strict=True))
        self._tasks = [asyncio.create_task(self._answer(index, *pair)) for index, pair in pairs]

    @property
    def count(self) -> int:
        return len(self._places)

    async def begun(self) -> None:
        """Wait until the engine took the first request. Raises `ApiError` when it refuses."""
        await asyncio.shield(self._begun)

    async def next(self, patience: float | None = None) -> tuple[int, AnswerEvent] | None:
        """The next event, or None when nothing happened for `patience` seconds. Raises `ApiError`."""
        try:
            async with asyncio.timeout(patience):
                index, event = await self._events.get()
        except TimeoutError:
            return None
        if isinstance(event, ApiError):
            raise event
        return index, event

    async def whole(self) -> list[Told]:
        """All answers to their ends. Raises `ApiError` when one fails."""
        tokens: list[list[TokenEvent]] = [[] for _ in self._places]
        told: dict[int, Told] = {}
        while len(told) < self.count:
            if (following := await self.next()) is None:
                continue
            index, event = following
            if isinstance(event, Finished):
                told[index] = Told(event, tuple(tokens[index]))
            elif isinstance(event, TokenEvent):
                tokens[index].append(event)
        return [told[index] for index in range(self.count)]

    def cancel(self, reason: ApiError) -> None:
        """End all answers at once; the reader gets `reason`."""
        self._cancelled = True
        for stream in self._streams.values():
            stream.cancel(reason)
        for index, place in enumerate(self._places):
            if index not in self._streams:
                place.refuse(reason)

    def close(self) -> None:
        """End all answers at once: nobody reads them any more."""
        self.cancel(stopping())
        for task in self._tasks:
            task.cancel()
        self._closed(self)

    async def _answer(self, index: int, request: Request, place: Place) -> None:
        try:
            await self._in_turn(place)
            if self._cancelled:
                place.leave()
                raise stopping()
            stream = EventStream(self._engine, request, self._patience.unread, lambda _: place.leave())
            self._streams[index] = stream
            await stream.begun()
            if not self._begun.done():
                self._begun.set_result(None)
            silent = not self._continued
            while True:
                event = await stream.next()
                if silent or (isinstance(event, Finished) and not self._continued):
                    event = replace(event, text=event.text.lstrip())
                    silent = not event.text or isinstance(event, Provisional)
                await self._events.put((index, event))
                if isinstance(event, Finished):
                    return
        except ApiError as failure:
            if not self._begun.done():
                self._begun.set_exception(failure)
                self._begun.exception()  # read here: the request may be gone and never ask
            await self._events.put((index, failure))

    async def _in_turn(self, place: Place) -> None:
        """Wait for a place; the patience is for the first one, after which the others' turns are sure to come."""
        try:
            async with asyncio.timeout(self._patience.place if place is self._places[0] else None):
                await place.reached()
        except TimeoutError:
            place.leave()
            raise busy() from None
