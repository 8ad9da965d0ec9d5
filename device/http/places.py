"""Places for answers: so many run at a time, some more wait their turn, the rest are told to come again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from device.http.errors import ApiError, busy, too_many_answers


class AnswerSlot:
    """One answer's place, in line until it is `reached`. All methods belong to the event loop."""

    def __init__(self, left: Callable[[AnswerSlot], None]) -> None:
        self._left = left
        self._turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def reached(self) -> None:
        """Wait for the turn. Raises what `refuse` was given."""
        await asyncio.shield(self._turn)

    def call(self) -> None:
        """Say that it is this one's turn."""
        if not self._turn.done():
            self._turn.set_result(None)

    def refuse(self, reason: ApiError) -> None:
        """Say that its turn will not come."""
        if not self._turn.done():
            self._turn.set_exception(reason)
            self._turn.exception()  # read here: the request may be gone and never ask
        self.leave()

    def leave(self) -> None:
        """Make room; calling it again does nothing."""
        self._left(self)


class AnswerSlots:
    """First come, first served."""

    def __init__(self, most_active: int, most_waiting: int) -> None:
        self._most_active = most_active
        self._most = most_active + most_waiting
        self._line: list[AnswerSlot] = []  # in the order in which they came: it is the turn of the first ones

    @property
    def waiting(self) -> int:
        """Number of those whose turn has not come."""
        return max(0, len(self._line) - self._most_active)

    def check(self, count: int) -> None:
        """Raise `ApiError` (400) for more answers than there ever are places."""
        if count > self._most:
            raise too_many_answers(count, self._most)

    def take(self, count: int) -> tuple[AnswerSlot, ...]:
        """Places for the `count` answers of one request. Raises `ApiError`: 429; 400 for more than there ever are."""
        self.check(count)
        if len(self._line) + count > self._most:
            raise busy()
        places = tuple(AnswerSlot(self._leave) for _ in range(count))
        self._line.extend(places)
        self._call()
        return places

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A block that has a place of its own; it begins when its turn comes. Raises `ApiError`."""
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
