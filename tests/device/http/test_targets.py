"""Paths as clients write them, and names of models."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import httpx
import pytest

from device.http.server import HttpServer
from device.settings import names_in
from tests.device.conftest import Serve
from tests.device.table_engine import WAIT, TableEngine

CHAT = "/v1/chat/completions"
BODY: dict[str, object] = {"messages": [{"role": "user", "content": "a b"}]}


@pytest.fixture
def client(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as client:
        yield client


def fetched(server: HttpServer, target: str, host: str = "") -> tuple[int, bytes]:
    """Status and body of a GET of `target` as it stands."""
    place = server.url.removeprefix("http://")
    connection = http.client.HTTPConnection(place, timeout=WAIT)
    try:
        connection.putrequest("GET", target, skip_host=True)
        connection.putheader("Host", host or place)
        connection.endheaders()
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    "path",
    ["/v1//chat/completions", "//v1/chat/completions", f"/v1{CHAT}", f"/v1/v1{CHAT}", f"{CHAT}/", f"//v1/{CHAT}/"],
)
def test_a_path_that_says_what_is_meant_is_served(client: httpx.Client, path: str) -> None:
    assert client.post(path, json=BODY).json()["choices"][0]["message"]["content"] == "a b"


@pytest.mark.parametrize("path", ["/v1/chat/completion", "/v1", "/v2/models", "/library/documents/1/2"])
def test_another_path_is_told_what_there_is(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (404, "unknown_path")
    assert "/openapi.json" in error["message"] and "/v1" in error["message"]


class TestAbsoluteForm:
    def test_it_is_served_as_its_path(self, server: HttpServer) -> None:
        for target in (f"{server.url}/v1/models", f"{server.url.upper().replace('HTTP', 'http')}//v1/models/"):
            status, body = fetched(server, target)
            assert (status, b'"dragon"' in body) == (200, True)
        assert fetched(server, server.url)[0] == 200  # the page

    def test_of_another_host_it_is_refused(self, server: HttpServer) -> None:
        assert fetched(server, "http://evil.example/v1/models")[0] == 400
        assert fetched(server, "http://evil.example/v1/models", host="evil.example")[0] == 403

    def test_a_key_is_asked_for_as_ever(self, serve: Serve) -> None:
        server = serve(api_key="right")
        assert fetched(server, f"{server.url}/v1/models")[0] == 401
        assert fetched(server, f"{server.url}/health")[0] == 200


class TestModels:
    def test_another_one_is_not_found(self, client: httpx.Client, engine: TableEngine) -> None:
        bodies: dict[str, dict[str, object]] = {
            CHAT: BODY,
            "/v1/responses": {"input": "a"},
            "/v1/completions": {"prompt": "a"},
        }
        for path, body in bodies.items():
            answer = client.post(path, json=body | {"model": "gpt-4o"})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
            assert "model_aliases" in error["message"]
        assert not engine.generations

    def test_an_alias_is_served(self, serve: Serve) -> None:
        server = serve(model_aliases=names_in("gpt-4o, gpt-5"))
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as client:
            assert client.post(CHAT, json=BODY | {"model": "gpt-5"}).status_code == 200
            assert client.post(CHAT, json=BODY | {"model": "gpt-9"}).status_code == 404
            assert client.get("/v1/models/gpt-4o").json()["id"] == "gpt-4o"
            assert [each["id"] for each in client.get("/v1/models").json()["data"]][-2:] == ["gpt-4o", "gpt-5"]

    def test_any_may_be_one(self, serve: Serve) -> None:
        server = serve(model_aliases=names_in("*"))
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as client:
            assert client.post(CHAT, json=BODY | {"model": "gpt-9"}).status_code == 200
            assert "*" not in [each["id"] for each in client.get("/v1/models").json()["data"]]
