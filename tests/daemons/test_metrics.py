"""The metrics of a real cloud daemon: where its setting says, and nowhere else."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from cloud.settings import CloudSettings
from common.configuration.configuration import ConfigurationError, load_settings
from common.process.version import VERSION
from scripts.daemons import PATIENTLY, Daemon, free_port
from tests.daemons.ending import end
from tests.daemons.streaming import wait_until
from tests.support.metrics import Metrics

STARTED = 100.0  # seconds


def scrape(port: int) -> httpx.Response | None:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/metrics", **PATIENTLY)
    except httpx.TransportError:
        return None


def test_a_cloud_is_scraped_from_its_start_on_and_ends_in_time(fresh_data: Callable[[], Path], tmp_path: Path) -> None:
    port, link = free_port(), free_port()
    flags = {"metrics": port, "bind": f"tcp://127.0.0.1:{link}"}
    daemon = Daemon("cloud", fresh_data(), flags, tmp_path / "cloud.log")
    daemon.start()
    try:
        wait_until(lambda: scrape(port) is not None, "it listens", STARTED)
        wait_until(lambda: (found := scrape(port)) is not None and found.status_code == 200, "it serves", STARTED)
        found = Metrics(scrape(port).text)  # type: ignore[union-attr]
        assert found.of("dragon_build_info", role="cloud", version=VERSION) == 1
        assert found["process_resident_memory_bytes"] > 2**24
        other = Daemon("cloud", fresh_data(), flags | {"bind": f"tcp://127.0.0.1:{free_port()}"}, tmp_path / "2.log")
        other.start()
        assert other.process is not None
        assert other.process.wait(STARTED) == 2
        assert (
            other.log.read_text()
            .splitlines()[-1]
            .startswith(
                f"dragon cloud: The daemon can't listen on 127.0.0.1:{port} for metrics (address already in use); stop"
            )
        )
        with socket.create_connection(("127.0.0.1", port)):  # that says nothing
            end(daemon).check()
    finally:
        daemon.stop()


class TestSetting:
    @pytest.mark.parametrize(
        ("given", "place"),
        [
            (9464, "127.0.0.1:9464"),
            ("9464", "127.0.0.1:9464"),
            ("0.0.0.0:9464", "0.0.0.0:9464"),
            ("[::1]:9464", "[::1]:9464"),
            ("none", None),
        ],
    )
    def test_a_port_alone_is_of_this_machine(self, given: object, place: str | None) -> None:
        assert load_settings(CloudSettings, overrides={"metrics": given}).metrics == place

    @pytest.mark.parametrize("given", ["0", "70000", "here", ":9464", "tcp://127.0.0.1:9464", "::1:9464"])
    def test_what_is_no_place_is_told(self, given: str) -> None:
        with pytest.raises(ConfigurationError, match=r"--metrics: metrics = .* e\.g\. 9464"):
            load_settings(CloudSettings, overrides={"metrics": given})
