"""The server of scrapes, and clients that want to keep others out of it."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx
import pytest

from common.metrics import server as module
from common.metrics.exposition import CONTENT_TYPE
from common.metrics.server import MOST_CONNECTIONS, MetricsServer
from common.transport.address import TransportError
from tests.daemons.streaming import wait_until

TEXT = b"# TYPE dragon_one gauge\ndragon_one 1.0\n"
SOON = 60.0  # seconds; a scrape takes milliseconds, on a machine that is not busy
LARGE = 2**24  # bytes, more than the system keeps for a client that does not read


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with MetricsServer("127.0.0.1:0") as server:
        server.serve(lambda: TEXT)
        yield server


def scrape(server: MetricsServer, path: str = "/metrics", method: str = "GET") -> httpx.Response:
    return httpx.request(method, f"http://{server.address}{path}", trust_env=False, timeout=SOON)


def connected(server: MetricsServer) -> socket.socket:
    host, _, port = server.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SOON)


class TestServing:
    def test_a_scrape_gets_the_text(self, server: MetricsServer) -> None:
        response = scrape(server)
        assert (response.status_code, response.content) == (200, TEXT)
        assert response.headers["content-type"] == CONTENT_TYPE
        assert scrape(server, "/metrics?name[]=x").content == TEXT

    def test_nothing_else_is_there(self, server: MetricsServer) -> None:
        assert scrape(server, "/").status_code == 404
        assert scrape(server, method="POST").status_code == 405
        head = scrape(server, method="HEAD")
        assert (head.status_code, head.content) == (200, b"")

    def test_while_starting_it_says_so(self) -> None:
        with MetricsServer("127.0.0.1:0") as server:
            assert scrape(server).status_code == 503

    def test_a_failure_is_told_by_its_type_and_ends_nothing(
        self, server: MetricsServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails() -> bytes:
            raise RuntimeError("a secret")

        server.serve(fails)
        with caplog.at_level(logging.DEBUG):
            assert scrape(server).status_code == 500
        assert "RuntimeError" in caplog.text
        assert "a secret" not in caplog.text
        server.serve(lambda: TEXT)
        assert scrape(server).content == TEXT

    def test_a_taken_port_is_told_in_a_sentence(self, server: MetricsServer) -> None:
        with pytest.raises(TransportError, match=r"can't listen on .* for metrics .*--metrics"):
            MetricsServer(server.address)

    @pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 64], ids=["unknown", "empty", "long"])
    def test_an_address_that_is_not_ours_is_told_too(self, host: str) -> None:
        with pytest.raises(TransportError, match=r"can't listen on .*:9464 for metrics \(.+\); .*--metrics"):
            MetricsServer(f"{host}:9464")


class TestHostile:
    def test_silent_clients_neither_block_others_nor_add_up(self, server: MetricsServer) -> None:
        threads = threading.active_count()
        with ExitStack() as stack:
            for _ in range(3 * MOST_CONNECTIONS):
                stack.enter_context(connected(server))
            assert scrape(server).content == TEXT
            assert server.connections <= MOST_CONNECTIONS
            assert threading.active_count() == threads

    @pytest.mark.parametrize("sent", [b"", b"GET /metrics HTT", b"x" * 9000])
    def test_a_client_without_a_request_is_cut(
        self, server: MetricsServer, monkeypatch: pytest.MonkeyPatch, sent: bytes
    ) -> None:
        monkeypatch.setattr(module, "PATIENCE", 0.2)
        with connected(server) as client:
            client.sendall(sent)
            with suppress(ConnectionResetError):  # which is as well: what it sent was not read
                while client.recv(100):  # the refusal of what is no request
                    pass
        wait_until(lambda: server.connections == 0, "the connection is gone", SOON)

    def test_a_client_that_does_not_read_is_cut(self, server: MetricsServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "PATIENCE", 0.2)
        server.serve(lambda: b"#" * LARGE)
        with connected(server) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            wait_until(lambda: server.connections == 0, "the connection is gone", SOON)
            monkeypatch.undo()  # nor is the next client cut on a busy machine
            server.serve(lambda: TEXT)
            assert scrape(server).content == TEXT

    def test_it_ends_at_once_whoever_is_connected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_ENDING", SOON)
        monkeypatch.setattr(module, "PATIENCE", 10 * SOON)  # so that it is not the clients' end that ends it
        with ExitStack() as stack:
            server = stack.enter_context(MetricsServer("127.0.0.1:0"))
            for _ in range(5):
                stack.enter_context(connected(server))
            wait_until(lambda: server.connections == 5, "all are connected", SOON)
            server.__exit__(None, None, None)
            assert not server._thread.is_alive()
            with pytest.raises(OSError):
                connected(server)
