"""Workers that hang, that can't be killed, or for which no process is to be had."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from cloud.gateway import fleet as fleet_module
from cloud.gateway.channel import Kind, Note, WorkerLink
from cloud.gateway.fleet import Fleet, LocalProcess, WorkerProcess
from proto.framing import encode
from proto.messages import Probe
from tests.cloud.gateway.house import ONE, Heard
from tests.cloud.gateway.launch import PATIENCE, SILENCE, Launch
from tests.daemons.streaming import wait_until

STEP = 0.1  # seconds between two looks of a gateway that is awake


def test_one_that_is_silent_is_killed(launch: Launch) -> None:
    fleet = Fleet(1, launch, SILENCE)
    fleet.start()
    assert fleet.until_one_serves()
    wait_until(lambda: fleet.ends[1] == ("silent", 1), "it is given up")
    assert launch.workers[0].how is not None
    fleet.close()


def test_one_whose_threads_hang_is_killed_whatever_else_it_says(launch: Launch) -> None:
    """Its link goes on to probe the devices."""
    fleet = Fleet(1, launch, SILENCE)
    fleet.start()
    assert fleet.until_one_serves()
    link, over = launch.workers[0].link, threading.Event()

    def probe() -> None:
        while not over.wait(SILENCE / 10):
            link._channel.send(Note(Kind.MESSAGE, ONE, frame=encode(Probe(1, 1))))

    probing = threading.Thread(target=probe)
    probing.start()
    try:
        wait_until(lambda: fleet.ends[1][1] > 0, "it is given up", 10 * SILENCE)
    finally:
        over.set()
        probing.join()
        fleet.close()


def test_what_the_gateway_sleeps_through_is_nobodys_silence(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that was paused, workers and all: these wake as it does, and are heard a little later."""
    now = [0.0]
    monkeypatch.setattr(fleet_module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
    fleet = Fleet(1, launch, SILENCE)
    fleet.start()
    assert fleet.until_one_serves()

    def after(seconds: float) -> None:
        now[0] += seconds
        fleet._look()

    fleet.turns.perform(lambda: after(100 * SILENCE))
    assert fleet.ends == (("ended", 0), ("silent", 0))
    for _ in range(int(SILENCE / STEP) + 1):
        fleet.turns.perform(lambda: after(STEP))
    assert fleet.ends == (("ended", 0), ("silent", 1))  # it does not wake
    fleet.close()


def test_signs_of_life_come_several_times_within_the_silence_that_is_allowed(tmp_path: Path) -> None:
    for silence, within in ((SILENCE, SILENCE), (3600.0, 20.0)):
        link = WorkerLink(f"ipc://{tmp_path / 's'}", 1, Heard(), silence=silence)
        assert link.watchdog == within
        link.close()


def test_one_that_can_not_be_killed_is_not_waited_for(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """It hangs in the system. Another one serves, and this one is looked at until it has ended."""
    monkeypatch.setattr(fleet_module, "_FIRST_PAUSE", 0.05)
    fleet = Fleet(1, launch, SILENCE)
    fleet.start()
    assert fleet.until_one_serves()
    stuck = launch.workers[0]
    monkeypatch.setattr(stuck, "kill", lambda: None)
    wait_until(lambda: len(launch.workers) > 1, "another one serves in its place")
    assert stuck in fleet._killed
    stuck.end()
    wait_until(lambda: stuck not in fleet._killed, "it has ended")
    fleet.close()


def test_to_kill_a_process_takes_no_time_however_long_it_takes_to_end() -> None:
    killed: list[bool] = []

    class Stuck:
        def kill(self) -> None:
            killed.append(True)

        def wait(self) -> int:
            raise AssertionError("its end may never come")

    LocalProcess(Stuck()).kill()  # type: ignore[arg-type]
    assert killed == [True]


@pytest.mark.parametrize(
    "error", [OSError(errno.EAGAIN, "Resource temporarily unavailable"), RuntimeError("no thread")]
)
def test_one_that_can_not_be_started_is_tried_again(
    fleet: Fleet, launch: Launch, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, tries = launch.start, [0]

    def refusing(number: int, place: int, address: str) -> WorkerProcess:
        tries[0] += 1
        if tries[0] <= 2:
            raise error
        return start(number, place, address)

    monkeypatch.setattr(launch, "start", refusing)
    launch.workers[0].end()
    wait_until(lambda: len(launch.workers) == 3, "another one is started")
    wait_until(lambda: fleet.serving == 2, "it serves")
    assert (tries, fleet.turns.mishaps.count) == ([3], 0)


def test_a_start_for_which_there_are_no_processes_is_given_up(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_module, "_FIRST_PAUSE", 0.01)

    def refusing(number: int, place: int, address: str) -> WorkerProcess:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(launch, "start", refusing)
    fleet = Fleet(2, launch, PATIENCE)
    fleet.start()
    told: list[bool] = []
    threading.Thread(target=lambda: told.append(fleet.until_one_serves()), daemon=True).start()
    wait_until(lambda: told == [False], "it is given up")
    fleet.close()
