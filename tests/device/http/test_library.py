"""`/library` over HTTP: a real library, and the files that uploads are, with a watcher that reads them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from common.library.commands import open_library
from common.library.database import writer_lock
from common.library.library import Library
from common.library.readers.formats import SUFFIXES
from common.library.watching import FolderWatcher
from device.access.api_keys import ApiKeyFiles
from device.documents import OwnDocuments
from device.http import app
from device.http.library import listing_json
from device.http.options import HttpOptions
from device.http.server import HttpServer
from device.interface import Listing
from device.settings import DeviceSettings
from tests.device.key_files import admission_of
from tests.device.table_engine import WAIT, TableEngine

PATIENCE = 300.0  # seconds; the reader lets everybody else go first
FILE = {"content-type": "application/octet-stream"}

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> DeviceSettings:
    return DeviceSettings(data=tmp_path_factory.mktemp("data"), document_store_bytes=0)


@pytest.fixture(scope="module")
def library(settings: DeviceSettings) -> Iterator[Library]:
    with open_library(settings) as library:
        yield library


@pytest.fixture(scope="module")
def client(settings: DeviceSettings, library: Library) -> Iterator[httpx.Client]:
    engine = TableEngine()
    engine.documents = OwnDocuments(settings, library, library.search)
    with (
        HttpServer(HttpOptions(port=0)).serve(engine) as server,
        httpx.Client(base_url=server.url, timeout=WAIT) as client,
    ):
        yield client


def refused(response: httpx.Response, status: int, words: str) -> None:
    error = response.json()["error"]
    assert (response.status_code, words in error["message"]) == (status, True), response.text


def until(seen: Callable[[], object], expected: object) -> None:
    deadline = time.monotonic() + PATIENCE
    while (found := seen()) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.5)


def names(client: httpx.Client) -> list[str]:
    return [document["path"] for document in client.get("/library").json()["documents"]]


def test_a_document_comes_is_found_opened_and_forgotten(
    client: httpx.Client, settings: DeviceSettings, library: Library, tmp_path: Path
) -> None:
    """One watcher for all: it is a process that imports for seconds."""
    words = "The bicycle has six gears, très bien."
    (tmp_path / "bicycle.txt").write_bytes(words.encode("latin-1"))
    watcher = FolderWatcher(settings, library)
    try:
        made = client.post(
            "/library/documents", params={"name": "viola.md"}, content=b"# Viola\n\non Monday", headers=FILE
        )
        assert (made.status_code, made.json()) == (201, {"name": "viola.md", "bytes": 18, "replaced": False})
        folder = {"path": str(tmp_path)}
        # 409 while the watcher reads the upload.
        until(lambda: client.post("/library/folders", json=folder).status_code, 202)
        until(lambda: sorted(names(client)), ["bicycle.txt", "viola.md"])
        (hit,) = client.get("/library/search", params={"query": "gears of a bicycle", "count": 1}).json()["hits"]
        assert (hit["path"], hit["text"]) == ("bicycle.txt", words)
        passage = client.get(f"/library/passages/{hit['chunk']}").json()
        assert passage == {name: hit[name] for name in ("chunk", "title", "path", "place", "text")}

        listed = client.get("/library").json()
        assert listed["watched"] == sorted([str(settings.uploads), str(tmp_path)])
        assert {reading["root"]: reading["skipped"] for reading in listed["readings"]} == {
            str(settings.uploads): [],
            str(tmp_path): [],
        }
        remarks = {document["path"]: document["remarks"] for document in listed["documents"]}
        guessed = "its encoding was guessed: cp1252; --encoding sets another one"
        assert remarks == {"bicycle.txt": [guessed], "viola.md": []}
        numbers = {document["path"]: document["id"] for document in listed["documents"]}
        watched = f"/library/documents/{numbers['bicycle.txt']}"
        # Busy while the watcher is reading.
        until(lambda: "is watched: remove the file there" in client.delete(watched).text, True)
        assert client.delete(f"/library/documents/{numbers['viola.md']}").status_code == 200
        assert not list(settings.uploads.iterdir())
        until(lambda: names(client), ["bicycle.txt"])  # at once, unless the watcher is reading
        refused(client.delete("/library/folders", params={"path": str(settings.uploads)}), 400, "remove the documents")
        until(lambda: client.delete("/library/folders", params=folder).status_code, 200)  # 409 before, as the page sees
        assert names(client) == []
        assert (tmp_path / "bicycle.txt").exists()
        refused(client.get(f"/library/passages/{hit['chunk']}"), 404, "read again, or removed")
        refused(client.delete(f"/library/documents/{numbers['viola.md']}"), 404, "no longer has this document")
        refused(client.delete("/library/folders", params=folder), 404, "o such folder is watched")
    finally:
        watcher.close()


def test_while_a_long_list_is_made_others_are_answered(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made, answered = threading.Event(), threading.Event()

    def slow(listing: Listing) -> dict[str, Any]:
        made.set()
        assert answered.wait(WAIT)
        return listing_json(listing)

    monkeypatch.setattr(app, "listing_json", slow)
    with ThreadPoolExecutor(1) as pool:
        listed = pool.submit(client.get, "/library")
        try:
            assert made.wait(WAIT)
            assert client.get("/health", timeout=WAIT / 2).status_code == 200
        finally:
            answered.set()
        assert listed.result().status_code == 200


class TestUploads:
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("../escape.md", "without folders"),
            ("/etc/passwd.md", "without folders"),
            ("a\\b.md", "without folders"),
            (".hidden.md", "not begin with a dot"),
            ("~$open.docx", "not begin with a dot or ~$"),
            ("run.exe", "type is not supported"),
            ("letter.pages", "save it as docx"),
            ("none", "type is not supported"),
            ("n" * 300 + ".md", "longer than"),
            ("a\x07b.md", "control characters"),
            ("a\nb.md", "control characters"),
        ],
    )
    def test_names_that_are_no_files_are_refused(
        self, client: httpx.Client, settings: DeviceSettings, name: str, words: str
    ) -> None:
        before = sorted(settings.data.rglob("*"))
        refused(client.post("/library/documents", params={"name": name}, content=b"x", headers=FILE), 400, words)
        assert sorted(settings.data.rglob("*")) == before

    def test_a_file_is_declared_as_one(self, client: httpx.Client) -> None:
        """Browsers send plain text across sites without asking."""
        sent = client.post(
            "/library/documents", params={"name": "a.md"}, content=b"x", headers={"content-type": "text/plain"}
        )
        refused(sent, 415, "application/octet-stream")

    def test_a_file_is_as_large_as_what_is_read_at_most(self, client: httpx.Client, settings: DeviceSettings) -> None:
        most = OwnDocuments.most_bytes(OwnDocuments.__new__(OwnDocuments), "a.md")
        sent = client.post("/library/documents", params={"name": "a.md"}, content=b"x" * (most + 1), headers=FILE)
        refused(sent, 413, f"larger than {most} bytes")
        assert not (settings.uploads / "a.md").exists()

    def test_an_upload_takes_the_place_of_its_namesake(self, client: httpx.Client, settings: DeviceSettings) -> None:
        for content, replaced in ((b"one", False), (b"two", True)):
            sent = client.post("/library/documents", params={"name": "same.txt"}, content=content, headers=FILE)
            assert (sent.status_code, sent.json()["replaced"]) == (201, replaced)
        assert [path.read_bytes() for path in settings.uploads.glob("*")] == [b"two"]
        assert settings.uploads.stat().st_mode & 0o077 == 0
        (settings.uploads / "same.txt").unlink()

    def test_one_that_can_not_be_removed_is_not_forgotten(
        self, client: httpx.Client, settings: DeviceSettings, library: Library
    ) -> None:
        path = settings.uploads / "stays.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("The kettle is from Yormcrus.")
        library.add(path.parent)
        (number,) = (document["id"] for document in client.get("/library").json()["documents"])
        path.unlink()
        path.mkdir()
        refused(client.delete(f"/library/documents/{number}"), 500, "can't be removed: ")
        assert names(client) == ["stays.txt"]
        path.rmdir()
        deleted = client.delete(f"/library/documents/{number}")
        assert (deleted.status_code, deleted.json()) == (200, {"forgotten": True})

    def test_one_goes_at_once_and_its_document_when_nobody_else_changes_the_library(
        self, client: httpx.Client, settings: DeviceSettings, library: Library
    ) -> None:
        name = {"name": "kettle.txt"}
        client.post("/library/documents", params=name, content=b"The kettle is from Yormcrus.", headers=FILE)
        library.add(settings.uploads)
        (number,) = (document["id"] for document in client.get("/library").json()["documents"])
        with writer_lock(library.folder):
            for what, parameters in ((f"/{number}", {}), ("", name)):
                deleted = client.delete(f"/library/documents{what}", params=parameters)
                assert (deleted.status_code, deleted.json()) == (200, {"forgotten": False})
        assert (names(client), list(settings.uploads.iterdir())) == (["kettle.txt"], [])
        library.add(settings.uploads)
        assert names(client) == []

    def test_one_that_was_never_read_is_removed_by_its_name(
        self, client: httpx.Client, settings: DeviceSettings
    ) -> None:
        name = {"name": "empty scan.pdf"}
        assert client.post("/library/documents", params=name, content=b"%PDF", headers=FILE).status_code == 201
        assert client.get("/library").json()["uploads"] == str(settings.uploads)
        assert client.delete("/library/documents", params=name).status_code == 200
        assert not list(settings.uploads.iterdir())
        refused(client.delete("/library/documents", params=name), 404, "no upload with this name")
        refused(client.delete("/library/documents", params={"name": "../device.lock"}), 400, "without folders")
        refused(client.delete("/library/documents"), 400, "'name' must be in the address")

    def test_every_type_that_is_read_may_come(self, client: httpx.Client) -> None:
        documents = OwnDocuments.__new__(OwnDocuments)
        assert all(documents.most_bytes(f"A{suffix.upper()}") > 0 for suffix in SUFFIXES)


class TestRefusals:
    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ({}, "'query' must be in the address"),
            ({"query": "  "}, "'query' must be in the address"),
            ({"query": "x", "count": "0"}, "'count' must be a number"),
            ({"query": "x", "count": "51"}, "'count' must be a number"),
            ({"query": "x", "count": "٣"}, "'count' must be a number"),
            ({"query": "x", "count": "9" * 5000}, "'count' must be a number"),
            ({"query": "x", "count": "0" * 8 + "1" + "9" * 5000}, "'count' must be a number"),
            ({"query": "x", "count": "000000001999"}, "'count' must be a number"),
        ],
    )
    def test_searches(self, client: httpx.Client, parameters: dict[str, str], words: str) -> None:
        refused(client.get("/library/search", params=parameters), 400, words)

    @pytest.mark.parametrize("chunk", ["x", "-1", "1" * 20, "1.0"])
    def test_passages(self, client: httpx.Client, chunk: str) -> None:
        refused(client.get(f"/library/passages/{chunk}"), 400, "must be a number")

    @pytest.mark.parametrize(
        ("path", "words"),
        [
            ("notes", "absolute path"),
            ("/nowhere/at/all", "is no such folder"),
            ("/" + "n" * 300, "is no such folder"),
            ("~\0x/notes", "has a null character"),
        ],
    )
    def test_folders(self, client: httpx.Client, path: str, words: str) -> None:
        refused(client.post("/library/folders", json={"path": path}), 400, words)

    def test_off_loopback_nobody_names_folders_of_this_machine(
        self, settings: DeviceSettings, library: Library, tmp_path: Path
    ) -> None:
        engine = TableEngine()
        engine.documents = OwnDocuments(settings, library, library.search)
        admission = admission_of(ApiKeyFiles(tmp_path / "keys"), "key")
        options = HttpOptions(host="0.0.0.0", port=0, admission=admission)
        with HttpServer(options).serve(engine) as server:
            address = server.url.replace("0.0.0.0", "127.0.0.1")
            headers = {"authorization": "Bearer key"}
            sent = httpx.post(f"{address}/library/folders", json={"path": str(tmp_path)}, headers=headers, timeout=WAIT)
            refused(sent, 403, "upload the documents")
            assert httpx.get(f"{address}/library", timeout=WAIT).status_code == 401
