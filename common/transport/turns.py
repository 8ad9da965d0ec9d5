"""A thread that polls sockets and does the same steps over and over, and outlives their exceptions."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import zmq

from common.process.quiet_log import QuietLog
from common.process.vital import Died, vital_thread
from common.transport.signal import Signal

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 0.001  # seconds after a failed turn, doubled with each in a row: who fails must not spin
_LAST_PAUSE: Final = 0.1
_LOOK: Final = 1.0  # seconds between two looks whether the thread that is waited for has ended
_MOST: Final = 100  # failed turns in a row, some ten seconds: what fails that long doesn't mend itself


class Mishaps:
    """The exceptions that a thread outlives: counted, and logged now and then.

    Named, but not quoted: their text may repeat what a peer sent.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._lines = QuietLog(_LOG, clock)

    def note(self, where: str, error: Exception) -> None:
        """Count an exception, and log it unless others were just now."""
        self.count += 1
        if self._lines.tell(logging.ERROR, "%s failed with %s", where, type(error).__name__):
            _LOG.debug("The failure was:", exc_info=error)


class Part(Protocol):
    """The sockets of one purpose, and the steps that a turn has for them."""

    @property
    def sockets(self) -> Sequence[tuple[Any, int]]:
        """Sockets to be polled, each with the events."""

    @property
    def receiving(self) -> Sequence[Callable[[], None]]:
        """Steps that take in what has come."""

    @property
    def sending(self) -> Sequence[Callable[[], None]]:
        """Steps that send what the others, of any part, have to be sent, and look after the rest."""

    def deadline(self) -> float | None:
        """Time at which a turn is needed next (`time.monotonic`); None if only after an event."""

    def end(self) -> None:
        """Close the sockets: no turn comes any more."""


class Turns:
    """Runs turns of the steps of its parts on a vital thread until closed, then their ends.

    A step that raises does not keep the following ones from their turn. If turns go on failing, pauses grow, and
    at last the thread ends with the exception, of which `died` is told. Who gives the `signal` makes it take a turn.
    """

    def __init__(self, name: str, died: Died | None) -> None:
        self.mishaps = Mishaps()
        self.closing = threading.Event()
        self.signal = Signal()
        self.readable: dict[Any, int] = {}  # sockets on which there is something, in this turn
        self._parts: list[Part] = []
        self._asked: deque[Callable[[], None]] = deque()
        self._thread = vital_thread(self._run, name, died)

    def start(self) -> None:
        self._thread.start()

    def add(self, part: Part) -> None:
        """Have turns for a part from now on. Before the start, or on the thread."""
        self._parts.append(part)

    def remove(self, part: Part) -> None:
        """End a part, added or not. On the thread."""
        if part in self._parts:
            self._parts.remove(part)
        part.end()

    def ask(self, answer: Callable[[], None]) -> None:
        """Have the thread call `answer` at the end of a turn: it does its work. From any thread."""
        self._asked.append(answer)
        self.signal.give()

    def perform(self, task: Callable[[], None]) -> None:
        """Have the thread do it at the end of a turn, and wait for that, or for its end. From any other thread."""
        done = threading.Event()

        def do_it() -> None:
            task()
            done.set()

        self.ask(do_it)
        while not done.wait(_LOOK) and self._thread.is_alive():
            pass

    def close(self) -> None:
        """Stop and wait for the thread; from the thread itself, stop after this turn."""
        self.closing.set()
        if self._thread.ident is None:
            self._end()
        elif threading.current_thread() is not self._thread:
            self.signal.give()
            self._thread.join()

    def _run(self) -> None:
        failed = 0
        try:
            while not self.closing.is_set():
                failure = self._turn()
                failed = 0 if failure is None else failed + 1
                if failure is not None:
                    if failed > _MOST:
                        raise failure
                    self.closing.wait(min(_LAST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failed, 16)))
        finally:
            self._end()

    def _turn(self) -> Exception | None:
        """One turn; the last exception of it."""
        parts = list(self._parts)
        failure = self._guarded([self._wait])
        failure = self._guarded([step for part in parts for step in part.receiving]) or failure
        self.signal.lower()
        failure = self._guarded([step for part in parts for step in part.sending]) or failure
        while self._asked:
            self._asked.popleft()()
        return failure

    def _guarded(self, steps: Sequence[Callable[[], None]]) -> Exception | None:
        failure = None
        for step in steps:
            try:
                step()
            except Exception as error:
                self.mishaps.note(getattr(step, "__name__", "a step"), error)
                failure = error
        return failure

    def _wait(self) -> None:
        self.readable = {}
        sockets = [(self.signal.fileno(), zmq.POLLIN), *(each for part in self._parts for each in part.sockets)]
        self.readable = dict(zmq.zmq_poll(sockets, self._patience()))
        self.signal.take(self.signal.fileno() in self.readable)

    def _patience(self) -> int:
        """Milliseconds to sleep at most; -1 is until something happens."""
        times = [due for part in self._parts if (due := part.deadline()) is not None]
        return max(0, int((min(times) - time.monotonic()) * 1000) + 1) if times else -1

    def _end(self) -> None:
        for part in self._parts:
            part.end()
        self.signal.close()
