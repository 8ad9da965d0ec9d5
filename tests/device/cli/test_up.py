"""`dragon up`: what both daemons are started with, that they answer, and how they end."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from device.cli import up
from device.cli.connection import COMES
from device.cli.failures import CommandFailed
from device.cli.settings import load_device
from device.cli.up import LaunchPlan
from tests.common.process.test_child import gone
from tests.device.cli.conftest import Dragon, closed_port

WAIT = 120.0  # seconds; what a busy machine takes to load torch twice


@pytest.fixture
def planned(dragon: Dragon, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LaunchPlan]:
    """Daemons that would be started with settings from the environment, on a machine with six cores."""

    def plan(**environment: object) -> LaunchPlan:
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(f"DRAGON_{name}", str(value))
            return up._planned(load_device())

    return plan


class TestPlan:
    def test_by_default(self, planned: Callable[..., LaunchPlan]) -> None:
        plan = planned()
        assert (plan.device, plan.cloud, plan.port) == ([], [], 8600)
        assert (plan.url, plan.bind) == ("http://127.0.0.1:8600", "tcp://127.0.0.1:8601")

    @pytest.mark.parametrize(
        ("environment", "device", "cloud", "bind"),
        [
            ({"CLOUD_BIND": "tcp://0.0.0.0:99"}, ["--cloud=tcp://127.0.0.1:99"], [], "tcp://127.0.0.1:99"),
            ({"CLOUD_BIND": "tcp://[::]:99"}, ["--cloud=tcp://[::1]:99"], [], "tcp://[::1]:99"),
            ({"DEVICE_CLOUD": "tcp://localhost:99"}, [], ["--bind=tcp://127.0.0.1:99"], "tcp://localhost:99"),
            (
                {"DEVICE_CLOUD": "tcp://localhost:99", "CLOUD_BIND": "tcp://0.0.0.0:99"},
                [],
                [],
                "tcp://localhost:99",
            ),
        ],
    )
    def test_they_meet_where_either_setting_says(
        self,
        planned: Callable[..., LaunchPlan],
        environment: dict[str, str],
        device: list[str],
        cloud: list[str],
        bind: str,
    ) -> None:
        plan = planned(DEVICE_THREADS=1, CLOUD_THREADS=1, **environment)
        assert (plan.device, plan.cloud, plan.bind) == (device, cloud, bind)

    @pytest.mark.parametrize(
        ("environment", "text"),
        [
            ({"DEVICE_CLOUD": "tcp://cloud.example:8601"}, "the device's cloud is tcp://cloud.example:8601 ($DRAGON_"),
            ({"DEVICE_CLOUD": "tcp://127.0.0.1:1", "CLOUD_BIND": "tcp://127.0.0.1:2"}, "change one of them"),
            ({"DEVICE_CLOUD": "none"}, "cloud = 'none'"),
            ({"DEVICE_PRIVACY": "offline"}, "privacy = 'offline'"),
        ],
    )
    def test_a_device_of_another_cloud_is_not_started(
        self, planned: Callable[..., LaunchPlan], environment: dict[str, str], text: str
    ) -> None:
        with pytest.raises(CommandFailed) as refused:
            planned(**environment)
        assert text in refused.value.text

    def test_any_free_port(self, planned: Callable[..., LaunchPlan]) -> None:
        plan = planned(DEVICE_PORT=0, DEVICE_THREADS=1)
        port = plan.url.rpartition(":")[2]
        assert plan.device == [f"--port={port}"] and int(port) > 0


def test_a_port_that_is_taken_is_told_before_anything_starts(dragon: Dragon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = dragon("up", DRAGON_DEVICE_PORT=port, DRAGON_CLOUD_BIND=f"tcp://127.0.0.1:{closed_port()}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f"port {port} of this machine is in use" in done.stderr


@contextmanager
def started(dragon: Dragon, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """`dragon up` on free ports; its output goes to the files `out` and `err`."""
    monkeypatch.setenv("DRAGON_DEVICE_PORT", str(closed_port()))
    monkeypatch.setenv("DRAGON_CLOUD_BIND", f"tcp://127.0.0.1:{closed_port()}")
    for role in ("DEVICE", "CLOUD"):
        monkeypatch.setenv(f"DRAGON_{role}_THREADS", "1")  # two would wait for each other on a busy machine
    with dragon.start("up") as process:
        yield process


def daemons_of(process: subprocess.Popen[str]) -> dict[str, psutil.Process]:
    """Both children, once they are there."""
    found: dict[str, psutil.Process] = {}
    end = time.monotonic() + WAIT
    while len(found) < 2 and time.monotonic() < end:
        for child in psutil.Process(process.pid).children():
            with suppress(psutil.Error):
                line = " ".join(child.cmdline())
                found |= {"cloud": child} if "cloud.__main__" in line else {}
                found |= {"device": child} if "device.cli.main device" in line else {}
    return found


@pytest.mark.walkthrough
@pytest.mark.timeout(3 * WAIT)
def test_both_answer_and_one_that_ends_takes_the_other_along(
    dragon: Dragon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dragon("api-keys", "create", "laptop").returncode == 0  # which this user's commands need not show
    with started(dragon, tmp_path, monkeypatch) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = f"http://127.0.0.1:{os.environ['DRAGON_DEVICE_PORT']}"
        assert f"the device at {url}" in line, line
        assert "no documents yet" in process.stdout.readline()
        assert process.stdout.readline() == 'ask with: dragon ask "..."\n'
        status = json.loads(dragon("status", "--json").stdout)
        assert status["cloud"]["state"] == "connected"
        asked = dragon("ask", "Which puzzle game sells best?", "--max-tokens", "4", "--json")
        assert asked.returncode == 0, asked.stderr
        daemons = daemons_of(process)
        daemons["cloud"].kill()
        _, errors = process.communicate(timeout=WAIT)
        assert process.returncode == 1
        assert errors.endswith("dragon: the cloud daemon ended with signal SIGKILL; the other one was stopped\n")
        lines = errors.splitlines()[1:-1]
        assert all(line.startswith(("cloud  | ", "device | ")) for line in lines)
        assert not [line for line in lines if "/health" in line or "/status" in line], "it logs its own questions"
        assert any(line.startswith("cloud  | ") and "cloud ready" in line for line in lines)
        assert any(line.startswith("device | ") and "device ready" in line for line in lines)
        assert all(gone(each) for each in daemons.values())


@pytest.mark.walkthrough
@pytest.mark.timeout(3 * WAIT)
def test_a_question_that_is_asked_at_once_is_answered(
    dragon: Dragon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another terminal, at the same moment: neither knows which one is first."""
    with started(dragon, tmp_path, monkeypatch), dragon.start("ask", "Which game sells best?", "--max-tokens=4") as ask:
        output, errors = ask.communicate(timeout=WAIT)
    assert ask.returncode == 0 and output, errors
    assert errors.startswith((f"{COMES}\n", "The device daemon is starting: "))


@pytest.mark.walkthrough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_end_when_it_is_told_to_stop(
    dragon: Dragon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with started(dragon, tmp_path, monkeypatch) as process:
        daemons = daemons_of(process)
        process.send_signal(number)
        out, _ = process.communicate(timeout=WAIT)
        assert (process.returncode, out) == (0, "both daemons have stopped\n")
        assert all(gone(each) for each in daemons.values()) and len(daemons) == 2
