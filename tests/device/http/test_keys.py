"""API keys at a server that runs: made, used, revoked, guessed at, and never told."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from device.access.admission import ApiKeyGate
from device.access.api_keys import ApiKeyFiles, new_key
from device.http.server import HttpServer
from tests.device.conftest import Serve
from tests.device.key_files import admission_of
from tests.device.table_engine import WAIT, TableEngine

GUESSES = 600
GUESSERS = 8
MOST_LINES = 40  # of a log; five at once and one in five seconds, on a machine however slow


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture
def served(serve: Serve, key_files: ApiKeyFiles) -> HttpServer:
    """A server that began without any key."""
    return serve(admission=ApiKeyGate(key_files))


@pytest.fixture
def http(served: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=WAIT, trust_env=False) as client:
        yield client


def ask(http: httpx.Client, key: str) -> int:
    return http.get("/status", headers=bearer(key)).status_code


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Lines that the server logged, without its clients, which are in the same process."""
    return [record for record in caplog.records if not record.name.startswith(("httpx", "httpcore", "asyncio"))]


class TestLife:
    def test_from_the_first_key_to_the_last(self, http: httpx.Client, key_files: ApiKeyFiles) -> None:
        assert http.get("/status").status_code == 200
        laptop = key_files.create("laptop")
        assert (http.get("/status").status_code, ask(http, laptop)) == (401, 200)
        page = key_files.create("page")
        key_files.revoke("laptop")
        assert (ask(http, laptop), ask(http, page)) == (401, 200)
        key_files.revoke("page")
        assert (http.get("/status").status_code, ask(http, page)) == (401, 401)
        assert ask(http, key_files.create("laptop")) == 200

    def test_this_users_commands_need_none(self, http: httpx.Client, key_files: ApiKeyFiles) -> None:
        key_files.create("laptop")
        assert ask(http, str(key_files.local())) == 200

    def test_a_damaged_file_is_told_and_lets_nobody_else_in(
        self, http: httpx.Client, key_files: ApiKeyFiles, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "device.http.request_guard")
        laptop = key_files.create("laptop")
        key_files.path.write_text("{")
        for headers in ({}, bearer(laptop), bearer("x")):
            response = http.get("/status", headers=headers)
            assert (response.status_code, response.json()["error"]["code"]) == (503, "api_keys_unreadable")
        assert http.get("/health").status_code == 200
        assert ask(http, str(key_files.local())) == 200
        for _ in range(100):
            assert http.get("/status").status_code == 503
        assert sum("are damaged" in record.getMessage() for record in caplog.records) == 1
        assert sum(" 503 " in record.getMessage() for record in caplog.records) <= MOST_LINES

    def test_an_address_in_use_leaves_the_local_key_of_its_daemon(
        self, served: HttpServer, http: httpx.Client, key_files: ApiKeyFiles
    ) -> None:
        from device.http.options import HttpOptions

        port = int(served.url.rpartition(":")[2])
        with pytest.raises(OSError):
            HttpServer(HttpOptions(port=port, admission=ApiKeyGate(key_files)))
        key_files.create("laptop")
        assert ask(http, str(key_files.local())) == 200


class TestPages:
    """A key opens nothing to pages of other origins, and a name that was rebound has none."""

    def test_with_a_key(self, http: httpx.Client, key_files: ApiKeyFiles) -> None:
        key = key_files.create("laptop")
        for headers, code in (
            ({"origin": "https://evil.example"}, "origin_not_allowed"),
            ({"sec-fetch-site": "cross-site"}, "origin_not_allowed"),
            ({"host": "evil.example"}, "host_not_allowed"),
        ):
            response = http.get("/status", headers=bearer(key) | headers)
            assert (response.status_code, response.json()["error"]["code"]) == (403, code)
            assert not [name for name in response.headers if name.startswith("access-control")]

    def test_a_rebound_name_off_loopback_lacks_the_key(self, serve: Serve) -> None:
        """There every name may be the machine's; the page's own key is kept by origin, and the rebound one has none."""
        url = serve("right", host="0.0.0.0").url.replace("0.0.0.0", "127.0.0.1")
        rebound = {"host": "evil.example", "origin": "http://evil.example", "sec-fetch-site": "same-origin"}
        assert httpx.get(f"{url}/status", headers=rebound, timeout=WAIT, trust_env=False).status_code == 401


class TestGuessing:
    def test_hundreds_of_wrong_keys_keep_nobody_out_and_fill_no_log(
        self, serve: Serve, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "device.http.request_guard")  # which has polls that succeed
        server = serve("right")
        refused: list[int] = []

        def guess() -> None:
            with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
                refused.extend(ask(http, new_key()) for _ in range(GUESSES // GUESSERS))

        guessers = [threading.Thread(target=guess) for _ in range(GUESSERS)]
        for thread in guessers:
            thread.start()
        asked = 0
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
            while any(thread.is_alive() for thread in guessers):
                assert ask(http, "right") == 200
                asked += 1
            assert ask(http, "right") == 200
        assert refused == [401] * GUESSES
        # Who is let in has a fair share of the turns, at the least.
        assert asked >= GUESSES // GUESSERS // 4
        told = [record.getMessage() for record in lines(caplog) if " 401 " in record.getMessage()]
        assert 5 <= len(told) <= MOST_LINES
        assert sum(" 200 " in record.getMessage() for record in lines(caplog)) >= asked

    def test_what_was_left_out_is_counted(self, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
        from common.process.threads import QuietLog

        caplog.set_level(logging.INFO)
        seconds = iter([0.0, *[0.0] * 9, 100.0])
        quiet = QuietLog(logging.getLogger("device.http.request_guard"), clock=lambda: next(seconds))
        for _ in range(10):
            quiet.tell(logging.INFO, "%s %s %s %s %.3f s", "req", "GET", "(other)", 401, 0.0)
        assert caplog.records[-1].getMessage() == "req GET (other) 401 0.000 s; 4 more were not logged"


def test_no_key_is_ever_told(
    serve: Serve, key_files: ApiKeyFiles, engine: TableEngine, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither a right one nor a wrong one, wherever a client writes it; not in logs, answers or the status."""
    caplog.set_level(logging.DEBUG)
    right, wrong = new_key(), new_key()
    server = serve(right)
    answers: list[str] = []
    with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
        for key in (right, wrong):
            for headers in (bearer(key), {"authorization": key}, {"authorization": f"Basic {key}"}, {"x-api-key": key}):
                for path in ("/status", f"/status?key={key}", f"/{key}", "/v1/models", f"/v1/models/{key}", "/"):
                    response = http.get(path, headers=headers)
                    answers += [response.text, *response.headers.values()]
        response = http.post("/v1/completions", json={"prompt": "crash now"}, headers=bearer(right))
        answers.append(response.text)
        known = http.get("/status", headers=bearer(right)).json()
    host, port = server.url.removeprefix("http://").split(":")
    for head in (f"GET / HTTP/1.1\r\nAuthorization: Bearer {right}\x00\r\n\r\n", f"{right} / HTTP/9\r\n\r\n"):
        with socket.create_connection((host, int(port)), timeout=WAIT) as broken:
            broken.sendall(head.encode())
            answers.append(broken.recv(65536).decode("latin-1"))
    logged = "\n".join(f"{record.getMessage()} {record.exc_text} {record.__dict__}" for record in lines(caplog))
    assert "RuntimeError" in logged and "Invalid HTTP request" in logged
    secrets = {part for key in (right, wrong) for part in (key, key.removeprefix("dragon-"))}
    secrets |= {each.sha256 for each in key_files.all()}
    for text in (logged, json.dumps(known), repr(key_files.all()), *answers):
        assert not [secret for secret in secrets if secret in text]
    assert "only" not in known and "keys" not in known
    assert all(generation.ended.wait(WAIT) for generation in engine.generations)


def test_admission_of_a_file_is_what_a_server_takes(key_files: ApiKeyFiles, serve: Serve) -> None:
    server = serve(admission=admission_of(key_files, "sésame"))
    with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
        header = {b"authorization": "Bearer sésame".encode()}
        assert http.get("/status", headers=header).status_code == 200
