"""The id of a request: in its headers, its answers and the log."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator

import httpx
import pytest

from device.http.server import HttpServer
from tests.daemons.streaming import wait_until
from tests.device.table_engine import WAIT, TableEngine

ID = re.compile(r"[0-9a-f]{8}")
BODY = {"model": "dragon", "prompt": "one two"}


@pytest.fixture
def http(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as client:
        yield client


def wait_for_line(caplog: pytest.LogCaptureFixture, start: str) -> None:
    """Wait until the log has a line that begins so: it is written when the response is on its way."""
    wait_until(lambda: any(line.startswith(start) for line in list(caplog.messages)), f"a line begins with {start}")


def test_an_answer_has_the_id_of_its_request(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    response = http.post("/v1/completions", json=BODY)
    identity = response.headers["x-request-id"]
    assert ID.fullmatch(identity)
    assert response.json()["dragon"]["request"] == identity
    assert response.json()["id"].startswith(f"cmpl-{identity}")
    wait_for_line(caplog, f"{identity} POST /v1/completions 200")
    assert "x-dragon-request" not in response.headers


def test_so_has_a_stream(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json=BODY | {"stream": True})
    chunks = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    assert chunks[-1]["dragon"]["request"] == response.headers["x-request-id"]


def test_of_several_answers_the_first_has_it(http: httpx.Client, engine: TableEngine) -> None:
    response = http.post("/v1/completions", json=BODY | {"n": 3, "temperature": 1})
    first, *others = (choice["dragon"]["request"] for choice in response.json()["choices"])
    assert first == response.headers["x-request-id"]
    assert first not in others


def test_a_refusal_has_one_too(http: httpx.Client) -> None:
    assert ID.fullmatch(http.post("/v1/completions", json=BODY | {"n": -1}).headers["x-request-id"])


class TestClientsOwn:
    @pytest.mark.parametrize("given", ["a", "trace-7.B_2", "x" * 64])
    def test_it_is_told_back_beside_the_daemons(
        self, http: httpx.Client, caplog: pytest.LogCaptureFixture, given: str
    ) -> None:
        caplog.set_level(logging.DEBUG)
        response = http.post("/v1/completions", json=BODY, headers={"x-request-id": given})
        assert response.headers["x-request-id"] == given
        assert response.json()["dragon"]["request"] == response.headers["x-dragon-request"]
        wait_for_line(caplog, f"{response.headers['x-dragon-request']} POST /v1/completions 200")
        told = [record.getMessage() for record in caplog.records if not record.name.startswith("httpc")]
        assert len(given) == 1 or not any(given in line for line in told)

    @pytest.mark.parametrize("given", ["", "x" * 65, "my words", "a\tb", "ä".encode(), "a,b", "<script>"])
    def test_another_one_is_ignored(self, http: httpx.Client, given: str | bytes) -> None:
        given = given.encode() if isinstance(given, str) else given
        response = http.get("/status", headers={b"x-request-id": given})
        assert ID.fullmatch(response.headers["x-request-id"])
        assert "x-dragon-request" not in response.headers
