"""Network namespaces without names: each lives as long as a descriptor or a process holds it, and leaves no trace.

Which namespace a socket or a new process belongs to is a property of the thread that makes it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

CLONE_NEWNET = 0x40000000  # of <linux/sched.h>; os.setns and os.unshare came with Python 3.12

NOT_PERMITTED = (
    "The network lab needs Linux, and either root or user namespaces: run it as root, or let users make namespaces "
    "(sysctl user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)"
)


class Unavailable(RuntimeError):
    """The network lab can't run on this machine; the text is one sentence that says why."""


class Namespace:
    """A network namespace with its loopback interface up and nothing else in it. Close it after use.

    Raises `Unavailable`.
    """

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
            raise Unavailable(f"{NOT_PERMITTED} ({failures[0].strerror}).")
        self.descriptor = made[0]
        try:
            self.configure(["link set lo up"])
        except BaseException:
            self.close()
            raise

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

    def run(self, command: list[str], text: str = "", descriptors: tuple[int, ...] = ()) -> str:
        """Run a command in here with `text` as its input; returns what it printed.

        Raises `Unavailable` where it is not installed, `subprocess.CalledProcessError` where it fails.
        """
        with self.entered():
            try:
                done = subprocess.run(
                    command, input=text, pass_fds=descriptors, capture_output=True, text=True, check=True
                )
            except FileNotFoundError:
                raise Unavailable(f"The network lab needs the command {command[0]}: install iproute2.") from None
        return done.stdout

    def configure(self, lines: list[str], descriptors: tuple[int, ...] = ()) -> None:
        """Carry out lines of `ip`. Raises `Unavailable`."""
        try:
            self.run(["ip", "-batch", "-"], "\n".join(lines) + "\n", descriptors)
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"The network lab can't set up an interface: {error.stderr.strip()}.") from None

    def close(self) -> None:
        """Give up this process's hold on it."""
        os.close(self.descriptor)


def become_root() -> None:
    """Start this process again in a user namespace if it may not make network namespaces here.

    Call it before anything has happened: the program then begins anew, cut off from every network. Raises
    `Unavailable`.
    """
    try:
        Namespace().close()
        return
    except Unavailable:
        # A process with threads can't enter a user namespace itself, and numpy starts some when it is imported.
        entering = ["unshare", "--user", "--map-root-user", "--net"]
        if os.geteuid() == 0 or shutil.which(entering[0]) is None:
            raise
        if subprocess.run([*entering, "true"], capture_output=True).returncode != 0:
            raise
    os.execvp(entering[0], [*entering, sys.executable, *sys.orig_argv[1:]])


def current() -> int:
    """A new descriptor of the calling thread's namespace, for the caller to close. Raises `OSError` where there is
    none."""
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
