"""The interface over TLS: everything that it does in the clear, limits included."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from device.access.tls import trusting
from device.http import server as listening
from device.http.server import MOST_HANDSHAKES, HttpServer
from device.settings import TlsFiles
from tests.device.access.certificates import tls_files
from tests.device.conftest import Serve
from tests.device.table_engine import WAIT, TableEngine


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    return tls_files(tmp_path / "tls", "localhost", "127.0.0.1")


@pytest.fixture
def server(serve: Serve, files: TlsFiles) -> HttpServer:
    return serve("right", tls=files)


@pytest.fixture
def http(server: HttpServer, files: TlsFiles) -> Iterator[httpx.Client]:
    headers = {"authorization": "Bearer right"}
    with httpx.Client(
        base_url=server.url, headers=headers, verify=trusting(files.certificate), timeout=WAIT, trust_env=False
    ) as client:
        yield client


def address(server: HttpServer) -> tuple[str, int]:
    return "127.0.0.1", int(server.url.rpartition(":")[2])


class TestInterface:
    def test_answers_status_and_page(self, http: httpx.Client, engine: TableEngine) -> None:
        assert str(http.base_url).startswith("https://127.0.0.1:")
        assert http.get("/status").json()["cloud"]["state"] == "connected"
        assert http.get("/", headers={"authorization": ""}).headers["content-security-policy"].startswith("default-src")
        body = {"model": "dragon", "prompt": "q", "stream": True}
        with http.stream("POST", "/v1/completions", json=body) as response:
            assert [*response.iter_lines()][-2:] == ["data: [DONE]", ""]

    def test_the_official_client(self, server: HttpServer, files: TlsFiles, engine: TableEngine) -> None:
        with openai.DefaultHttpxClient(verify=trusting(files.certificate), trust_env=False) as trust:
            client = openai.OpenAI(
                base_url=f"{server.url}/v1", api_key="right", http_client=trust, max_retries=0, timeout=WAIT
            )
            messages: list[Any] = [{"role": "user", "content": "let me in"}]
            answer = client.chat.completions.create(model="dragon", messages=messages)
            assert answer.choices[0].message.content == "let me in"

    def test_the_page_of_its_own_origin_only(self, http: httpx.Client) -> None:
        own = str(http.base_url).rstrip("/")
        for origin, status in ((own, 200), (own.replace("https", "http"), 200), ("https://evil.example", 403)):
            assert http.get("/status", headers={"origin": origin}).status_code == status
        assert http.get("/status", headers={"host": "evil.example"}).status_code == 403

    def test_whoever_does_not_trust_the_certificate_sends_nothing(self, server: HttpServer) -> None:
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(f"{server.url}/status", timeout=WAIT, trust_env=False)

    def test_nothing_is_answered_in_the_clear(self, server: HttpServer) -> None:
        with socket.create_connection(address(server), timeout=WAIT) as plain:
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP" not in plain.recv(4096)


class TestSilentClients:
    def test_they_keep_nobody_out(self, server: HttpServer, http: httpx.Client) -> None:
        silent = [socket.create_connection(address(server), timeout=WAIT) for _ in range(3 * MOST_HANDSHAKES)]
        try:
            assert http.get("/status").status_code == 200
            # Of those that came first, the server has let go.
            assert silent[0].recv(1) == b""
            assert len(server.listener._under_way) <= MOST_HANDSHAKES
        finally:
            for each in silent:
                each.close()

    def test_a_connection_in_use_is_none_of_them(self, server: HttpServer, http: httpx.Client) -> None:
        assert http.get("/status").status_code == 200
        silent = [socket.create_connection(address(server), timeout=WAIT) for _ in range(2 * MOST_HANDSHAKES)]
        try:
            assert silent[0].recv(1) == b""
            used = http.get("/status")
            assert used.status_code == 200
        finally:
            for each in silent:
                each.close()

    def test_a_handshake_that_does_not_come_is_given_up(
        self, serve: Serve, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(listening, "HANDSHAKE_PATIENCE", 0.05)
        server = serve(tls=files)
        began = time.monotonic()
        with socket.create_connection(address(server), timeout=WAIT) as silent:
            assert silent.recv(1) == b""
        assert time.monotonic() - began < WAIT
