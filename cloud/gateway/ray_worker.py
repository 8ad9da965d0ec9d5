"""The place of one worker in a Ray cluster: an actor that has its process, on whichever machine Ray puts it.

The worker is a process of its own below the actor's: it talks to the gateway and never to Ray, nothing of Ray's runs in
it, and it ends with the actor.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from contextlib import suppress

from cloud.gateway.fleet import describe_end, start_process, worker_command
from common.process.version import VERSION

CONCURRENCY = 2  # calls at a time: `serve` takes as long as the worker lives


class WorkerActor:
    """The actor. Ray kills it when its driver ends, or when the machine is taken away."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._told = False  # to end
        self._lock = threading.Lock()

    def serve(self, version: str, number: int, place: int, address: str, given: bytes) -> tuple[str, int | None]:
        """Run the worker until it ends; how it ended, for people, and its exit code. `version` is the gateway's."""
        host = socket.gethostname()
        if version != VERSION:
            return f"can't start on {host}: dragon is {VERSION} there, and {version} at the gateway", None
        with self._lock:
            if self._told:
                return "was told to end", None
            with suppress(PermissionError):  # Ray's processes stand back behind all others; only root may undo that
                os.setpriority(os.PRIO_PROCESS, 0, 0)  # of this thread, and so of what it starts
            self._process = process = start_process(worker_command(number, place, address), given)
        code = process.wait()
        return describe_end(code, f" on {host}"), code

    def machine(self) -> str:
        """The id of the Ray node that this is on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def terminate(self) -> None:
        """Have the worker end in order."""
        with self._lock:
            self._told = True
            if self._process is not None:
                self._process.terminate()
