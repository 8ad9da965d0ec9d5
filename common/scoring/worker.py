"""The daemon's scoring thread for a slow model."""

from __future__ import annotations

import logging
import statistics
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from common.answer.request import AnswerFailed

log = logging.getLogger(__name__)

CAPACITY = 256  # waiting requests; losing one only costs its answer a wait
_RECENT = 4096  # calls with kept times


class ScoringError(AnswerFailed):
    """Scoring of an answer's documents failed. The text is one sentence for the user."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class ScoringRequest:
    """Scores [docs] to compute once, on the scoring thread."""

    compute: Callable[[], NDArray[np.float64]]
    done: threading.Event = field(default_factory=threading.Event)
    scores: NDArray[np.float64] | None = None
    awaited: list[Callable[[], None]] = field(default_factory=list)  # called when it is done


@dataclass(frozen=True, slots=True)
class ScoringCost:
    """Cost of scoring so far. Seconds are wall-clock time."""

    calls: int = 0
    dropped: int = 0  # requests outdated before their turn
    call_seconds: float = 0.0  # median call
    first_waits: int = 0  # before an answer's first token; meanwhile only the prompt can be read
    first_seconds: float = 0.0
    waits: int = 0  # at later positions: the model exceeded a period, or a draft was rolled back
    wait_seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.calls} calls of {1e3 * self.call_seconds:.1f} ms (median), {self.dropped} outdated ones dropped, "
            f"{self.first_waits} waits of {1e3 * self.first_seconds:.0f} ms in all at first tokens, "
            f"{self.waits} waits of {1e3 * self.wait_seconds:.0f} ms in all at later ones"
        )


class ScoringThread:
    """Computes awaited scores first, then those needed a period later. Thread-safe.

    Early requests are weak references: those of a finished answer are never computed.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._awaited: deque[ScoringRequest] = deque()
        self._ahead: deque[weakref.ref[ScoringRequest]] = deque()
        self._running: ScoringRequest | None = None
        self._changed = threading.Condition()
        self._closing = False
        self._call_seconds: deque[float] = deque(maxlen=_RECENT)
        self._calls = self._dropped = self._first_waits = self._waits = 0
        self._first_seconds = self._wait_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="scoring", daemon=True)
        self._thread.start()

    @property
    def cost(self) -> ScoringCost:
        with self._changed:
            return ScoringCost(
                self._calls,
                self._dropped,
                statistics.median(self._call_seconds) if self._call_seconds else 0.0,
                self._first_waits,
                self._first_seconds,
                self._waits,
                self._wait_seconds,
            )

    def ahead(self, request: ScoringRequest) -> None:
        """Queues a request for free time. Beyond the capacity, drops the oldest."""
        with self._changed:
            if request is self._running or request.done.is_set():
                return
            if len(self._ahead) >= self._capacity:
                self._ahead.popleft()
                self._dropped += 1
            self._ahead.append(weakref.ref(request))
            self._changed.notify_all()

    def drop(self, request: ScoringRequest) -> None:
        """Removes an outdated request from the queue, unless it is running. It may return."""
        with self._changed:
            if self._forget(request):
                self._dropped += 1

    def result(self, request: ScoringRequest, first: bool = False) -> NDArray[np.float64]:
        """Returns the request's scores, computed next if needed.

        `first`: before an answer's first token. Raises `ScoringError` if they can't be computed.
        """
        if not request.done.is_set():
            self._wait(request, first)
        if request.scores is None:
            raise ScoringError(
                "The daemon is stopping."
                if self._closing
                else "The documents could not be scored; the daemon's log says why."
            )
        return request.scores

    def await_soon(self, request: ScoringRequest, wake: Callable[[], None], first: bool = False) -> bool:
        """As `ScoringRun.ready`, for `result`."""
        with self._changed:
            if request.done.is_set() or self._closing:
                return True
            if not request.awaited:
                request.awaited.append(partial(self._waited, time.perf_counter(), first))
                self._forget(request)
                if request is not self._running:
                    self._awaited.append(request)
                    self._changed.notify_all()
            request.awaited.append(wake)
        return False

    def close(self) -> None:
        """Finishes the running call. Other waiting readers get an error."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _wait(self, request: ScoringRequest, first: bool) -> None:
        started = time.perf_counter()
        with self._changed:
            if self._closing:
                return
            self._forget(request)
            if request is not self._running and not request.done.is_set():
                self._awaited.append(request)
                self._changed.notify_all()
        request.done.wait()
        self._waited(started, first)

    def _waited(self, started: float, first: bool) -> None:
        seconds = time.perf_counter() - started
        with self._changed:
            if first:
                self._first_waits, self._first_seconds = self._first_waits + 1, self._first_seconds + seconds
            else:
                self._waits, self._wait_seconds = self._waits + 1, self._wait_seconds + seconds

    def _forget(self, request: ScoringRequest) -> bool:
        """Returns whether the request was queued. Under the lock."""
        held = [reference for reference in self._ahead if reference() is not request]
        found = len(held) < len(self._ahead)
        self._ahead = deque(held)
        return found

    def _run(self) -> None:
        while (request := self._next()) is not None:
            started = time.perf_counter()
            try:
                request.scores = request.compute()
            except Exception:
                log.exception("scoring failed")
            seconds = time.perf_counter() - started
            with self._changed:
                self._running = None
                self._calls += 1
                self._call_seconds.append(seconds)
                request.done.set()
            for wake in request.awaited:
                wake()
            del request  # or it would live until the next one

    def _next(self) -> ScoringRequest | None:
        with self._changed:
            while not self._closing:
                self._running = self._take()
                if self._running is not None:
                    return self._running
                self._changed.wait()
            for request in self._awaited:
                request.done.set()
                for wake in request.awaited[1:]:  # the first callback counts a wait, which did not happen
                    wake()
            return None

    def _take(self) -> ScoringRequest | None:
        if self._awaited:
            return self._awaited.popleft()
        while self._ahead:
            if (request := self._ahead.popleft()()) is not None:
                return request
            self._dropped += 1
        return None
