"""The signal that something is to be done by a thread which polls."""

from __future__ import annotations

import contextlib
import socket


class Signal:
    """Wakes the one thread that polls `fileno()`, from any thread; while it works, nobody has to.

    No wake-up is lost: who gives the signal puts his work where it is looked for first, and the thread looks behind
    `lower`. Either the giver sees the lowered signal and wakes it, or it sees the work.
    """

    def __init__(self) -> None:
        self._given = False
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)

    def fileno(self) -> int:
        return self._receiver.fileno()

    def give(self) -> None:
        """Make `fileno()` readable, unless the thread will look anyway."""
        if not self._given:
            self._given = True
            # A full buffer is a signal already; a closed one has no reader left.
            with contextlib.suppress(OSError):
                self._sender.send(b"\0")

    def take(self, readable: bool) -> None:
        """Begin a turn: until `lower` nobody wakes the thread. On the thread, which knows whether it is `readable`."""
        self._given = True
        if readable:
            with contextlib.suppress(BlockingIOError):
                self._receiver.recv(4096)

    def lower(self) -> None:
        """Before the thread looks for work, behind which it may sleep. On the thread."""
        self._given = False

    def close(self) -> None:
        self._receiver.close()
        self._sender.close()
