"""Commands that wait for a daemon that starts, without filling its log."""

from __future__ import annotations

import itertools
import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from common.process.lifetime import anybody_present
from device import daemon
from device.cli import connection, up
from device.cli.connection import ready_daemon
from device.cli.daemon import SILENCE_PATIENCE
from device.cli.failures import BAD_INPUT, NOT_REACHABLE, CommandFailed, bad_input
from device.cli.settings import load_device, local_url
from device.http.options import HttpOptions
from device.http.server import HttpServer
from device.settings import DeviceSettings
from tests.common.process.test_presence import at_work
from tests.device.cli.conftest import Dragon, closed_port
from tests.device.table_engine import TableEngine

LOOKS = 6  # at a daemon before it can answer


class Running:
    """Children of which none has ended."""

    def ended(self) -> dict[str, int]:
        return {}


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Lines of the daemon's log about requests."""
    caplog.set_level(logging.INFO)
    return lambda: [each.getMessage() for each in caplog.records if each.name == "device.http.request_guard"]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses of whoever waits, which take no time."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    return slept


def answering_later(
    server: HttpServer, engine: TableEngine, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have the server answer by the engine when somebody has waited `LOOKS` times."""

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == LOOKS:
            server.serve(engine)

    monkeypatch.setattr("time.sleep", sleep)


def test_a_command(
    engine: TableEngine, lines: Callable[[], list[str]], pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpServer(HttpOptions(port=0)) as server:
        answering_later(server, engine, pauses, monkeypatch)
        with ready_daemon(server.url) as daemon:
            assert daemon.status()["model"]
    assert len(pauses) == LOOKS
    assert lines() == []


def test_the_start_of_both(
    engine: TableEngine,
    lines: Callable[[], list[str]],
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with HttpServer(HttpOptions(port=0)) as server, socket.create_server(("127.0.0.1", 0)) as cloud:
        answering_later(server, engine, pauses, monkeypatch)
        port, bind = int(server.url.rpartition(":")[2]), f"tcp://127.0.0.1:{cloud.getsockname()[1]}"
        both: Any = Running()
        up._wait_until_ready(both, up.LaunchPlan([], [], DeviceSettings(data_dir=tmp_path), port, server.url, bind))
    assert f"the device at {server.url}" in capsys.readouterr().out
    assert lines() == []


class TestThisMachinesOwnDaemon:
    """A daemon that nobody, or somebody, starts."""

    @pytest.fixture
    def settings(self, dragon: Dragon, monkeypatch: pytest.MonkeyPatch) -> DeviceSettings:
        monkeypatch.setenv("DRAGON_DEVICE_PORT", str(closed_port()))
        return load_device()

    def test_nobody_starts_one(self, dragon: Dragon, settings: DeviceSettings) -> None:
        for command in (("ask", "q"), ("status",), ("trace", "q")):
            done = dragon(*command)
            assert (done.returncode, done.stdout) == (NOT_REACHABLE, "")
            assert (
                done.stderr
                == f"dragon: no device daemon answers at {local_url(settings)}; start one with `dragon up`\n"
            )

    def test_one_that_starts_is_waited_for_until_it_listens(
        self,
        settings: DeviceSettings,
        engine: TableEngine,
        pauses: list[float],
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        """For longer than the grace: the clock goes on by a minute between two looks."""
        with ExitStack() as stack:
            starter = stack.enter_context(at_work(settings.starting))

            def sleep(seconds: float) -> None:
                pauses.append(seconds)
                if len(pauses) == LOOKS:
                    server = stack.enter_context(HttpServer(HttpOptions(port=settings.port)))
                    server.serve(engine)
                    starter.kill()
                    starter.wait()

            monkeypatch.setattr("time.sleep", sleep)
            now = itertools.count(time.monotonic(), 60.0)
            monkeypatch.setattr(connection, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: next(now)))
            with ready_daemon(None) as daemon:
                assert daemon.status()["model"]
        assert len(pauses) == LOOKS
        assert capsys.readouterr().err == f"{connection.COMES}\n"

    def test_a_starter_that_dies_is_waited_for_no_longer(
        self, settings: DeviceSettings, pauses: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with at_work(settings.starting) as starter:

            def sleep(seconds: float) -> None:
                pauses.append(seconds)
                if len(pauses) == LOOKS:
                    starter.kill()
                    starter.wait()

            monkeypatch.setattr("time.sleep", sleep)
            with pytest.raises(CommandFailed, match="start one with `dragon up`"), ready_daemon(None):
                pass
            assert len(pauses) >= LOOKS

    def test_a_daemon_is_on_its_way_until_it_listens(
        self, dragon: Dragon, settings: DeviceSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: list[bool] = []

        def run(settings: DeviceSettings, listening: Callable[[], object]) -> None:
            seen.append(anybody_present(settings.starting))
            listening()
            seen.append(anybody_present(settings.starting))

        monkeypatch.setattr(daemon, "run_device", run)
        assert dragon("device").returncode == 0
        assert seen == [True, False]

    def test_both_are_on_their_way_until_they_answer(
        self, dragon: Dragon, settings: DeviceSettings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Also while nothing but the settings was read, which takes a process of its own."""
        seen: list[bool] = []

        def planned(device: DeviceSettings) -> up.LaunchPlan:
            seen.append(anybody_present(device.starting))
            raise bad_input("stop here")

        monkeypatch.setattr(up, "_planned", planned)
        assert dragon("up").returncode == BAD_INPUT
        assert seen == [True] and not anybody_present(settings.starting)

    def test_another_address_has_no_starter_here(self, settings: DeviceSettings, pauses: list[float]) -> None:
        failure = pytest.raises(CommandFailed, match="no device daemon")
        with at_work(settings.starting), failure, ready_daemon(local_url(settings)):
            pass
        assert not pauses


@pytest.mark.parametrize("page", [b"<html>unavailable</html>", b"\xff\xfe", b"[]"])
def test_a_proxy_that_answers_for_a_daemon_is_none_that_starts(page: bytes) -> None:
    """Its page is no JSON, or no text at all."""
    with (
        another_program(page, status=503) as url,
        pytest.raises(CommandFailed, match="503"),
        ready_daemon(url),
    ):
        pass


@contextmanager
def another_program(reply: bytes, status: int = 200) -> Iterator[str]:
    """The address of a program that answers every request so."""

    class Program(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if reply.startswith(b"data:") else "text/html")
            self.end_headers()
            self.wfile.write(reply)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Program) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (b'{"status": 404, "error": "Not Found"}', 404),
        (b'{"error": {"code": 404}}', 404),
        (b"[]", 404),
        (b'{"error": "Unexpected endpoint"}', 200),
        (b'{"status": "UP"}', 200),
        (b"<html></html>", 200),
        (b"\x80", 200),
    ],
    ids=str,
)
@pytest.mark.parametrize("command", [("ask", "q"), ("status",), ("chat",)], ids=lambda command: command[0])
def test_another_program_is_told_in_one_line(
    dragon: Dragon, reply: bytes, status: int, command: tuple[str, ...]
) -> None:
    with another_program(reply, status) as url:
        done = dragon(*command, "--url", url)
    said = "is not a dragon device daemon" if status == 200 else f"HTTP status {status}"
    assert (done.returncode, done.stdout, done.stderr.count("\n"), said in done.stderr) == (1, "", 1, True), done


@pytest.mark.parametrize(
    "event",
    [
        b"ping",
        b"3",
        b"[1]",
        b'{"error": "x"}',
        b'{"object": "ping"}',
        b'{"choices": [1]}',
        b'{"choices": [{"text": "x"}]}',
        b'{"choices": [{"delta": {"content": ["x"]}}]}',
        b'{"choices": [{"delta": {}}]}',
        b'{"choices": [{"delta": {}}], "dragon": null}',
    ],
    ids=str,
)
def test_another_program_s_stream_is_told_in_one_line(dragon: Dragon, event: bytes) -> None:
    with another_program(b"data: %s\n\ndata: [DONE]\n\n" % event) as url:
        done = dragon("ask", "q", "--url", url)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done
    assert "is not a dragon device daemon" in done.stderr


def test_a_stream_that_is_cut_off_within_a_line_is_the_daemon_s(dragon: Dragon) -> None:
    with another_program(b'data: {"choices": [{"delta": {"content": "Hel"}}]}\n\ndata: {"cho') as url:
        done = dragon("ask", "q", "--url", url)
    assert (done.returncode, done.stdout.strip()) == (1, "Hel")
    assert "the connection ended in the middle of the answer" in done.stderr


def test_a_silent_daemon_is_waited_for_longer_than_a_place_there() -> None:
    """The daemon says then that there is none."""
    assert HttpOptions().wait_patience + HttpOptions().keep_alive < SILENCE_PATIENCE
