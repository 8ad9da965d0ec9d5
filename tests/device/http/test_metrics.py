"""`GET /metrics` of the HTTP interface."""

from __future__ import annotations

import logging

import httpx
import pytest

from device.http.options import HttpOptions
from device.http.server import HttpServer
from tests.daemons.streaming import wait_until
from tests.device.conftest import Serve
from tests.device.table_engine import WAIT, TableEngine
from tests.support.metrics import Metrics

CANARY = "canary-8143"


@pytest.fixture
def http(serve: Serve) -> httpx.Client:
    return httpx.Client(base_url=serve().url, timeout=WAIT, trust_env=False)


def scraped(http: httpx.Client) -> Metrics:
    response = http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Metrics(response.text)


def test_the_engines_come_with_the_interfaces_own(http: httpx.Client) -> None:
    with http:
        http.get("/status")
        http.post("/v1/completions", json={"model": "dragon", "prompt": 7.5})
        found = scraped(http)
    assert found["dragon_table"] == 1
    assert found["dragon_num_requests_waiting"] == 0
    assert found.of("dragon_http_responses_total", status="200") == 1
    assert found.of("dragon_http_responses_total", status="400") == 1


def test_answers_in_line_are_counted(serve: Serve, engine: TableEngine) -> None:
    engine.allowed = 0
    server = serve(max_active=1)
    body = {"model": "dragon", "prompt": "one two", "n": 3, "temperature": 1, "stream": True}
    with (
        httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http,
        http.stream("POST", "/v1/completions", json=body) as stream,
    ):
        assert stream.status_code == 200
        assert scraped(http)["dragon_num_requests_waiting"] == 2
        engine.allowed = None
        engine.generation().allow(100)


def test_scrapes_do_not_fill_the_log(http: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with http:
        scraped(http)
        http.get("/v1/models")
    wait_until(lambda: any("GET /v1/models" in line for line in list(caplog.messages)), "what came behind it is told")
    told = [record.getMessage() for record in caplog.records if record.name.startswith("device")]
    assert not any("/metrics" in line for line in told)


def test_they_need_the_key(serve: Serve) -> None:
    server = serve(api_key="the key")
    with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
        assert http.get("/metrics").status_code == 401
        assert http.get("/metrics", headers={"authorization": "Bearer the key"}).status_code == 200


def test_no_series_is_named_by_a_client(http: httpx.Client) -> None:
    with http:
        http.get(f"/{CANARY}", headers={"x-request-id": CANARY})
        http.post("/v1/completions", json={"model": CANARY, "prompt": f"crash {CANARY} x", CANARY: 1})
        assert CANARY not in http.get("/metrics").text


def test_while_starting_there_are_none() -> None:
    with HttpServer(HttpOptions(port=0)) as starting:
        assert httpx.get(f"{starting.url}/metrics", timeout=WAIT, trust_env=False).status_code == 503
