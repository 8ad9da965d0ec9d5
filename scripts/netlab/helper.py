"""Processes that serve the lab and end with it: when it closes them, or when its process dies, however it dies."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LONGEST_MESSAGE = 4096
PATIENCE = 10.0  # seconds for an answer, or for ending


class LabFailed(RuntimeError):
    """A part of the network lab stopped working; the text is one sentence."""


class Helper:
    """The parent's side of such a process: `module`, run with these descriptors, one message answered by one."""

    def __init__(self, module: str, descriptors: list[int], arguments: tuple[str, ...] = ()) -> None:
        self._module = module
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(PATIENCE)
        # The end of the socket would not tell: a fork of this process may keep it open.
        parent = os.pidfd_open(os.getpid())
        handed = [parent, *descriptors]
        command = [sys.executable, "-m", module, *map(str, handed), *arguments]
        try:
            with theirs:
                self.process = subprocess.Popen(
                    command,
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    pass_fds=handed,
                    cwd=ROOT,
                    env=os.environ | {"PYTHONPATH": str(ROOT)},
                    start_new_session=True,  # Ctrl-C is for the lab's process, which then ends this one
                )
        except BaseException:
            self._socket.close()
            raise
        finally:
            os.close(parent)

    def ask(self, message: bytes) -> bytes:
        """Raises `LabFailed` when no answer comes."""
        try:
            self._socket.send(message)
            answer = self._socket.recv(LONGEST_MESSAGE)
        except OSError:
            answer = b""
        if not answer:
            raise LabFailed(f"The process {self._module} of the network lab has ended or hangs.")
        return answer

    def close(self) -> None:
        """Ask it to end, and wait for that."""
        with contextlib.suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Parent:
    """The other side, in the process that `Helper` started: what to wait for, and what was handed over."""

    def __init__(self, arguments: list[str], descriptors: int) -> None:
        self.process, *self.descriptors = map(int, arguments[: 1 + descriptors])
        self.arguments = arguments[1 + descriptors :]
        self.socket = socket.socket(fileno=0)
        self.socket.setblocking(True)

    def receive(self, ready: list[int]) -> bytes | None:
        """The message that made one of `ready` ready; None when it is time to end."""
        if self.process in ready:
            return None
        try:
            return self.socket.recv(LONGEST_MESSAGE) or None
        except ConnectionError:
            return None

    def alive(self) -> bool:
        return not select.select([self.process], [], [], 0)[0]
