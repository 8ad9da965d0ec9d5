"""Token ids and vectors of texts: how long a text may be, and who waits while one is read."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import httpx
import pytest

from common.engine.model.tokenizer import Tokenizer
from common.library.hit import Hit
from device.http.server import HttpServer
from device.http.tokens import LONGEST_TEXT
from device.interface import TextVectors
from tests.common.engine.model.tiny_models import sentencepiece_tokenizer
from tests.daemons.streaming import wait_until
from tests.device.conftest import Serve
from tests.device.table_engine import WAIT, TableEngine

QUESTION: list[Any] = [{"role": "user", "content": "one two"}]


@pytest.fixture
def http(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as client:
        yield client


class TestTokens:
    def test_there_and_back(self, http: httpx.Client) -> None:
        tokens = http.post("/tokenize", json={"content": "hi"}).json()["tokens"]
        assert tokens == [104, 105]
        assert http.post("/detokenize", json={"tokens": tokens}).json() == {"content": "hi"}
        pieces = http.post("/tokenize", json={"content": "hi", "with_pieces": True}).json()["tokens"]
        assert pieces == [{"id": 104, "piece": "h"}, {"id": 105, "piece": "i"}]

    def test_pieces_keep_their_spaces(
        self, http: httpx.Client, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By itself, a token of a tokenizer like Llama 2's has none."""
        tokenizer = Tokenizer(sentencepiece_tokenizer())
        for name in ("encode", "decode", "piece"):
            monkeypatch.setattr(engine, name, getattr(tokenizer, name))
        tokens = http.post("/tokenize", json={"content": "the the", "with_pieces": True}).json()["tokens"]
        assert "".join(each["piece"] for each in tokens) == " the the"

    def test_an_id_that_the_model_does_not_have(self, http: httpx.Client) -> None:
        response = http.post("/detokenize", json={"tokens": [256]})
        assert (response.status_code, response.json()["error"]["param"]) == (400, "tokens")

    @pytest.mark.parametrize(
        ("path", "name", "param"), [("/tokenize", "content", "content"), ("/v1/embeddings", "input", "input[0]")]
    )
    def test_a_text_is_as_long_as_one_go_reads(self, http: httpx.Client, path: str, name: str, param: str) -> None:
        assert http.post(path, json={name: "é" * (LONGEST_TEXT // 2)}).status_code == 200
        response = http.post(path, json={name: "é" * (LONGEST_TEXT // 2) + "x"})
        error = response.json()["error"]
        assert (response.status_code, error["code"], error["param"]) == (413, "text_too_long", param)
        assert str(LONGEST_TEXT) in error["message"] and "in parts" in error["message"]

    def test_long_texts_are_embedded_in_turns(
        self, http: httpx.Client, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        portions: list[int] = []
        embed = engine.embed

        def noting(texts: Sequence[str]) -> TextVectors:
            portions.append(len(texts))
            return embed(texts)

        monkeypatch.setattr(engine, "embed", noting)
        texts = ["x"] * 9 + ["x" * (LONGEST_TEXT // 2)] * 3
        answer = http.post("/v1/embeddings", json={"input": texts}).json()
        assert [item["index"] for item in answer["data"]] == list(range(12))
        assert portions == [8, 2, 2]

    def test_a_search_waits_for_no_whole_request(
        self, http: httpx.Client, engine: TableEngine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Empty:
            def search(self, query: str, count: int) -> list[Hit]:
                return []

        second, done = threading.Event(), threading.Event()
        embed = engine.embed

        def slowly(texts: Sequence[str]) -> TextVectors:
            if len(texts) == 1:
                second.set()
                assert done.wait(WAIT)
            return embed(texts)

        monkeypatch.setattr(engine, "embed", slowly)
        monkeypatch.setattr(engine, "documents", Empty(), raising=False)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(http.post, "/v1/embeddings", json={"input": ["x"] * 9})
            try:
                assert second.wait(WAIT)
                found = http.get("/library/search", params={"query": "x"}, timeout=WAIT / 2)
            finally:
                done.set()
            assert (found.json(), asked.result().status_code) == ({"hits": []}, 200)


class TestWaitingForTheTokenizer:
    """Nobody waits but those who need it, while it works and others stand in line."""

    @pytest.fixture
    def working(self, engine: TableEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
        """The tokenizer works until this is set."""
        done = threading.Event()
        encode = engine.encode

        def slowly(text: str) -> list[int]:
            assert done.wait(WAIT)
            return encode(text)

        monkeypatch.setattr(engine, "encode", slowly)
        yield done
        done.set()

    def test_others_are_answered_meanwhile(self, http: httpx.Client, working: threading.Event) -> None:
        def ask(number: int) -> int:
            body = ("/tokenize", {"content": "x"}) if number % 2 else ("/v1/completions", {"prompt": [104, 105]})
            return httpx.post(f"{http.base_url}{body[0]}", json=body[1], timeout=WAIT, trust_env=False).status_code

        with ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(ask, number) for number in range(12)]
            for _ in range(10):
                assert http.get("/health").status_code == http.get("/status").status_code == 200
                assert http.post("/v1/chat/completions", json={"messages": QUESTION}).status_code == 200
            assert not any(each.done() for each in asked)
            working.set()
            assert {each.result() for each in asked} == {200}

    def test_more_than_may_wait_are_told_to_come_again(self, serve: Serve, working: threading.Event) -> None:
        server = serve(max_waiting=1)

        def ask() -> int:
            return httpx.post(f"{server.url}/tokenize", json={"content": "x"}, timeout=WAIT).status_code

        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask) for _ in range(8)]
            refused = {next(as_completed(asked)).result()}
            working.set()
        assert refused == {429}
        assert {each.result() for each in asked} == {200, 429}

    def test_those_in_line_are_refused_when_the_daemon_stops(self, serve: Serve, engine: TableEngine) -> None:
        calls, first, stopped = list[str](), threading.Event(), threading.Event()
        encode, server = engine.encode, serve()

        def slowly(text: str) -> list[int]:
            calls.append(text)
            first.set()
            assert stopped.wait(WAIT)
            return encode(text)

        with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(9) as pool:
            patch.setattr(engine, "encode", slowly)
            asked = [
                pool.submit(httpx.post, f"{server.url}/tokenize", json={"content": "x"}, timeout=WAIT) for _ in range(8)
            ]
            assert first.wait(WAIT)
            stopping = pool.submit(server.stop)
            wait_until(lambda: not serves(server), "it stops", WAIT)
            stopped.set()
            stopping.result()
            statuses = [each.result().status_code if each.exception() is None else 503 for each in asked]
        assert statuses.count(503) >= 6 and len(calls) <= 2


def serves(server: HttpServer) -> bool:
    """Whether new requests are taken."""
    try:
        return httpx.get(f"{server.url}/health", timeout=WAIT, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
