"""Network namespaces without names: each lives as long as a descriptor or a process holds it, and leaves no trace.

Which namespace a socket or a new process belongs to is a property of the thread that makes it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000  # of <linux/sched.h>; os.setns and os.unshare came with Python 3.12


class Unavailable(RuntimeError):
    """This machine has no netem for the network lab; the text is one sentence that says why."""


class Namespace:
    """A network namespace with nothing in it. Close it after use. Raises `Unavailable`."""

    def __init__(self) -> None:
        made: list[int] = []
        failures: list[OSError] = []

        def make() -> None:
            try:
                _call("unshare", CLONE_NEWNET)
                made.append(current())
            except OSError as error:
                failures.append(error)

        # A thread of its own: what it leaves is the only one that this process is in.
        thread = threading.Thread(target=make, name="new network namespace")
        thread.start()
        thread.join()
        if failures:
            raise Unavailable(f"Network namespaces need Linux and root: {failures[0].strerror}.")
        self.descriptor = made[0]

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The calling thread is in here, and so are the processes and threads that it starts meanwhile."""
        before = current()
        try:
            enter(self.descriptor)
            try:
                yield
            finally:
                enter(before)
        finally:
            os.close(before)

    def run(self, command: list[str], text: str = "", descriptors: tuple[int, ...] = ()) -> None:
        """Run a command in here with `text` as its input. Raises `Unavailable` with what it complained about."""
        try:
            with self.entered():
                subprocess.run(command, input=text, pass_fds=descriptors, capture_output=True, text=True, check=True)
        except FileNotFoundError:
            raise Unavailable(f"The command {command[0]} is missing: install iproute2.") from None
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"{' '.join(command)} failed: {error.stderr.strip()}.") from None

    def close(self) -> None:
        """Give up this process's hold on it."""
        os.close(self.descriptor)


def current() -> int:
    """A new descriptor of the calling thread's namespace, for the caller to close. Raises `OSError` without one."""
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def enter(descriptor: int) -> None:
    """Move the calling thread into the namespace of `descriptor`. Raises `OSError`."""
    _call("setns", descriptor, CLONE_NEWNET)


def _call(name: str, *arguments: int) -> None:
    """One of libc's functions. Raises `OSError`."""
    function = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
