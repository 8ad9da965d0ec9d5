"""A thread for the work of answers besides decoding, such as retrieval; a task's exception goes to its answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

from common.answer.errors import AnswerFailed
from common.daemon.failures import as_failure
from common.daemon.turns import ByTurns
from common.process.vital import Died, vital_thread

STOPPING = "The daemon is stopping."

Failed = Callable[[Exception], object]  # told why an answer can't go on: `AnswerFailed` or `RequestError`


class TaskThread:
    """Runs tasks one at a time: each owner's in their order, the owners by turns."""

    def __init__(self, name: str, died: Died | None = None) -> None:
        self._waiting = ByTurns[tuple[Callable[[], object], Failed]]()
        self._changed = threading.Condition()
        self._closing = False
        self._thread = vital_thread(self._run, name, died)
        self._thread.start()

    def submit(self, owner: Hashable, run: Callable[[], object], failed: Failed) -> None:
        """Queue `run` for the thread, from any other. An exception in it is passed to `failed`; see `as_failure`.

        On a closed thread `failed` is called at once.
        """
        with self._changed:
            closing = self._closing
            if not closing:
                self._waiting.add(owner, (run, failed))
                self._changed.notify()
        if closing:
            failed(AnswerFailed(STOPPING))

    def close(self) -> None:
        """Finish the task that is under way; the others are dropped."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            run, failed = task
            try:
                run()
            except Exception as error:
                failed(as_failure(error))
            del task, run, failed  # what they hold is not kept until the next one comes

    def _next(self) -> tuple[Callable[[], object], Failed] | None:
        """The next task; None when the thread is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._waiting)
            return None if self._closing else self._waiting.take(next(iter(self._waiting)))
