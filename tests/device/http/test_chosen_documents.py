"""Fields that choose documents, and files in bodies: what reaches the engine, and what is refused."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any, NoReturn

import httpx
import pytest

from common.answer.request import AnswerFailed, Request
from common.processors.trial import always
from device.http.errors import ApiError
from device.http.options import HttpOptions
from device.interface import Tell
from tests.device.conftest import Serve
from tests.device.http.asking import ask_chat, ask_completion, chat, turn
from tests.device.http.test_connections import connect, post
from tests.device.table_engine import WAIT, TableEngine

ASKED = turn("user", "one two")


def file(name: str = "a.txt", content: bytes = b"text") -> dict[str, str]:
    return {"name": name, "content": b64encode(content).decode()}


def test_patterns_and_files_reach_the_engine() -> None:
    request = chat(
        ASKED, device_documents=["journal/**", "tag:work"], cloud_documents="tag:faq", files=[file(content=b"\0\xff")]
    )
    assert (request.device_documents, request.cloud_documents) == (("journal/**", "tag:work"), ("tag:faq",))
    assert [(each.name, each.content) for each in request.files] == [("a.txt", b"\0\xff")]
    assert "xff" not in repr(request)  # they are private


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"device_documents": ["ok", "/etc/passwd"]}, "device_documents"),
        ({"cloud_documents": ["x"] * 17}, "cloud_documents"),
        ({"cloud_documents": ["x" * 257]}, "cloud_documents"),
        ({"cloud_documents": 7}, "cloud_documents"),
        ({"device_documents": [["a"]]}, "device_documents"),
        ({"device_document": ["journal"]}, "device_document"),
        ({"devise_documents": ["journal"]}, "devise_documents"),
        ({"files": [file()] * 17}, "files"),
        ({"files": "a.txt"}, "files"),
        ({"files": [{"name": "a.txt", "content": "not base64!"}]}, "files[0].content"),
        ({"files": [{"name": "a.txt"}]}, "files[0].content"),
        ({"files": [file() | {"path": "/etc/passwd"}]}, "files[0].path"),
        ({"files": [file("")]}, "files[0].name"),
        ({"files": [file()], "n": 2}, "files"),
    ],
    ids=range(14),
)
def test_what_can_not_be_followed_is_refused(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        ask_chat(ASKED, **fields)
    assert (refused.value.status, refused.value.param) == (400, param)
    assert "passwd" not in refused.value.message


def test_files_go_with_one_prompt() -> None:
    with pytest.raises(ApiError) as refused:
        ask_completion(prompt=["one", "two"], files=[file()])
    assert refused.value.param == "files"


def test_a_body_with_files_may_be_larger(serve: Serve, engine: TableEngine) -> None:
    options = HttpOptions()
    server = serve()
    large = file("a.pdf", bytes(options.body_limit))
    body = {"model": "dragon", "messages": [ASKED]}
    with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
        answer = client.post("/v1/chat/completions", json=body | {"files": [large]})
        assert answer.status_code == 200
        assert len(engine.generation().request.files[0].content) == options.body_limit
        refused = client.post(
            "/v1/chat/completions",
            content=b" " * (options.files_limit + 1),
            headers={"content-type": "application/json"},
        )
        assert (refused.status_code, refused.json()["error"]["code"]) == (413, "body_too_large")
        other = client.post("/v1/embeddings", json={"model": "dragon", "input": "x" * options.body_limit})
        assert other.status_code == 413


@pytest.mark.parametrize(("fields", "status"), [({"files": [file("a.pdf", bytes(2**20))]}, 200), ({}, 413)])
def test_so_may_one_that_does_not_say_its_size(
    serve: Serve, engine: TableEngine, fields: dict[str, Any], status: int
) -> None:
    content = json.dumps({"model": "dragon", "messages": [ASKED]} | fields).encode()
    content += b" " * (2**21 - len(content))
    answer = httpx.post(
        f"{serve().url}/v1/chat/completions",
        content=(content[start : start + 2**18] for start in range(0, len(content), 2**18)),
        headers={"content-type": "application/json"},
        timeout=60,
        trust_env=False,
    )
    assert answer.status_code == status


def test_reading_is_told_that_its_client_has_left(
    serve: Serve, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, ended = threading.Event(), threading.Event()

    def reading(
        request: Request, tell: Tell, number: int | None = None, wanted: Callable[[], bool] = always
    ) -> NoReturn:
        begun.set()
        while wanted():
            time.sleep(0.01)
        ended.set()
        raise AnswerFailed("nobody waits")

    monkeypatch.setattr(engine, "generate", reading)
    server = serve(max_active=1)
    body: dict[str, Any] = {"model": "dragon", "messages": [ASKED], "files": [file()]}
    with connect(server) as client:
        client.sendall(post("/v1/chat/completions", body))
        assert begun.wait(WAIT)
    assert ended.wait(WAIT)
    monkeypatch.undo()
    assert httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=WAIT, trust_env=False).status_code == 200
