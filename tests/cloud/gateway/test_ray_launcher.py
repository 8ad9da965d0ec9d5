"""The gateway's end of the process that talks to Ray, where there is no cluster."""

from __future__ import annotations

import importlib.util
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from cloud.gateway import ray_launcher
from cloud.gateway.fleet import settings_of_worker
from cloud.gateway.ray_driver import WorkerStarter, reason_of
from cloud.gateway.ray_launcher import RayLauncher, own_address
from cloud.settings import CloudSettings
from common.configuration.configuration import ConfigurationError, load_settings
from common.process.lifetime import LONGEST
from tests.daemons.streaming import wait_until

# Reads what it is told first, in so many lines, and answers then.
ANSWERS = """
import sys, json
for _ in range({lines}):
    sys.stdin.readline()
print(json.dumps({answer}), flush=True)
{then}
"""


class TestSettings:
    @pytest.mark.parametrize("given", ["local", "192.0.2.7:6379", "head.example:1"])
    def test_a_cluster_is_named_by_its_head(self, given: str) -> None:
        assert load_settings(CloudSettings, overrides={"ray": given, "workers": 1}).ray == given

    @pytest.mark.parametrize("given", ["here", "ray://192.0.2.7:10001", "192.0.2.7", "192.0.2.7:0", "auto"])
    def test_what_is_none_is_told(self, given: str) -> None:
        with pytest.raises(ConfigurationError, match=r"ray = .*HOST:PORT, e\.g\. 192\.0\.2\.7:6379; or local"):
            load_settings(CloudSettings, overrides={"ray": given, "workers": 1})

    def test_a_head_is_reached_over_ipv4(self) -> None:
        with pytest.raises(ConfigurationError, match=r"ray = .*over IPv4: name its head"):
            load_settings(CloudSettings, overrides={"ray": "[2001:db8::1]:6379", "workers": 1})

    def test_gpus_are_what_it_reserves(self) -> None:
        with pytest.raises(ConfigurationError, match="worker_gpus = 1 is what Ray reserves: set ray, or leave"):
            load_settings(CloudSettings, overrides={"worker_gpus": 1.0, "workers": 2})
        settings = load_settings(CloudSettings, overrides={"worker_gpus": 1.0, "workers": 2, "ray": "local"})
        assert CloudSettings(**settings_of_worker(settings)).worker_gpus == 0

    def test_it_runs_workers(self) -> None:
        with pytest.raises(ConfigurationError, match="ray = 'local' runs workers: say how many with workers"):
            load_settings(CloudSettings, overrides={"ray": "local"})

    def test_without_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ConfigurationError, match=r"needs the package ray: pip install 'dragon-runtime\[ray\]'"):
            RayLauncher("local", {}, 1, 1, 0.0)


class TestOwnAddress:
    """The one under which the cluster's machines reach this one."""

    def test_of_a_cluster_of_this_machine(self) -> None:
        assert own_address("local") == own_address("127.0.0.1:6379") == "127.0.0.1"

    def test_of_a_head_that_nobody_knows(self) -> None:
        with pytest.raises(ConfigurationError, match=r"ray = 'nowhere\.invalid:6379': nowhere\.invalid can't be found"):
            own_address("nowhere.invalid:6379")


class TestTheProcessThatTalksToRay:
    @pytest.mark.parametrize(
        ("error", "reason"),
        [(OSError("no\nmore"), "no"), (RuntimeError(), "RuntimeError"), (ValueError("\n"), "ValueError")],
    )
    def test_a_reason_is_one_line(self, error: Exception, reason: str) -> None:
        assert reason_of(error) == reason

    def test_a_worker_that_ends_just_as_it_is_told_to(self) -> None:
        """Another thread takes it out of the table; the driver, with all of the workers, lives on."""

        class Seats(dict[int, object]):
            def __contains__(self, number: object) -> bool:
                return super().pop(number, None) is not None  # type: ignore[call-overload]

        ray = MagicMock()
        driver = WorkerStarter(ray, {"given": "", "cpus": 1, "gpus": 0.0}, io.StringIO())
        driver._seats = Seats({1: MagicMock(), 2: MagicMock()})
        for number in (1, 2, 3):
            driver.terminate(number)
            driver.kill(number)
        assert ray.kill.call_count == 2


class TestDriver:
    """Processes that say what the one that talks to Ray would."""

    @pytest.fixture
    def launcher(self) -> Iterator[RayLauncher]:
        launcher = RayLauncher("local", {}, 2, 1, 0.0)
        yield launcher
        launcher.close()

    @staticmethod
    def driver(monkeypatch: pytest.MonkeyPatch, answer: object, lines: int = 2, then: str = "sys.stdin.read()") -> None:
        command = [sys.executable, "-c", ANSWERS.format(answer=answer, lines=lines, then=then)]
        monkeypatch.setattr(ray_launcher, "child_command", lambda module: command)

    def test_a_cluster_that_cannot_be_joined(self, launcher: RayLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver(monkeypatch, {"failed": "the Ray cluster x can't be joined: no"}, then="")
        worker = launcher.start(1, 0, "tcp://127.0.0.1:1")
        wait_until(lambda: worker.ended() is not None, "it is told")
        assert worker.ended() == "was not started: the Ray cluster x can't be joined: no"

    def test_all_workers_of_a_driver_that_ends_are_lost(
        self, launcher: RayLauncher, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And another one is started with the next worker."""
        self.driver(monkeypatch, {"leaving": [2]}, lines=3, then="")
        first, second = (launcher.start(number, 0, "tcp://127.0.0.1:1") for number in (1, 2))
        wait_until(lambda: first.ended() is not None and second.ended() is not None, "both are told")
        assert first.ended() == second.ended() == "was lost: the process that talks to Ray has ended"
        self.driver(monkeypatch, {"ended": 3, "how": "ended on a machine (exit code 2)", "code": 2})
        third = launcher.start(3, 0, "tcp://127.0.0.1:1")
        wait_until(lambda: third.ended() is not None, "it is told")
        assert third.ended() == "ended on a machine (exit code 2)"
        assert third.misconfigured() and not first.misconfigured()
        third.terminate()
        third.kill()

    def test_one_that_does_not_end_is_ended(self, launcher: RayLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
        """Long before the gateway's own end is cut short; the folder that Ray had goes with it."""
        self.driver(monkeypatch, {"placed": 1}, then="import time; time.sleep(600)")
        worker = launcher.start(1, 0, "tcp://127.0.0.1:1")
        wait_until(lambda: worker.awaited() == "it loads its models", "it is told")
        folder = Path(str(launcher._wanted["folder"]))
        (folder / "session").mkdir()
        launcher.close()
        assert worker.ended() is not None
        assert not folder.exists()
        assert ray_launcher._ENDING + ray_launcher._REMOVAL < LONGEST / 2  # the workers and the link take the rest

    def test_a_worker_waits_for_a_machine(self, launcher: RayLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver(monkeypatch, {"placed": 2}, lines=3)
        worker, other = (launcher.start(number, 0, "tcp://127.0.0.1:1") for number in (1, 2))
        assert worker.awaited() == "Ray has no free slot for it yet (free CPUs: 1, free GPUs: 0)"
        wait_until(lambda: other.awaited() == "it loads its models", "it is told")

    def test_a_worker_whose_machine_is_taken_away(self, launcher: RayLauncher, monkeypatch: pytest.MonkeyPatch) -> None:
        self.driver(monkeypatch, {"leaving": [1, 7]}, lines=3)
        worker, other = (launcher.start(number, 0, "tcp://127.0.0.1:1") for number in (1, 2))
        wait_until(worker.leaving, "it is told")
        assert not other.leaving() and worker.ended() is None
