"""Starts workers on a Ray cluster. Ray chooses machines, but passes no messages."""

from __future__ import annotations

import importlib.util
import json
import logging
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from cloud.gateway.channel import ChannelKeys
from cloud.gateway.fleet import LOADS, WorkerProcess, given_to_worker
from cloud.settings import LOCAL
from common.configuration.configuration import ConfigurationError
from common.daemon.start import BAD_INPUT
from common.process.machine import child_command, python_environment

log = logging.getLogger(__name__)

# Seconds for the Ray process, whose workers have ended, within `common.process.lifetime.LONGEST`. Ray's orderly end is
# slower; its processes end with this one.
_ENDING: Final = 0.2
_REMOVAL: Final = 0.2  # seconds in which killed processes may still write
_LONGEST_TEMPORARY: Final = 18  # characters of a parent folder for Ray's sockets


class RayLauncher:
    """Starts workers through a process that talks to Ray, restarted when needed.

    Workers connect over encrypted TCP, with new keys each time.
    """

    def __init__(self, cluster: str, settings: Mapping[str, object], count: int, cpus: int, gpus: float) -> None:
        """`cluster`: its head's HOST:PORT, or `LOCAL`. Each worker reserves `cpus` and `gpus`.

        Raises `ConfigurationError`.
        """
        if importlib.util.find_spec("ray") is None:
            raise ConfigurationError(f"ray = {cluster!r} needs the package ray: pip install 'dragon-runtime[ray]'")
        self.address = f"tcp://{own_address(cluster)}:*"
        self.keys: ChannelKeys | None = ChannelKeys.new()
        given = given_to_worker(settings, self.keys, snapshots=True, gpus=gpus).decode()
        self._folder = own_folder() if cluster == LOCAL else None
        folder = None if self._folder is None else str(self._folder)
        self._wanted = {
            "cluster": cluster,
            "count": count,
            "cpus": cpus,
            "gpus": gpus,
            "given": given,
            "folder": folder,
        }
        self._driver: _Driver | None = None

    def start(self, number: int, place: int, address: str) -> WorkerProcess:
        if self._driver is None or self._driver.ended:
            self._driver = _Driver(self._wanted)
        return self._driver.start(number, place, address)

    def close(self) -> None:
        """Ends the process, and deletes the files of an own cluster."""
        if self._driver is not None:
            self._driver.close()
        until = time.monotonic() + _REMOVAL
        while self._folder is not None and self._folder.exists() and time.monotonic() < until:
            shutil.rmtree(self._folder, ignore_errors=True)


class _Driver:
    """The process that talks to Ray."""

    def __init__(self, wanted: Mapping[str, Any]) -> None:
        self.ended = False
        self.wanted = f"Ray has no free slot for it yet (free CPUs: {wanted['cpus']}, free GPUs: {wanted['gpus']:g})"
        self._workers: dict[int, _RayProcess] = {}
        self._lock = threading.Lock()  # of both
        command = child_command("cloud.gateway.ray_driver")
        self._process = subprocess.Popen(
            command, env=python_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.tell(wanted)
        self._reader = threading.Thread(target=self._read, name="ray driver", daemon=True)
        self._reader.start()

    def start(self, number: int, place: int, address: str) -> WorkerProcess:
        worker = _RayProcess(self, number)
        with self._lock:
            self._workers[number] = worker
            if self.ended:
                worker.how = "was not started: the process that talks to Ray has ended"
        self.tell({"start": [number, place, address]})
        return worker

    def tell(self, value: Mapping[str, Any]) -> None:
        """Sends a line, unless the process has ended."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # noticed by the reader
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()

    def close(self) -> None:
        """Ends the process and its children, in order for a moment."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()
        self._reader.join(_ENDING)
        self._process.kill()
        self._reader.join()

    def _read(self) -> None:
        why = "was lost: the process that talks to Ray has ended"
        assert self._process.stdin is not None and self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "failed" in told:
                why = f"was not started: {told['failed']}"
            elif "placed" in told:
                with self._lock:
                    if told["placed"] in self._workers:
                        self._workers[told["placed"]].placed = True
            elif "leaving" in told:
                with self._lock:
                    for number in told["leaving"]:
                        if number in self._workers:
                            self._workers[number].leaves = True
            else:
                with self._lock:
                    worker = self._workers.pop(told["ended"])
                    worker.code, worker.how = told["code"], told["how"]
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stdin):
            with suppress(OSError):  # unread output
                pipe.close()
        with self._lock:
            self.ended = True
            for worker in self._workers.values():
                worker.how = why
            self._workers.clear()


class _RayProcess:
    def __init__(self, driver: _Driver, number: int) -> None:
        self.how: str | None = None
        self.code: int | None = None  # if it exited
        self.leaves = False
        self.placed = False
        self._driver = driver
        self._number = number

    def ended(self) -> str | None:
        return self.how

    def misconfigured(self) -> bool:
        return self.code == BAD_INPUT

    def leaving(self) -> bool:
        return self.leaves

    def awaited(self) -> str:
        return LOADS if self.placed else self._driver.wanted

    def terminate(self) -> None:
        self._driver.tell({"terminate": self._number})

    def kill(self) -> None:
        self._driver.tell({"kill": self._number})


def own_folder() -> Path:
    temporary = tempfile.gettempdir()
    above = temporary if len(temporary) <= _LONGEST_TEMPORARY else "/tmp"
    return Path(tempfile.mkdtemp(prefix="dragon-ray-", dir=above))


def own_address(cluster: str) -> str:
    """Returns this machine's address for the cluster. Raises `ConfigurationError`."""
    if cluster == LOCAL:
        return "127.0.0.1"
    host, _, port = cluster.rpartition(":")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, int(port), socket.AF_INET, socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(place)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigurationError(f"ray = {cluster!r}: {host} can't be found ({error.strerror})") from None
