"""A thread for what answers need done beside decoding; what a task raises goes to the answer it was for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from common.runtime.errors import AnswerFailed
from common.runtime.failures import as_failure

STOPPING = "The daemon is stopping."

Failed = Callable[[Exception], object]  # told why an answer can't go on: `AnswerFailed` or `RequestError`


class TaskThread:
    """Runs tasks one after another, in the order in which they came."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def submit(self, run: Callable[[], object], failed: Failed) -> None:
        """Call `run` on the thread, from any other; `failed` is told, as one of the answer's failures, what it raises.

        A thread that is closed tells `failed` at once.
        """
        try:
            self._pool.submit(_guarded, run, failed)
        except RuntimeError:
            failed(AnswerFailed(STOPPING))

    def close(self) -> None:
        """Finish the task that is under way; the others are dropped."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _guarded(run: Callable[[], object], failed: Failed) -> None:
    try:
        run()
    except Exception as error:
        failed(as_failure(error))
