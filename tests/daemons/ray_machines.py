"""A Ray cluster whose machines are processes of this one: added, drained and killed as a test says.

The cluster is kept by a process of its own (`python -m tests.daemons.ray_machines`), told by lines of JSON: Ray's
threads and signal handlers stay out of the tests' process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from types import TracebackType
from typing import Any, Self

import psutil

from common.process.machine import child_command, python_environment

_STORE = 80 * 2**20  # bytes; the least that Ray allows


class RayMachines:
    """A head, which runs no worker, and machines with one core each. A context manager."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self._port = port
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def processes(self) -> list[psutil.Process]:
        """All processes of the cluster, Ray's and those of its actors. None of one that has been killed."""
        return [] if self._process is None else psutil.Process(self._process.pid).children(recursive=True)

    def begin(self) -> None:
        """Start the head."""
        environment = python_environment() | {"RAY_USAGE_STATS_ENABLED": "0"}
        self._process = subprocess.Popen(
            child_command("tests.daemons.ray_machines", str(self._port)),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def add(self) -> str:
        """Start a machine; its id."""
        return self._ask("add")

    def drain(self, machine: str) -> None:
        """Have Ray drain a machine, as before it is taken away."""
        self._ask("drain", machine)

    def kill_machine(self, machine: str) -> None:
        """End all of Ray's processes of a machine."""
        self._ask("kill", machine)

    def kill(self) -> None:
        """End all of Ray's processes, the head's first."""
        if self._process is not None:
            self._ask("end")
            self._process.communicate()
            self._process = None

    def _ask(self, what: str, machine: str = "") -> str:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps([what, machine]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the process that keeps the cluster has ended"
        told: str = json.loads(answer)
        return told


def main() -> None:
    """Keep the cluster until told to end it."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import ray
    from ray.cluster_utils import Cluster
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason

    common: dict[str, Any] = {"object_store_memory": _STORE, "include_dashboard": False}
    cluster = Cluster(
        initialize_head=True, head_node_args={"gcs_server_port": int(sys.argv[1]), "num_cpus": 0, **common}
    )
    machines: dict[str, Any] = {}

    def tell(answer: str) -> None:
        print(json.dumps(answer), file=out, flush=True)

    tell(cluster.address)
    for line in sys.stdin:
        what, machine = json.loads(line)
        if what == "add":
            node = cluster.add_node(num_cpus=1, **common)
            machines[node.node_id] = node
            tell(node.node_id)
        elif what == "drain":
            client = ray._raylet.GcsClient(address=cluster.address)
            reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
            accepted, why = client.drain_node(machine, reason, "for a test", time.time_ns() // 10**6 + 600_000)
            assert accepted, why
            tell("")
        elif what == "kill":
            cluster.remove_node(machines.pop(machine), allow_graceful=False)
            tell("")
        else:
            for node in [cluster.head_node, *cluster.worker_nodes]:
                node.kill_all_processes(check_alive=False, allow_graceful=False)
            tell("")
            os._exit(0)


if __name__ == "__main__":
    main()
