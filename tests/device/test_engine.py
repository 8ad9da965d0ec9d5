"""The device's real engine behind the HTTP interface: what a request costs the library."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from common.configuration.configuration import load_settings
from common.daemon.side import SideRuntime
from device.engine import DeviceEngine
from device.http.options import HttpOptions
from device.http.server import HttpServer
from device.settings import DeviceSettings
from tests.daemons.streaming import wait_until

NOTES = {"rabbit.md": "My rabbit is called Yarszis.", "dance.md": "My dance class is at Delthcine House."}


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideRuntime]:
    folder = tmp_path_factory.mktemp("engine")
    notes = folder / "notes"
    notes.mkdir()
    for name, text in NOTES.items():
        (notes / name).write_text(text)
    overrides = {"data": folder / "device", "cloud": "none", "threads": 1, "document_store_bytes": 0}
    settings = load_settings(DeviceSettings, overrides=overrides)
    runtime = SideRuntime("device", settings, draft=settings.draft)
    runtime.library.add(notes)
    yield runtime
    runtime.close()


@pytest.fixture
def http(side: SideRuntime) -> Iterator[httpx.Client]:
    settings = side.settings
    assert isinstance(settings, DeviceSettings)
    engine = DeviceEngine(settings, side)
    with HttpServer(HttpOptions(port=0)).serve(engine) as server:
        engine.start(None)
        with httpx.Client(base_url=server.url, timeout=60, trust_env=False) as client:
            yield client
        engine.close()


@pytest.fixture
def statements(side: SideRuntime) -> Iterator[list[str]]:
    """Statements that the library's database executes from here on."""
    seen: list[str] = []
    connection: sqlite3.Connection = side.library._store._database._connection
    connection.set_trace_callback(seen.append)
    yield seen
    connection.set_trace_callback(None)


def scans(statements: list[str]) -> list[str]:
    """Statements whose cost grows with the library."""
    return [text for text in statements if "count(" in text or (" FROM files" in text and "WHERE" not in text)]


def test_no_request_lists_or_counts_the_library(http: httpx.Client, statements: list[str]) -> None:
    known = http.get("/status").json()
    assert (known["documents"], known["chunks"]) == (2, 2)
    statements.clear()
    assert http.get("/v1/models").json()["data"][1]["id"] == "dragon-demo"
    assert http.get(f"/v1/models/{known['model']}").status_code == 200
    messages = [{"role": "user", "content": "What is the name of my rabbit?"}]
    body = {"model": "dragon", "messages": messages, "max_tokens": 2}
    answer = http.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["model"]) == (200, "dragon-demo")
    # Its reader hears of an answer's end before it is counted.
    wait_until(lambda: http.get("/status").json()["served"] == known["served"] + 1, "the answer is counted")
    assert http.get("/status").json()["documents"] == 2
    assert any("FROM commits" in text for text in statements), "the search was seen"
    assert not scans(statements)


@pytest.mark.parametrize("fields", [{}, {"sources": "device"}, {"privacy": "offline"}], ids=str)
def test_without_a_cloud_the_devices_documents_tell_what_is_far(http: httpx.Client, fields: dict[str, str]) -> None:
    body = {"model": "dragon", "max_tokens": 2, "unmatched": "refuse"} | fields
    for question, near in (("What is the name of my rabbit?", True), ("How many planets orbit the star Vega?", False)):
        asked = body | {"messages": [{"role": "user", "content": question}]}
        report = http.post("/v1/chat/completions", json=asked).json()["dragon"]
        assert (report["unmatched"], report["refused"]) == (not near, not near), report["closest"]


def test_a_listing_of_models_does_not_touch_the_library(http: httpx.Client, statements: list[str]) -> None:
    assert http.get("/v1/models").status_code == 200
    assert http.get("/v1/models/another").status_code == 404
    assert not statements


def test_status_sees_what_changed(http: httpx.Client, side: SideRuntime, tmp_path: Path) -> None:
    (tmp_path / "new.md").write_text("My kettle is from Yormcrus.")
    side.library.add(tmp_path)
    assert http.get("/status").json()["documents"] == 3
    side.library.remove([tmp_path])
    assert http.get("/status").json()["documents"] == 2


def test_a_seed_that_is_drawn_is_one_that_every_reader_of_json_keeps(http: httpx.Client) -> None:
    """JavaScript, for one, has no other numbers than floats: a seed that it rounds gives another answer."""
    body = {"messages": [{"role": "user", "content": "What is my rabbit called?"}], "max_tokens": 1}
    seeds = [http.post("/v1/chat/completions", json=body).json()["dragon"]["seed"] for _ in range(4)]
    assert all(0 <= seed < 2**53 and int(float(seed)) == seed for seed in seeds) and len(set(seeds)) == len(seeds)


def test_pieces_of_a_text(http: httpx.Client) -> None:
    tokens = http.post("/tokenize", json={"content": "My rabbit", "with_pieces": True}).json()["tokens"]
    assert "".join(each["piece"] for each in tokens) == "My rabbit" and len(tokens) > 1


class TestALongConversation:
    """Of short questions, but for the first one."""

    def ask(self, http: httpx.Client, words: int, last: str = "My rabbit is called what?", **fields: Any) -> Any:
        told = [("user", "kettle " * words), ("assistant", "Yes."), ("user", last)]
        messages = [{"role": role, "content": content} for role, content in told]
        return http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 4} | fields).json()

    def test_that_leaves_documents_little_room_is_told_of(self, http: httpx.Client, side: SideRuntime) -> None:
        fewer, more = (self.ask(http, words, documents=0)["usage"]["prompt_tokens"] for words in (100, 101))
        notes = []
        for room in (100, 5):
            words = 100 + (side.decoder.max_context - fewer - 5 - room) // (more - fewer)
            report = self.ask(http, words, sources="device")["dragon"]
            assert len(report["sources"]) == len(NOTES)
            notes.append(report["notes"])
        assert notes[0] == []
        assert any("2 of 2 documents were cut or left out" in note for note in notes[1])

    def test_that_is_too_long(self, http: httpx.Client) -> None:
        for name, asked in (("conversation", (1100,)), ("question", (1, "kettle " * 1100))):
            error = self.ask(http, *asked)["error"]
            said = rf"The {name} has [\d,]+ tokens and the answer up to 4; the model's context holds 1,024"
            assert re.match(said, error["message"]) and error["code"] == "context_length_exceeded"
