"""Admission, statuses, limits and what is logged."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable, Iterator
from typing import ClassVar

import httpx
import pytest
from pydantic import ValidationError

from device.access.admission import ApiKeyGate
from device.access.api_keys import ApiKeyFiles
from device.http import metrics
from device.http.endpoints import ENDPOINTS
from device.http.options import HttpOptions
from device.http.server import HttpServer
from device.settings import DeviceSettings, origins_in
from tests.device.conftest import Serve
from tests.device.key_files import admission_of
from tests.device.table_engine import MODEL, WAIT, TableEngine

COMPLETIONS = "/v1/completions"


@pytest.fixture
def http(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as client:
        yield client


class TestHost:
    @pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8600", "127.0.0.1:1", "127.9.9.9", "[::1]:80"])
    def test_this_machines_names_are_served(self, http: httpx.Client, host: str) -> None:
        assert http.get("/health", headers={"host": host}).status_code == 200

    @pytest.mark.parametrize(
        "host",
        [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8600",
            "10.0.0.1",
            "",
            "[::1",
            "@",
        ],
    )
    def test_a_rebound_name_is_refused(self, http: httpx.Client, engine: TableEngine, host: str) -> None:
        body = {"model": "dragon", "prompt": "x"}
        for response in (
            http.get("/health", headers={"host": host}),
            http.post(COMPLETIONS, json=body, headers={"host": host}),
        ):
            assert response.status_code == 403
            assert response.json()["error"]["code"] == "host_not_allowed"
        assert not engine.generations


class TestOrigin:
    """A browser sends the origin of the page that asks; its Host header is always the address it connected to."""

    @pytest.mark.parametrize(
        "headers",
        [
            {"origin": "https://evil.example"},
            {"origin": "http://localhost:3000"},  # another server of this machine
            {"origin": "http://127.0.0.1"},
            {"origin": "null"},
            {"origin": ""},
            {"origin": "http://["},
            {"origin": "file://"},
            {"origin": "http://localhost:99999"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
            {"origin": "http://localhost:8600", "sec-fetch-site": "cross-site"},
        ],
    )
    def test_a_page_of_another_one_can_neither_ask_nor_read(
        self, http: httpx.Client, engine: TableEngine, headers: dict[str, str]
    ) -> None:
        everything = headers | {"host": "localhost:8600"}
        body = {"model": "dragon", "prompt": "x"}
        for response in (
            http.post(COMPLETIONS, json=body, headers=everything),
            http.get("/status", headers=everything),
            http.get("/v1/models", headers=everything),
            http.get("/nowhere", headers=everything),
            http.options(COMPLETIONS, headers=everything | {"access-control-request-method": "POST"}),
        ):
            assert (response.status_code, response.json()["error"]["code"]) == (403, "origin_not_allowed")
            assert not [name for name in response.headers if name.startswith("access-control")]
        assert http.get("/health", headers=everything).status_code == 200
        assert not engine.generations

    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"origin": "http://localhost:8600"},
            {"origin": "http://LOCALHOST:8600", "sec-fetch-site": "same-origin"},
            {"sec-fetch-site": "none"},
        ],
    )
    def test_its_own_pages_and_other_programs_may(self, http: httpx.Client, headers: dict[str, str]) -> None:
        assert http.get("/status", headers=headers | {"host": "localhost:8600"}).status_code == 200

    def test_behind_a_proxy_with_its_own_name(self, serve: Serve) -> None:
        url = serve(host="0.0.0.0", api_key="key").url
        with httpx.Client(base_url=url, timeout=WAIT, trust_env=False) as http:
            headers = {"host": "device.example", "authorization": "Bearer key"}
            for origin, status in (("https://device.example", 200), ("https://evil.example", 403), ("http://[", 403)):
                assert http.get("/status", headers=headers | {"origin": origin}).status_code == status

    def test_behind_a_proxy_on_this_machine(self, serve: Serve) -> None:
        """Whether or not it passes on its own name; another port of that name is another origin."""
        server = serve(allow_origins=frozenset({"https://device.example"}))
        page = {"origin": "https://device.example", "sec-fetch-site": "same-origin"}
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
            for host in ("device.example", "device.example:443", "127.0.0.1:8600"):
                assert http.post(COMPLETIONS, json={"prompt": "x"}, headers=page | {"host": host}).status_code == 200
                assert http.get("/status", headers={"host": host, "sec-fetch-site": "same-origin"}).status_code == 200
            for host in ("device.example:8600", "device.example.evil.example", "evil.example"):
                response = http.post(COMPLETIONS, json={"prompt": "x"}, headers=page | {"host": host})
                assert (response.status_code, response.json()["error"]["code"]) == (403, "host_not_allowed")


class TestAllowedOrigin:
    PAGE: ClassVar = {"origin": "http://localhost:3000", "sec-fetch-site": "same-site", "host": "localhost:8600"}

    @pytest.fixture
    def http(self, serve: Serve) -> Iterator[httpx.Client]:
        server = serve(allow_origins=frozenset({"http://localhost:3000"}), api_key="right")
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as client:
            yield client

    def test_its_pages_may_ask_and_read(self, http: httpx.Client) -> None:
        headers = self.PAGE | {"authorization": "Bearer right"}
        response = http.post(COMPLETIONS, json={"prompt": "x"}, headers=headers)
        assert response.status_code == 200
        assert response.headers["access-control-allow-origin"] == self.PAGE["origin"]
        assert response.headers["vary"] == "origin"

    def test_browsers_may_ask_for_permission_without_the_key(self, http: httpx.Client) -> None:
        asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
        response = http.options(COMPLETIONS, headers=self.PAGE | asked)
        assert response.status_code == 204
        assert response.headers["access-control-allow-headers"] == "authorization"

    def test_they_may_use_every_method_that_an_endpoint_has(self, http: httpx.Client) -> None:
        asked = self.PAGE | {"access-control-request-method": "DELETE"}
        allowed = http.options("/library/documents/1", headers=asked).headers["access-control-allow-methods"]
        assert set(allowed.split(", ")) == {each.method for each in ENDPOINTS} >= {"GET", "POST", "DELETE"}

    def test_its_pages_still_need_the_key_and_this_machines_name(self, http: httpx.Client) -> None:
        assert http.get("/status", headers=self.PAGE).status_code == 401
        rebound = self.PAGE | {"host": "evil.example", "access-control-request-method": "POST"}
        assert http.options(COMPLETIONS, headers=rebound).status_code == 403

    @pytest.mark.parametrize("origin", ["http://localhost:3001", "https://localhost:3000", "null", "*", ""])
    def test_no_other_page_may(self, http: httpx.Client, origin: str) -> None:
        headers = self.PAGE | {"origin": origin, "access-control-request-method": "POST"}
        for response in (http.options(COMPLETIONS, headers=headers), http.get("/status", headers=headers)):
            assert (response.status_code, response.json()["error"]["code"]) == (403, "origin_not_allowed")
            assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize("origin", ["*", "null", "localhost:3000", "http://localhost:3000/", "http://*.example", ""])
def test_what_is_no_origin_can_not_be_allowed(origin: str) -> None:
    with pytest.raises(ValidationError):
        DeviceSettings(allow_origins=f"http://localhost:3000,{origin}")


def test_several_origins_can_be_allowed() -> None:
    settings = DeviceSettings(allow_origins="http://localhost:3000, https://[::1]:8443,app://obsidian.md")
    assert origins_in(settings.allow_origins) == {"http://localhost:3000", "https://[::1]:8443", "app://obsidian.md"}


def test_an_origin_is_that_of_browsers_which_leave_default_ports_out() -> None:
    given = "https://app.example:443,http://[::1]:80,http://localhost:443,app://x:80"
    allowed = {"https://app.example", "http://[::1]", "http://localhost:443", "app://x:80"}
    assert origins_in(DeviceSettings(allow_origins=given).allow_origins) == allowed


class TestKey:
    def test_only_health_is_open(self, serve: Serve) -> None:
        server = serve(api_key="right")
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
            assert http.get("/health").status_code == http.get("/v1/health").status_code == 200
            for path in ("/status", "/v1/models", "/v1/models/x", "/models", "/openapi.json", "/nowhere"):
                response = http.get(path)
                assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
                assert response.headers["www-authenticate"] == "Bearer"

    @pytest.mark.parametrize(
        ("header", "status"),
        [
            ("Bearer right", 200),
            ("bearer  right", 200),
            ("Bearer right2", 401),
            ("Bearer righ", 401),
            ("Bearer", 401),
            ("Basic right", 401),
            ("right", 401),
        ],
    )
    def test_the_whole_key_is_needed(self, serve: Serve, header: str, status: int) -> None:
        server = serve(api_key="right")
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
            assert http.get("/status", headers={"authorization": header}).status_code == status

    def test_a_key_beyond_ascii_works(self, serve: Serve) -> None:
        server = serve(api_key="sésame")
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
            for key, status in (("sésame", 200), ("sesame", 401)):
                header = {b"authorization": f"Bearer {key}".encode()}
                assert http.get("/status", headers=header).status_code == status

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "device.example"])
    def test_binding_off_loopback_needs_one(self, key_files: ApiKeyFiles, host: str) -> None:
        none = ApiKeyGate(key_files)
        for admission in (None, none):
            with pytest.raises(ValueError, match="dragon api-keys create NAME"):
                HttpOptions(host=host, admission=admission)
        HttpOptions(host=host, admission=none, insecure=True)
        HttpOptions(host=host, admission=admission_of(key_files, "key"))


class TestStatuses:
    def test_unknown_path(self, http: httpx.Client) -> None:
        for path in ("/v1", "/v1/completion/", "/v1/audio/speech", "/docs"):
            response = http.get(path)
            assert response.status_code == 404, path
            assert response.json()["error"]["type"] == "invalid_request_error"

    def test_wrong_method(self, http: httpx.Client) -> None:
        response = http.get(COMPLETIONS)
        assert response.status_code == 405
        assert response.headers["allow"] == "POST"
        assert response.json()["error"]["code"] == "method_not_allowed"

    @pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
    def test_only_json_bodies(self, http: httpx.Client, engine: TableEngine, kind: str) -> None:
        data = b'{"model": "dragon", "prompt": "x"}'
        response = http.post(COMPLETIONS, content=data, headers={"content-type": kind})
        assert response.status_code == 415
        assert not engine.generations

    @pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'"x"', b'{"model": NaN}', b"\xff\xfe", b"[" * 100_000])
    def test_broken_json(self, http: httpx.Client, data: bytes) -> None:
        response = http.post(COMPLETIONS, content=data, headers={"content-type": "application/json"})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")

    def test_a_body_over_the_limit(self, http: httpx.Client) -> None:
        body = {"model": "dragon", "prompt": "x" * 2**20}
        response = http.post(COMPLETIONS, json=body)
        assert (response.status_code, response.json()["error"]["code"]) == (413, "body_too_large")

    def test_a_body_over_the_limit_without_a_declared_length(self, serve: Serve) -> None:
        server = serve(body_limit=1000)
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
            parts = (b" " * 100 for _ in range(20))
            response = http.post(COMPLETIONS, content=parts, headers={"content-type": "application/json"})
            assert response.status_code == 413


class TestStatusAndHealth:
    def test_health(self, http: httpx.Client) -> None:
        assert http.get("/health").json() == {"status": "ok"}

    def test_status_is_the_engines(self, http: httpx.Client) -> None:
        value = http.get("/status").json()
        assert value["model"] == MODEL
        assert value["chunks"] == 17
        assert value["version"]
        assert value["cloud"]["state"] == "connected"
        assert value["cloud"]["rtt_ms"] == 12.5

    def test_every_response_has_an_id_and_names_the_server(self, http: httpx.Client) -> None:
        responses = [http.get(path) for path in ("/health", "/status", "/nowhere")]
        assert len({response.headers["x-request-id"] for response in responses}) == 3
        assert all(response.headers["server"].startswith("dragon/") for response in responses)


def test_logs_hold_no_text_of_a_request(
    http: httpx.Client, engine: TableEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "canary-5417"
    engine.answers["q"] = [secret]
    for prompt in (secret, f"crash {secret}", f"unready {secret}", f"refuse {secret}", "q"):
        for stream in (False, True):
            http.post(COMPLETIONS, json={"model": "dragon", "prompt": prompt, "stream": stream})
    http.post(COMPLETIONS, json={"model": secret, "prompt": "x", secret: 1})
    for path, body in (
        ("/v1/responses", {"input": f"crash {secret}", "stream": True}),
        ("/v1/embeddings", {"input": [secret]}),
        ("/tokenize", {"content": secret}),
    ):
        http.post(path, json=body)
    http.get(f"/{secret}?{secret}", headers={"authorization": secret})
    wait_for(lambda: any("(other) 404" in told for told in caplog.messages))  # a request is logged after its response
    logged = "\n".join(
        f"{record.getMessage()} {record.exc_text} {record.exc_info}"
        for record in caplog.records
        if not record.name.startswith(("httpx", "httpcore"))
    )
    assert "POST /v1/completions 200" in logged
    assert "RuntimeError" in logged
    assert "OSError" in logged
    assert secret not in logged


def wait_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.01)


class TestStrangers:
    """Requests that need no key, as many as anybody likes to send."""

    def test_their_requests_are_counted(self, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        server = serve("right", allow_origins=frozenset({"https://own.example"}))
        asks = {"origin": "https://own.example", "access-control-request-method": "POST"}
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
            for _ in range(20):
                assert http.get("/health").status_code == 200
                assert http.get("/").status_code == 200
                assert http.post("/health").status_code == 405
                assert http.options("/status", headers=asks).status_code == 204
        server.stop()
        told = [record.getMessage() for record in caplog.records if record.name.startswith("device.")]
        assert told == ["requests without a key: 20 x /health 405, 20 x /status 204"]

    def test_they_are_told_of_while_the_server_runs(
        self, serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(metrics, "PERIOD", 0.01)
        caplog.set_level(logging.INFO)
        server = serve()
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
            http.post("/health")
            wait_for(lambda: "requests without a key: 1 x /health 405" in caplog.messages)

    def test_polls_that_succeed_do_not_fill_the_log(self, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
        """The page and `dragon up` send them every few seconds."""
        caplog.set_level(logging.INFO)
        server = serve()
        with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http:
            for path in ("/health", "/v1/health", "/status", "/metrics", "/", "/page/modules/main.js"):
                assert http.get(path).status_code == 200, path
            assert http.get("/v1/models").status_code == 200
            assert http.get("/status", headers={"origin": "https://other.example"}).status_code == 403
        server.stop()
        told = [record.getMessage().split()[1:4] for record in caplog.records if record.name.startswith("device.")]
        assert told == [["GET", "/v1/models", "200"], ["GET", "/status", "403"]]

    def test_nor_do_those_of_a_start(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        with (
            HttpServer(HttpOptions(port=0)) as server,
            httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as http,
        ):
            for path in ("/health", "/status"):
                assert http.get(path).status_code == 503
            assert http.get("/v1/models").status_code == 503
        told = [record.getMessage().split()[1:4] for record in caplog.records if record.name.startswith("device.")]
        assert told == [["GET", "/v1/models", "503"]]

    def test_a_summary_is_short_whatever_was_asked(self) -> None:
        counts: dict[metrics.Kind, int] = {
            (f"/page/{number}.js", status): number for number in range(99) for status in (200, 304, 405)
        }
        text = metrics.summarise_counts(counts)
        assert len(text) < 300
        assert text.startswith("98 x /page/98.js 200, ") and text.endswith(" others")
        assert sum(int(part.split()[0]) for part in text.split(", ")) == 3 * sum(range(99))

    def test_what_is_no_http_fills_no_log(self, serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
        server = serve("right")
        host, port = server.url.removeprefix("http://").split(":")
        for _ in range(60):
            with socket.create_connection((host, int(port)), timeout=WAIT) as broken:
                broken.sendall(b"what is this\r\n\r\n")
                while broken.recv(4096):
                    pass
        told = [text for text in caplog.messages if "Invalid HTTP request" in text]
        assert 5 <= len(told) <= 30  # five at once, one in five seconds on a machine however slow
