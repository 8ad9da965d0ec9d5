"""The words that a daemon has for the service manager that started it: systemd's protocol, see sd_notify(3).

Each message is a datagram of lines NAME=VALUE to the socket that the variable NOTIFY_SOCKET names. Where there is none,
nothing is sent.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import MutableMapping
from typing import Final, Self

_PATIENCE: Final = 1.0  # seconds; a manager that does not read must not hold the daemon
_LONGEST: Final = 512  # characters of a status

log = logging.getLogger(__name__)


class ServiceManager:
    """Tells the manager how far the daemon is. No method raises or takes longer than a second."""

    def __init__(self, address: str | None = None, watchdog: float | None = None) -> None:
        """Without an `address` nobody is told. `watchdog`: seconds within which the manager wants signs of life."""
        self._address = address
        self._untold: tuple[str, ...] = ()  # that the daemon serves, which the manager did not take in
        self.watchdog = watchdog if address else None

    @classmethod
    def of(cls, environment: MutableMapping[str, str]) -> Self:
        """The manager that the environment names, without whose variables it is left: children must not speak."""
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds = environment.pop("WATCHDOG_USEC", "")
        process = environment.pop("WATCHDOG_PID", "")
        ours = microseconds.isdecimal() and int(microseconds) > 0 and process in ("", str(os.getpid()))
        # A path, or a name of Linux's own for sockets; anything else is of a manager that is not known here.
        known = sys.platform != "win32" and address.startswith(("/", "@"))
        return cls(address if known else None, int(microseconds) / 1e6 if ours else None)

    def status(self, text: str) -> None:
        """Say in one line what the daemon is doing; `systemctl status` shows it."""
        self._tell(_status(text))

    def ready(self, text: str) -> None:
        """Say that the daemon serves from now on, and what `status` says; with the next sign of life again, if a
        manager that is busy does not take it in: it would end a daemon that it takes to be starting for ever.
        """
        lines = ("READY=1", _status(text))
        self._untold = () if self._tell(*lines) else lines

    def alive(self) -> None:
        """Say that the daemon works."""
        if self._tell("WATCHDOG=1", *self._untold):
            self._untold = ()

    def stopping(self) -> None:
        """Say that the daemon is about to end."""
        self._tell("STOPPING=1", "STATUS=stopping")

    def _tell(self, *lines: str) -> bool:
        """Whether the manager has taken the lines in."""
        if self._address is None:
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaker:
                speaker.settimeout(_PATIENCE)
                speaker.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            log.debug("the service manager can't be told %s: %s", lines[0], error)
            return False
        return True


def _status(text: str) -> str:
    """The line of a status."""
    return f"STATUS={' '.join(text.split())[:_LONGEST]}"
