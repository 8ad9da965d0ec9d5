"""Signs of life for the service manager: they come from the threads that do a daemon's work, or not at all."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Final, Protocol, Self

from common.process.vital import Died, vital_thread

Ask = Callable[[Callable[[], None]], object]  # has a thread call the function, between two pieces of its work

SHARE: Final = 4  # signs of life within the time that the manager allows for one
_LOOK: Final = 0.5  # seconds between two looks whether the daemon ends

log = logging.getLogger(__name__)


class Manager(Protocol):
    """Whoever wants signs of life."""

    @property
    def watchdog(self) -> float | None:
        """Seconds within which one is wanted; None: never."""
        ...

    def alive(self) -> object:
        """Take a sign of life."""
        ...


class Watchdog:
    """Asks threads again and again whether they work, and tells the manager each time when all have answered.

    A context manager. Where the manager wants no signs of life, no thread is begun. One that hangs makes the signs end,
    and the manager start the daemon anew; the log names it before.
    """

    def __init__(self, manager: Manager, threads: Mapping[str, Ask], died: Died | None = None) -> None:
        """`threads`: ways to ask them, by the names that the log has for them."""
        self._manager = manager
        self._threads = dict(threads)
        self._closing = threading.Event()
        self._allowed = manager.watchdog
        self._thread = vital_thread(self._run, "watchdog", died)

    def __enter__(self) -> Self:
        if self._allowed is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Not joined: it holds nothing, and may be waiting for a thread that hangs.
        self._closing.set()

    def _run(self) -> None:
        assert self._allowed is not None
        while not self._closing.is_set():
            answers = {name: threading.Event() for name in self._threads}
            try:
                for name, ask in self._threads.items():
                    ask(answers[name].set)
            except Exception:
                if self._closing.is_set():  # then threads end, and can't be asked
                    return
                raise
            deadline = time.monotonic() + self._allowed / 2
            for name, answer in answers.items():
                self._wait(name, answer, deadline)
            if not self._closing.is_set():
                self._manager.alive()
            self._closing.wait(self._allowed / SHARE)

    def _wait(self, name: str, answer: threading.Event, deadline: float) -> None:
        """Wait until the thread has answered or the daemon ends; at the deadline, the log says who did not."""
        told = False
        while not answer.wait(_LOOK) and not self._closing.is_set():
            if not told and time.monotonic() > deadline:
                told = True
                log.warning("the thread %r does not answer; if that stays so, the daemon is started anew", name)
