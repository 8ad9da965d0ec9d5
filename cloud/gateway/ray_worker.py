"""One worker's actor in a Ray cluster, and the worker's process.

The worker is a child process of the actor. It talks to the gateway and never to Ray, runs none of Ray's code, and
ends with the actor.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import suppress

from cloud.gateway.fleet import describe_end, start_process, worker_command
from common.process.version import VERSION

CONCURRENCY = 2  # concurrent calls, as `serve` lasts as long as the worker


class WorkerActor:
    """The actor. Ray kills it when its driver ends or its machine is taken away."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._told = False  # told to end
        self._lock = threading.Lock()

    def serve(self, version: str, number: int, place: int, address: str, given: bytes) -> tuple[str, int | None]:
        """Runs the worker until it ends. Returns its end for people, and its exit code.

        `version` is the gateway's.
        """
        host = socket.gethostname()
        if version != VERSION:
            return f"can't start on {host}: dragon is {VERSION} there, and {version} at the gateway", None
        with self._lock:
            if self._told:
                return "was told to end", None
            with suppress(PermissionError):  # Ray lowers its processes' priority; only root may raise it
                os.setpriority(os.PRIO_PROCESS, 0, 0)  # of this thread and its children
            self._process = process = start_process(worker_command(number, place, address), given)
        code = process.wait()
        return describe_end(code, f" on {host}"), code

    def machine(self) -> str:
        """Returns the id of the actor's Ray node."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def terminate(self) -> None:
        """Ends the worker in order."""
        with self._lock:
            self._told = True
            if self._process is not None:
                self._process.terminate()
