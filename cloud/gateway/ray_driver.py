"""`python -m cloud.gateway.ray_driver`: talks to Ray for the gateway.

It gets JSON lines on stdin, first with data for all workers, and reports on stdout. Failures of the cluster or of
Ray's threads do not reach the gateway with the keys.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from concurrent.futures import Future
from typing import IO, Any, Final

from cloud.settings import LOCAL
from common.process.version import VERSION

log = logging.getLogger(__name__)

_STORE: Final = 80 * 2**20  # bytes of an own cluster's unused object store
_LOOK: Final = 2.0  # seconds between checks for drained machines


class WorkerStarter:
    """Starts and ends workers. Calls return at once; Ray's threads report results."""

    def __init__(self, ray: Any, wanted: dict[str, Any], out: IO[str]) -> None:
        from cloud.gateway.ray_worker import CONCURRENCY, WorkerActor

        self._ray = ray
        self._given = wanted["given"].encode()
        # No restarts: the gateway does them, with new numbers.
        needs = {"num_cpus": wanted["cpus"], "num_gpus": wanted["gpus"], "max_restarts": 0, "max_task_retries": 0}
        self._actor = ray.remote(WorkerActor).options(**needs, max_concurrency=CONCURRENCY)
        self._seats: dict[int, Any] = {}
        self._machines: dict[int, str] = {}  # node ids of placed workers
        self._out = out
        self._lock = threading.Lock()  # of the stream and the tables

    def start(self, number: int, place: int, address: str) -> None:
        """Has Ray find a machine, or wait for one."""
        seat = self._actor.remote()
        with self._lock:
            self._seats[number] = seat

        def placed(future: Future[str]) -> None:
            if future.exception() is None:
                with self._lock:
                    self._machines[number] = future.result()
                self.tell(placed=number)

        def ended(future: Future[tuple[str, int | None]]) -> None:
            error = future.exception()
            with self._lock:
                self._seats.pop(number, None)
                self._machines.pop(number, None)
            how, code = future.result() if error is None else (f"was lost ({type(error).__name__})", None)
            self.tell(ended=number, how=how, code=code)

        seat.machine.remote().future().add_done_callback(placed)
        seat.serve.remote(VERSION, number, place, address, self._given).future().add_done_callback(ended)

    def terminate(self, number: int) -> None:
        if (seat := self._seats.get(number)) is not None:  # other threads remove it
            seat.terminate.remote()

    def kill(self, number: int) -> None:
        if (seat := self._seats.get(number)) is not None:
            self._ray.kill(seat)

    def watch(self) -> None:
        """Reports workers on drained machines, again and again."""
        from ray._private.state import state  # as Ray Serve does; not public

        while True:
            time.sleep(_LOOK)
            try:
                drained = set(state.get_draining_nodes())
            except Exception as error:  # while the head is away
                log.debug("The machines that are drained are not known: %s", type(error).__name__)
                continue
            with self._lock:
                leaving = [number for number, machine in self._machines.items() if machine in drained]
            if leaving:
                self.tell(leaving=leaving)

    def tell(self, **value: Any) -> None:
        with self._lock:
            self._out.write(json.dumps(value) + "\n")
            self._out.flush()


def main() -> None:
    # Ray and its libraries print.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    wanted = json.loads(sys.stdin.readline())
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # no telemetry
    import ray

    try:
        _join(ray, wanted)
    except (OSError, RuntimeError, ValueError) as error:
        why = f"the Ray cluster {wanted['cluster']} can't be joined: {reason_of(error)}"
        print(json.dumps({"failed": why}), file=out, flush=True)
        sys.exit(1)
    driver = WorkerStarter(ray, wanted, out)
    threading.Thread(target=driver.watch, name="drained machines", daemon=True).start()
    for line in sys.stdin:
        match json.loads(line):
            case {"start": [number, place, address]}:
                driver.start(number, place, address)
            case {"terminate": number}:
                driver.terminate(number)
            case {"kill": number}:
                driver.kill(number)
    ray.shutdown()


def reason_of(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def _join(ray: Any, wanted: dict[str, Any]) -> None:
    common: dict[str, Any] = {"namespace": "dragon", "log_to_driver": True, "configure_logging": False}
    if wanted["cluster"] == LOCAL:
        os.environ.setdefault("RAY_worker_niceness", "0")
        cpus, gpus = wanted["count"] * wanted["cpus"], wanted["count"] * wanted["gpus"] or None
        common |= {"include_dashboard": False, "object_store_memory": _STORE, "_temp_dir": wanted["folder"]}
        ray.init(num_cpus=cpus, num_gpus=gpus, **common)
    else:
        ray.init(address=wanted["cluster"], **common)


if __name__ == "__main__":
    main()
