"""Answers of an engine in this process, for a thread that waits for them."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from common.answer.request import Request
from device.interface import AnswerEvent, Engine, Finished, Generation


class Iterated:
    """A generation and its events, the last of which is `Finished`. Iterating raises what the answer fails with."""

    def __init__(self, engine: Engine, request: Request) -> None:
        """Raises `RequestError` for input that can't be served."""
        self._events: queue.SimpleQueue[AnswerEvent | Exception] = queue.SimpleQueue()
        self.generation: Generation = engine.generate(request, self._events.put)

    def __iter__(self) -> Iterator[AnswerEvent]:
        while True:
            event = self._events.get()
            if isinstance(event, Exception):
                raise event
            yield event
            if isinstance(event, Finished):
                return

    def cancel(self) -> None:
        self.generation.cancel()
