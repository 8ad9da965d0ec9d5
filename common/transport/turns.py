"""A thread that does the same steps over and over, and outlives their exceptions."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from common.process.quiet_log import QuietLog
from common.process.vital import Died, vital_thread

_LOG = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 0.001  # seconds after a failed turn, doubled with each in a row: who fails must not spin
_LAST_PAUSE: Final = 0.1
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


class Turns:
    """Runs turns of `steps` on a vital thread until closed, then `end`.

    A step that raises does not keep the following ones from their turn. If turns go on failing, pauses grow, and
    at last the thread ends with the exception, of which `died` is told. `wake` makes a step that waits return.
    """

    def __init__(
        self,
        name: str,
        steps: Sequence[Callable[[], None]],
        wake: Callable[[], None],
        end: Callable[[], None],
        died: Died | None,
    ) -> None:
        self.mishaps = Mishaps()
        self.closing = threading.Event()
        self._steps = steps
        self._wake = wake
        self._asked: deque[Callable[[], None]] = deque()
        self._end = end
        self._thread = vital_thread(self._run, name, died)

    def start(self) -> None:
        self._thread.start()

    def ask(self, answer: Callable[[], None]) -> None:
        """Have the thread call `answer` at the end of a turn: it does its work. From any thread."""
        self._asked.append(answer)
        self._wake()

    def close(self) -> None:
        """Stop and wait for the thread; from the thread itself, stop after this turn."""
        self.closing.set()
        if self._thread.ident is None:
            self._end()
        elif threading.current_thread() is not self._thread:
            self._wake()
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
        failure = None
        for step in self._steps:
            try:
                step()
            except Exception as error:
                self.mishaps.note(getattr(step, "__name__", "a step"), error)
                failure = error
        while self._asked:
            self._asked.popleft()()
        return failure
