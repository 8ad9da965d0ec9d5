"""A thread for the work of answers besides decoding, such as retrieval; a task's exception goes to its answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from common.answer.errors import AnswerFailed
from common.daemon.failures import as_failure

STOPPING = "The daemon is stopping."

Failed = Callable[[Exception], object]  # told why an answer can't go on: `AnswerFailed` or `RequestError`


class TaskThread:
    """Runs tasks one after another, in the order in which they came."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)

    def submit(self, run: Callable[[], object], failed: Failed) -> None:
        """Queue `run` for the thread, from any other. An exception in it is passed to `failed`; see `as_failure`.

        On a closed thread `failed` is called at once.
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
