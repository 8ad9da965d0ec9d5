"""Slots for answers: some run, some wait, the rest are refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from device.http.errors import ApiError, busy, too_many_answers


class AnswerSlot:
    """One answer's slot. For the event loop."""

    def __init__(self, left: Callable[[AnswerSlot], None]) -> None:
        self._left = left
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def reached(self) -> None:
        """Waits for its turn. Raises the reason of `refuse`."""
        await asyncio.shield(self._turn)

    def call(self) -> None:
        if not self._turn.done():
            self._turn.set_result(None)

    def refuse(self, reason: ApiError) -> None:
        if not self._turn.done():
            self._turn.set_exception(reason)
            self._turn.exception()  # retrieved: the request may never ask
        self.leave()

    def leave(self) -> None:
        """Frees the slot. Idempotent."""
        self._left(self)


class AnswerSlots:
    """Slots in order of arrival."""

    def __init__(self, most_active: int, most_waiting: int) -> None:
        self._most_active = most_active
        self._most = most_active + most_waiting
        self._line: list[AnswerSlot] = []  # in order of arrival; the first have their turn

    @property
    def waiting(self) -> int:
        return max(0, len(self._line) - self._most_active)

    def check(self, count: int) -> None:
        """Raises `ApiError` (400) if never possible."""
        if count > self._most:
            raise too_many_answers(count, self._most)

    def take(self, count: int) -> tuple[AnswerSlot, ...]:
        """Returns a request's slots. Raises `ApiError`: 429, or 400 if never possible."""
        self.check(count)
        if len(self._line) + count > self._most:
            raise busy()
        places = tuple(AnswerSlot(self._leave) for _ in range(count))
        self._line.extend(places)
        self._call()
        return places

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Runs a block in a slot of its own. Raises `ApiError`."""
        (place,) = self.take(1)
        try:
            await place.reached()
            yield
        finally:
            place.leave()

    def _leave(self, place: AnswerSlot) -> None:
        if place in self._line:
            self._line.remove(place)
            self._call()

    def _call(self) -> None:
        for place in self._line[: self._most_active]:
            place.call()
