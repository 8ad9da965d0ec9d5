"""The end of a daemon that is told to stop, by SIGTERM or SIGINT: in order, and within seconds, whatever it is doing.

    with stopping():                    # from before anything is loaded
        with ExitStack() as stack:      # what is begun says here how it ends, the latest first
            ...
            until_told()

Being told raises `Stopped` on the main thread, so that what this thread is within, an import of a model for example,
is left as any block is. A thread of its own sees to it that this does not take forever: no library holds the process.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
LONGEST: Final = 1.5  # seconds for an end in order; whoever stops a daemon may count on 2
KILLED: Final = 128  # and the signal's number: exit code of a process that did not end in order

_STDERR: Final = 2


class Stopped(BaseException):
    """The process has been told to stop. Raised on the main thread, once, wherever that is."""


@contextmanager
def stopping() -> Iterator[None]:
    """A block of the main thread with which the process ends: at once behind it, and when a signal says so.

    The exit code is 0, or what a `SystemExit` says. When the end takes longer than `LONGEST` seconds, or a second
    signal comes, the process ends where it is, with the exit code that shells give to one that the signal killed. Any
    other exception gets out, and takes its way.
    """
    told = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal told
        if not told:
            told = True
            raise Stopped

    # The interpreter runs `on_signal` when the main thread has time for it; what it writes here is read at once.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reader,), name="stopping", daemon=True).start()
    code: object = 0
    try:
        for number in SIGNALS:
            signal.signal(number, on_signal)
        yield
    except Stopped:
        pass
    except SystemExit as failure:
        code = failure.code
    except BaseException:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_DFL)  # threads may keep the process
        signal.set_wakeup_fd(before)
        raise
    told = True
    _end(code if isinstance(code, int) else 0 if code is None else 1)


def until_told() -> NoReturn:
    """Wait for `Stopped`."""
    while True:
        threading.Event().wait()


def within(seconds: float, close: Callable[[], None]) -> None:
    """Run `close` and go on when it is done, or when so many seconds have passed: it goes on beside what follows."""
    thread = threading.Thread(target=close, name="closing", daemon=True)
    thread.start()
    thread.join(seconds)


def _end(code: int) -> NoReturn:
    """End the process, its log written. Not by `sys.exit`, which waits for all threads, those of libraries, too."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def _watch(reader: int) -> None:
    """End the process when it was told a second time, or is not done long after the first."""
    first = _told(reader, None)
    assert first is not None
    second = _told(reader, LONGEST)
    # Whoever reads stderr may be what everybody waits for.
    if second is None and select.select([], [_STDERR], [], 0)[1]:
        os.write(_STDERR, f"dragon: stopping took longer than {LONGEST:g} s; the process ends where it is.\n".encode())
    os._exit(KILLED + (second or first))


def _told(reader: int, seconds: float | None) -> int | None:
    """The number of the next signal; None where none comes in so many seconds."""
    while select.select([reader], [], [], seconds)[0]:
        if (number := os.read(reader, 1)[0]) in SIGNALS:
            return number
    return None
