"""Processes of workers: what the fleet asks of them wherever they are, and those of this machine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol

from cloud.gateway.channel import ChannelKeys
from common.daemon.daemon import BAD_INPUT
from common.process.python import child_command, python_environment

LOADS: Final = "it loads its models"


class WorkerProcess(Protocol):
    """A worker's process. For one thread."""

    def ended(self) -> str | None:
        """The way in which it ended, for people; None while it runs."""

    def misconfigured(self) -> bool:
        """Whether it ended because of its settings, which all workers have."""

    def leaving(self) -> bool:
        """Whether the machine that it runs on is about to be taken away."""

    def awaited(self) -> str:
        """A sentence for people about one that does not serve yet."""

    def terminate(self) -> None:
        """Have it end in order, soon."""

    def kill(self) -> None:
        """Have it end at once. Nobody waits: the system may take long, or for ever."""


class Launcher(Protocol):
    """Starts processes of workers. For one thread, which lasts."""

    address: str  # where the gateway listens for them: ipc, or tcp with `*` for a port that is not chosen yet
    keys: ChannelKeys | None  # with which they connect

    def start(self, number: int, place: int, address: str) -> WorkerProcess:
        """Start the worker of this number, which connects to `address`; `place` counts those that run at a time."""

    def close(self) -> None:
        """Let go of what they were started with; they have ended."""


def worker_command(number: int, place: int, address: str) -> list[str]:
    """The command of a worker, which reads its settings as JSON from stdin, and ends with this process."""
    return child_command("cloud.gateway.worker", str(number), str(place), address)


def given_to_worker(
    settings: Mapping[str, object], keys: ChannelKeys | None, *, snapshots: bool, workers: int = 0, gpus: float = 0.0
) -> bytes:
    """JSON for a worker's stdin: its `settings`, the keys with which it connects, whether it searches snapshots, and
    how it comes by a GPU: `workers` divide those of their machine, or `gpus` are reserved for each.
    """
    parts = None if keys is None else [keys.gateway, keys.worker.public, keys.worker.secret]
    given = {"settings": dict(settings), "keys": parts, "snapshots": snapshots, "workers": workers, "gpus": gpus}
    return json.dumps(given, default=str).encode()


def started(command: Sequence[str], given: bytes) -> subprocess.Popen[bytes]:
    """A process of this installation, which finds what it is `given` on its stdin."""
    process = subprocess.Popen(command, env=python_environment(), stdin=subprocess.PIPE)
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended, and its exit code says so
        process.stdin.write(given)
        process.stdin.close()
    return process


def end_for_people(code: int, where: str = "") -> str:
    """The way in which a process ended, of which `subprocess` tells the `code`; `where` is a phrase, if it matters."""
    if code < 0:
        return f"was killed{where} (signal {-code})"
    return f"ended{where} (exit code {code})"


class LocalLauncher:
    """Starts so many workers on this machine, with `settings`; they end with the thread that starts them."""

    def __init__(self, settings: Mapping[str, object], address: str, count: int) -> None:
        self.address = address
        self.keys: ChannelKeys | None = None  # only this user can reach the socket
        self._given = given_to_worker(settings, None, snapshots=False, workers=count)

    def start(self, number: int, place: int, address: str) -> WorkerProcess:
        return LocalProcess(started(worker_command(number, place, address), self._given))

    def close(self) -> None:
        """There is nothing but the processes."""


class LocalProcess:
    """A process that was started here."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def ended(self) -> str | None:
        code = self._process.poll()
        return None if code is None else end_for_people(code)

    def misconfigured(self) -> bool:
        return self._process.poll() == BAD_INPUT

    def leaving(self) -> bool:
        return False  # the gateway would be, too

    def awaited(self) -> str:
        return LOADS

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()
