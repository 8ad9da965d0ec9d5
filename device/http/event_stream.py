"""One running answer, brought from the engine's thread to the event loop."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable

from common.methods.request import Request
from common.runtime.errors import AnswerFailed, RequestError
from device.http.errors import ApiError, answer_failed, engine_failed, reader_too_slow, stopping
from device.interface import AnswerEvent, Engine, Finished, Generation, Provisional

logger = logging.getLogger(__name__)


class _LoopClosed(Exception):
    """The event loop has ended, so nobody is left to read the answer."""


class EventStream:
    """A generation iterated by a thread of its own: neither the engine nor the loop waits for the other.

    All methods belong to the event loop. The thread never waits for the reader: what is not read yet is kept
    up to `unread_limit` events (None: all), beyond that the generation is cancelled. `Generation.cancel` is
    called on the event loop and must return at once. `on_end` is called on the loop when the generation has ended.
    """

    def __init__(
        self, engine: Engine, request: Request, unread_limit: int | None, on_end: Callable[[EventStream], None]
    ) -> None:
        self._engine = engine
        self._request = request
        self._unread_limit = unread_limit
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._unread: deque[AnswerEvent] = deque()
        self._arrived = asyncio.Event()
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._generation: Generation | None = None
        self._failure: ApiError | None = None
        self._cancelled = False
        self._ended = False
        threading.Thread(target=self._iterate, name="answer", daemon=True).start()

    async def begun(self) -> None:
        """Wait until the engine took the request. Raises `ApiError` when it refuses."""
        await asyncio.shield(self._begun)

    async def next(self) -> AnswerEvent:
        """The next event. Raises `ApiError`."""
        while not self._unread or self._cancelled:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                raise engine_failed()
            self._arrived.clear()
            await self._arrived.wait()
        return self._unread.popleft()

    def cancel(self, reason: ApiError | None = None) -> None:
        """End the generation at once; a reader that still waits gets `reason`."""
        if self._ended or self._cancelled:
            return
        self._cancelled = True
        self._on_failure(reason or stopping())
        if self._generation is not None:
            self._generation.cancel()

    def _iterate(self) -> None:
        """Run on the thread: every event is handed to the loop."""
        generation: Generation | None = None
        try:
            try:
                generation = self._engine.generate(self._request)
                self._hand_over(self._on_begun, generation)
                for event in generation:
                    self._hand_over(self._on_event, event)
            except _LoopClosed:
                raise
            except Exception as error:
                self._hand_over(self._on_failure, _as_refusal(error))
            self._hand_over(self._on_exhausted)
        except _LoopClosed:
            if generation is not None:
                generation.cancel()

    def _hand_over(self, callback: Callable[..., None], *values: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *values)
        except RuntimeError as error:
            raise _LoopClosed from error

    def _on_begun(self, generation: Generation) -> None:
        self._generation = generation
        if self._cancelled:
            generation.cancel()
        if not self._begun.done():
            self._begun.set_result(None)

    def _on_event(self, event: AnswerEvent) -> None:
        if self._cancelled:
            return
        if self._unread and isinstance(self._unread[-1], Provisional):
            self._unread.pop()  # what comes now takes it back
        if self._unread_limit is not None and len(self._unread) >= self._unread_limit:
            self.cancel(reader_too_slow())
            return
        if isinstance(event, Finished) and event.reason == "cancelled":
            self._on_failure(stopping())
            return
        self._unread.append(event)
        self._arrived.set()

    def _on_failure(self, failure: ApiError) -> None:
        self._failure = self._failure or failure
        self._arrived.set()
        if not self._begun.done():
            self._begun.set_exception(failure)
            self._begun.exception()  # read here: the request may be gone and never ask

    def _on_exhausted(self) -> None:
        self._ended = True
        self._arrived.set()
        self._on_end(self)


def _as_refusal(error: Exception) -> ApiError:
    if isinstance(error, RequestError):
        return ApiError(400, str(error), param=error.field, code="invalid_value")
    if isinstance(error, AnswerFailed):
        return answer_failed(str(error))
    # Where it happened, never what it says: the text of an error can hold a prompt or a document.
    where = "".join(traceback.format_tb(error.__traceback__))
    logger.error("the engine raised %s\n%s", type(error).__name__, where)
    return engine_failed()
