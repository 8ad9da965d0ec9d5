"""Daemons that are starting listen at once, say what they are at, and are waited for."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import filelock
import httpx
import pytest

from scripts import daemons
from scripts.daemons import LOCALLY, START_PATIENCE, Daemon, free_port
from tests.common.engine.model.gguf_file import write_gguf
from tests.daemons.ending import end
from tests.daemons.streaming import wait_until
from tests.daemons.wordy_model import SCORER, make_wordy_model

pytestmark = pytest.mark.timeout(600)

QUESTION = "Where is my dance class?"
WAITS = "waiting for another process that imports a model"


class Held:
    """Daemons of one pair that wait for a lock on their way up, until `release`."""

    def __init__(self, data: Path, stack: ExitStack) -> None:
        (data / "models").mkdir(parents=True)
        write_gguf(data / "Tiny.gguf")
        self._lock = filelock.FileLock(data / "models" / "import.lock")
        self._lock.acquire()
        stack.callback(self._lock.release, force=True)
        bind = f"tcp://127.0.0.1:{free_port()}"
        quick = {"model": make_wordy_model(data / "wordy"), "scorer": SCORER}
        held = {"model": data / "Tiny.gguf", "models": data / "models"}
        http = {"port": free_port(), "cloud": bind}
        self.url = f"http://127.0.0.1:{http['port']}"
        self.device = Daemon("device", data, {"threads": 1} | held | http, data / "device.log")
        self.quick_device = Daemon("device", data, {"threads": 1} | quick | http, data / "device.log")
        self.cloud = Daemon("cloud", data, {"threads": 1} | held | {"bind": bind}, data / "cloud.log")
        for each in (self.device, self.quick_device, self.cloud):
            stack.callback(each.stop)

    def release(self) -> None:
        self._lock.release()

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url}/{path}", timeout=START_PATIENCE, **LOCALLY)

    def wait(self, path: str, words: str) -> httpx.Response:
        """The first reply of the device's that contains `words`."""
        replies: list[httpx.Response] = []

        def replied() -> bool:
            try:
                replies.append(self.get(path))
            except httpx.ConnectError:
                return False
            return words in replies[-1].text

        wait_until(replied, f"{path} says {words!r}", START_PATIENCE)
        return replies[-1]


@pytest.fixture
def held(fresh_data: Callable[[], Path]) -> Iterator[Held]:
    with ExitStack() as stack:
        yield Held(fresh_data(), stack)


def dragon(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "device.cli.main", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_device_says_what_it_is_at(held: Held) -> None:
    held.device.start()
    health = held.wait("health", WAITS)
    assert (health.status_code, health.json()) == (503, {"status": "starting", "doing": WAITS})
    body: dict[str, Any] = {"model": "dragon", "messages": [{"role": "user", "content": QUESTION}]}
    answer = httpx.post(f"{held.url}/v1/chat/completions", json=body, timeout=START_PATIENCE, **LOCALLY)
    for refused in (held.get("status"), held.get("v1/models"), held.get("library"), answer):
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], refused.headers["retry-after"]) == (503, "starting", "1")
        assert WAITS in error["message"]
    assert held.get("").status_code == 200  # the page, which says it, too
    waiting = [dragon("status", "--url", held.url), dragon("ask", QUESTION, "--max-tokens=8", "--url", held.url)]
    for command in waiting:
        assert command.stderr is not None
        assert WAITS in command.stderr.readline()
    held.release()
    for command in waiting:
        _, errors = command.communicate(timeout=START_PATIENCE)
        assert command.returncode == 0, errors
    assert held.get("health").json() == {"status": "ok"}


def test_a_device_that_starts_is_told_to_stop(held: Held) -> None:
    held.device.start()
    held.wait("health", WAITS)
    end(held.device).check()
    assert "Traceback" not in held.device.log.read_text()


def test_a_cloud_that_starts_says_so(held: Held) -> None:
    held.cloud.start()
    held.quick_device.start()
    held.quick_device.wait_for("device ready")
    status = held.wait("status", WAITS).json()["cloud"]  # which it is not at yet when the device says hello
    assert status["state"] == "connecting"
    assert status["detail"] == f"The cloud at {status['address']} is starting: {WAITS}."
    held.release()
    # Another tokenizer, as it happens: this cloud has looked at the greeting.
    assert "tokenizer" in held.wait("status", "refused").json()["cloud"]["detail"]


@pytest.mark.parametrize(("role", "advice"), [("device", "--port"), ("cloud", "another port")])
def test_an_address_in_use_is_told_of_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str, advice: str
) -> None:
    """And ends it with all of its threads: started as people do, so that imports have some, too."""
    monkeypatch.setattr(daemons, "launch", daemons.run_module)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = {"port": port} if role == "device" else {"bind": f"tcp://127.0.0.1:{port}"}
        daemon = Daemon(role, tmp_path, flags, tmp_path / "log")
        daemon.start()
        assert daemon.process is not None
        assert daemon.process.wait(START_PATIENCE) == 2
    (said,) = daemon.log.read_text().splitlines()
    assert said.startswith(f"dragon {role}: ")
    assert f"127.0.0.1:{port} " in said and "in use" in said and advice in said
