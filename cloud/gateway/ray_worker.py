"""One worker's actor in a Ray cluster, and the worker's process.

The child process talks to the gateway only, runs no Ray code, and ends with the actor.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import suppress

from cloud.gateway.fleet import describe_end, start_process, worker_command
from common.process.version import VERSION

CONCURRENCY = 2  # calls; `serve` lasts as long as the worker


class WorkerActor:
    """Ray kills the actor when its driver ends or its machine is taken away."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._told = False  # told to end
        self._lock = threading.Lock()

    def serve(self, version: str, number: int, place: int, address: str, given: bytes) -> tuple[str, int | None]:
        """Runs the worker. Returns a description of its end, and its exit code.

        `version` is the gateway's.
        """
        host = socket.gethostname()
        if version != VERSION:
            return f"can't start on {host}: dragon is {VERSION} there, and {version} at the gateway", None
        with self._lock:
            if self._told:
                return "was asked to end", None
            with suppress(PermissionError):  # Ray lowers priorities; only root may raise them
                os.setpriority(os.PRIO_PROCESS, 0, 0)  # and its children
            self._process = process = start_process(worker_command(number, place, address), given)
        code = process.wait()
        return describe_end(code, f" on {host}"), code

    def machine(self) -> str:
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def terminate(self) -> None:
        with self._lock:
            self._told = True
            if self._process is not None:
                self._process.terminate()
