"""A thread for the work of answers besides decoding, such as retrieval; a task's exception goes to its answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from common.answer.errors import AnswerFailed
from common.daemon.failures import as_failure
from common.daemon.turns import TurnsThread

STOPPING = "The daemon is stopping."

Failed = Callable[[Exception], object]  # told why an answer can't go on: `AnswerFailed` or `RequestError`

_Task = tuple[Callable[[], object], Failed]


class TaskThread(TurnsThread[_Task]):
    """Runs tasks one at a time: each owner's in their order, the owners by turns."""

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

    def _serve(self, owner: Hashable, item: _Task) -> None:
        run, failed = item
        try:
            run()
        except Exception as error:
            failed(as_failure(error))
