"""Real daemons tell the manager that started them how far they are, and that they work."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scripts.daemons import START_PATIENCE, Daemon, free_port
from tests.daemons.ending import end

pytestmark = pytest.mark.timeout(400)

SIGNS = 3


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(START_PATIENCE)
        yield listener


def next_lines(listener: socket.socket) -> list[str]:
    return listener.recv(4096).decode().split("\n")


@pytest.mark.parametrize("role", ["device", "cloud"])
def test_a_daemon_loads_serves_works_and_stops(
    role: str, listener: socket.socket, fresh_data: Callable[[], Path], tmp_path: Path
) -> None:
    port = free_port()
    # The device has a link, too: its cloud is not there.
    flags_of: dict[str, dict[str, object]] = {
        "device": {"port": port, "cloud": f"tcp://127.0.0.1:{free_port()}"},
        "cloud": {"bind": f"tcp://127.0.0.1:{port}"},
    }
    manager = {"NOTIFY_SOCKET": listener.getsockname(), "WATCHDOG_USEC": "400000"}
    daemon = Daemon(role, fresh_data(), {"threads": 1} | flags_of[role], tmp_path / "log", environment=manager)
    daemon.start()
    try:
        loading = []
        while (lines := next_lines(listener))[0] != "READY=1":
            loading.append(lines)
        assert len(loading) > 2
        assert all(len(lines) == 1 and lines[0].startswith("STATUS=") for lines in loading)
        with socket.create_connection(("127.0.0.1", port), timeout=START_PATIENCE):
            assert f":{port}" in lines[1]
        assert [next_lines(listener) for _ in range(SIGNS)] == [["WATCHDOG=1"]] * SIGNS
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(end, daemon)
            while (lines := next_lines(listener)) == ["WATCHDOG=1"]:
                pass
        assert lines[0] == "STOPPING=1"
        ended.result().check()
    finally:
        daemon.stop()
