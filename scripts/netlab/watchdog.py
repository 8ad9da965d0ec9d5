"""Ends every process in the lab's namespaces when the lab closes, or when its process dies, however it dies.

Namespaces without processes and descriptors vanish, so nothing is left after a kill -9.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Collection

from scripts.netlab.helper import Helper, Parent
from scripts.netlab.namespaces import Namespace

Identity = tuple[int, int]  # device and inode of a namespace


def start_watchdog(namespaces: Collection[Namespace]) -> Helper:
    """Closing it ends all processes in there but the caller's own."""
    return Helper("scripts.netlab.watchdog", [each.descriptor for each in namespaces], (str(os.getpid()),))


def members(namespaces: Collection[Identity]) -> list[int]:
    """Processes whose first thread is in one of them."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and _network(name) in namespaces]


def end_members(namespaces: Collection[Identity], spared: int | None) -> None:
    """kill -9 everything in there, until nothing is left; `spared` is a process that may stay."""
    while found := [pid for pid in members(namespaces) if pid != spared]:
        for pid in found:
            try:
                process = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            try:
                # Looked at again now that the number can't come to mean another process.
                if _network(str(pid)) in namespaces:
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    select.select([process], [], [])
            except ProcessLookupError:
                pass
            finally:
                os.close(process)


def identity(descriptor: int) -> Identity:
    """Identity of the namespace that an open descriptor stands for."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _network(pid: str) -> Identity | None:
    try:
        found = os.stat(f"/proc/{pid}/ns/net")
    except OSError:  # it has ended, or is somebody else's
        return None
    return found.st_dev, found.st_ino


def main() -> None:
    parent = Parent(sys.argv[1:], descriptors=2)
    select.select([parent.socket.fileno(), parent.process], [], [])
    spared = int(parent.arguments[0]) if parent.alive() else None
    end_members({identity(descriptor) for descriptor in parent.descriptors}, spared)


if __name__ == "__main__":
    main()
