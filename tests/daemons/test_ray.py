"""A cloud whose workers run on the machines of a real Ray cluster: the same answers, whatever ends meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import psutil
import pytest

from scripts.daemons import Daemon, Pair, add_documents, dragon, free_port
from tests.daemons.ending import end
from tests.daemons.ray_machines import RayMachines
from tests.daemons.streaming import wait_until
from tests.daemons.test_workers import AT_A_TIME, Answers, expected, model
from tests.support.metrics import Metrics

__all__ = ["expected", "model"]

pytestmark = [pytest.mark.timeout(900), pytest.mark.walkthrough]

SILENCE = 12.0  # seconds until a worker that hangs is given up
STARTED = 240.0  # seconds within which another worker serves: Ray's first process on a machine takes long
WORKERS = 2


class Town:
    """A device, a gateway, and the machines on which its workers run."""

    def __init__(self, machines: RayMachines, pair: Pair, metrics: int) -> None:
        self.machines = machines
        self.pair = pair
        self._metrics = metrics
        self.places: list[str] = []  # ids of machines

    @property
    def workers(self) -> list[psutil.Process]:
        """Processes of workers, on whichever of the machines they are."""
        found = []
        for process in self.machines.processes:
            with suppress(psutil.Error):  # it has ended meanwhile
                if "cloud.gateway.worker" in process.cmdline():
                    found.append(process)
        return found

    @property
    def metrics(self) -> Metrics:
        found = httpx.get(f"http://127.0.0.1:{self._metrics}/metrics", trust_env=False, timeout=30.0)
        return Metrics(found.text)

    @property
    def serving(self) -> int:
        return int(self.metrics["dragon_workers_serving"])

    def until(self, count: int) -> None:
        """Wait until so many workers serve."""
        wait_until(lambda: self.serving == count, f"{count} workers serve", STARTED)


@pytest.fixture(scope="module")
def place(fresh_data: Callable[[], Path], model: dict[str, Any]) -> Iterator[Town]:
    port = free_port()
    with RayMachines(free_port()) as machines:
        places = [machines.add() for _ in range(WORKERS)]
        crowd = {
            "workers": WORKERS,
            "ray": machines.address,
            "threads": 1,
            "worker_silence_seconds": SILENCE,
            "metrics": port,
        }
        with Pair(fresh_data(), model, model | crowd, patience=STARTED) as pair:
            town = Town(machines, pair, port)
            town.places = places
            yield town


@pytest.fixture
def town(place: Town) -> Town:
    """All workers serve, whatever the test before did."""
    place.until(WORKERS)
    place.pair.wait_for_cloud("connected")
    return place


def test_answers_are_those_of_one_process(town: Town, expected: list[str]) -> None:
    assert Answers(town.pair).all() == expected
    if os.getuid() == 0:
        assert [process.nice() for process in town.workers] == [0] * WORKERS
    told = town.metrics
    assert all(told.of("dragon_generation_tokens_total", worker=str(place)) > 0 for place in range(WORKERS))
    log = town.pair.cloud.log.read_text()
    assert "worker 1: starting: loading the language model" in log  # what workers say is in the gateway's log


def test_what_is_added_to_the_library_is_searched_by_all(town: Town, tmp_path: Path, expected: list[str]) -> None:
    """While answers are under way, which go on with what they have found."""
    data = town.pair.data

    def told(found: bool) -> bool:
        """Whether it is found, or is not, by answers of which each worker has had some."""
        before = town.metrics
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            ask = partial(town.pair.complete, max_tokens=8)
            answers = list(pool.map(ask, ["What does the cinema Quornel show?"] * AT_A_TIME))
        titles = [{source["title"] for source in answer["dragon"]["sources"]} for answer in answers]
        after, name = town.metrics, "dragon_generation_tokens_total"
        shared = all(after.of(name, worker=str(each)) > before.of(name, worker=str(each)) for each in range(WORKERS))
        return shared and all(("cinema" in each) == found for each in titles)

    wait_until(lambda: told(found=False), "it is not found yet")
    answers = Answers(town.pair)
    (tmp_path / "cinema.md").write_text("The cinema Quornel shows silent films on Mondays.")
    add_documents(data, "cloud", tmp_path)
    assert answers.all() == expected
    wait_until(lambda: told(found=True), "all find it")
    assert dragon("library", "remove", "--role", "cloud", str(tmp_path), data=data).returncode == 0
    wait_until(lambda: told(found=False), "none finds it any more")


def test_a_worker_is_killed_in_the_middle(town: Town, expected: list[str]) -> None:
    before = town.metrics["dragon_worker_ends_total"]
    answers = Answers(town.pair)
    town.workers[0].kill()
    assert answers.all() == expected
    wait_until(lambda: town.metrics["dragon_worker_ends_total"] > before, "its end was seen")


def test_one_that_hangs_is_replaced(town: Town, expected: list[str]) -> None:
    hanging = town.workers[0]
    answers = Answers(town.pair)
    hanging.suspend()
    assert answers.all() == expected
    wait_until(lambda: not hanging.is_running(), "it was given up", SILENCE + STARTED)
    assert town.metrics.of("dragon_worker_ends_total", why="silent") >= 1


def test_a_machine_is_lost(town: Town, expected: list[str]) -> None:
    """Its worker waits for another machine, which is added under load."""
    answers = Answers(town.pair)
    town.machines.kill_machine(town.places.pop(0))
    town.until(WORKERS - 1)
    town.places.append(town.machines.add())
    assert answers.all() == expected


def test_a_machine_is_drained(town: Town, expected: list[str]) -> None:
    """Its worker ends what it has begun while another one starts elsewhere: no answer is opened again."""
    town.places.append(town.machines.add())
    town.until(WORKERS)  # the one that the test before has lost may still be on its way
    lost = town.metrics["dragon_worker_sessions_lost_total"]
    before = {process.pid for process in town.workers}
    answers = Answers(town.pair)
    town.machines.drain(town.places.pop(0))
    assert answers.all() == expected
    wait_until(lambda: {each.pid for each in town.workers} != before, "another one is there", STARTED)
    wait_until(lambda: len(before - {each.pid for each in town.workers}) == 1, "the other one has left", STARTED)
    town.until(WORKERS)
    assert town.metrics["dragon_worker_sessions_lost_total"] == lost
    assert Answers(town.pair).all() == expected


def test_the_gateway_is_killed_and_started_again(town: Town, expected: list[str]) -> None:
    answers = Answers(town.pair)
    left = town.workers
    town.pair.cloud.kill()
    wait_until(lambda: not any(each.is_running() for each in left), "its workers have ended", STARTED)
    town.pair.cloud.start()
    assert answers.all() == expected


def test_the_head_is_killed(town: Town, expected: list[str]) -> None:
    """With all of its machines. The gateway lives, and has workers again when the cluster is there again."""
    answers = Answers(town.pair)
    gateway, left = town.pair.cloud.process, town.workers
    town.machines.kill()
    wait_until(lambda: not any(each.is_running() for each in left), "the workers have ended", STARTED)
    town.until(0)
    assert gateway is not None and gateway.poll() is None
    town.machines.begin()
    town.places = [town.machines.add() for _ in range(WORKERS)]
    town.until(WORKERS)
    assert answers.all() == expected


def test_stopping(town: Town) -> None:
    left = town.workers
    end(town.pair.cloud).check()
    wait_until(lambda: not any(each.is_running() for each in left), "the workers have ended", STARTED)


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """One whose path is short enough for Ray's sockets."""
    with TemporaryDirectory(prefix="r", dir="/tmp") as folder:
        yield Path(folder)


def test_a_cluster_of_its_own_leaves_nothing(
    fresh_data: Callable[[], Path], model: dict[str, Any], short_folder: Path
) -> None:
    """It ends in order, and Ray's processes and its folder with it."""
    flags = model | {"bind": f"tcp://127.0.0.1:{free_port()}", "ray": "local", "workers": 1, "threads": 1}
    temporary, data = short_folder, fresh_data()
    cloud = Daemon("cloud", data, flags, data / "cloud.log", environment={"TMPDIR": str(temporary)}, patience=STARTED)
    cloud.start()
    try:
        cloud.wait_for("cloud ready")
        assert cloud.process is not None
        started = psutil.Process(cloud.process.pid).children(recursive=True)
        assert list(temporary.glob("dragon-ray-*"))
        end(cloud).check()
    finally:
        cloud.stop()
    wait_until(lambda: not any(each.is_running() for each in started), "its processes have ended", STARTED)
    wait_until(lambda: not list(temporary.glob("dragon-ray-*")), "its folder is removed", STARTED)
