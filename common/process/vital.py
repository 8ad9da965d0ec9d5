"""Threads that a daemon can't serve without: when one ends by an exception, so does the process, and says so.

A daemon that lives and serves nobody is worse than one that ended: nothing starts it again.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

THREAD_DIED = 70  # exit code; EX_SOFTWARE of sysexits.h

_LOG = logging.getLogger(__name__)

Died = Callable[[str, BaseException], None]  # told of the thread's name and of what ended it, on that thread


def end_process(name: str, error: BaseException) -> NoReturn:
    """End the process at once, with one line on stderr; what is on disk is safe at any moment.

    The error is named, but not quoted: its text may repeat what a peer sent.
    """
    _LOG.debug("The failure was:", exc_info=error)
    print(
        f"dragon: the thread {name!r} failed with {type(error).__name__}; the daemon stops.",
        file=sys.stderr,
        flush=True,
    )
    # Not sys.exit: it would end this thread only, and the orderly way down waits for threads, this one among them.
    os._exit(THREAD_DIED)


def vital_thread(run: Callable[[], None], name: str, died: Died | None = None) -> threading.Thread:
    """A daemon thread that runs `run`; `died` is told of the exception that ends it.

    Without `died` the exception goes where those of other threads go. Daemons pass `end_process`.
    """

    def guarded() -> None:
        try:
            run()
        except BaseException as error:
            if died is None:
                raise
            died(name, error)

    return threading.Thread(target=guarded, name=name, daemon=True)
