"""A local HTTP server that speaks as much of the Hub's API as downloading a model needs, with faults on demand."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors", ".gguf")  # what the Hub stores by its checksum
PIECE = 2**16  # bytes that are sent at a time


@dataclass
class Hub:
    """The repositories of a server, and what it was asked for."""

    url: str = ""
    repositories: dict[str, Path] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)  # method, path, range
    break_after: int | None = None  # bytes of the next large file, behind which the connection is closed
    broken_for_good: bool = False  # nothing is answered behind that
    hold_after: int | None = None  # bytes behind which the next large file waits for `released`
    released: threading.Event = field(default_factory=threading.Event)
    swapped: bytes | None = None  # sent in place of the first bytes of large files

    def ranges(self) -> list[str | None]:
        """The ranges of large files that were asked for, in order."""
        return [given for method, path, given in self.requests if method == "GET" and path.endswith(LARGE)]


@contextmanager
def serving() -> Iterator[Hub]:
    """A running server on loopback."""
    hub = Hub()

    class Handler(_Handler):
        known = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    known: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.known.requests.append((self.command, path, self.headers.get("Range")))
        if self.known.broken_for_good and self.known.break_after is None:
            self.close_connection = True
            return
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)(/revision/[^/]+|/tree/[^/]+)?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path)
        found = api or file
        repository = self.known.repositories.get(found[1]) if found else None
        if found is None or repository is None:
            self._refuse(404, "RepoNotFound")
        elif file is not None:
            self._file(file[1], repository, repository / file[2])
        elif (found[2] or "").startswith("/tree/"):
            self._json([_entry(each, repository) for each in _files(repository)])
        else:
            self._json(_described(found[1], repository, found[1] in self.known.gated))

    def _file(self, hub_id: str, repository: Path, path: Path) -> None:
        if hub_id in self.known.gated:
            self._refuse(403, "GatedRepo")
            return
        if not path.is_file():
            self._refuse(404, "EntryNotFound")
            return
        content = path.read_bytes()
        begin = int(given[1]) if (given := re.match(r"bytes=(\d+)-", self.headers.get("Range") or "")) else 0
        self.send_response(206 if begin else 200)
        entry = _entry(path, repository)
        self.send_header("ETag", f'"{entry.get("lfs", entry)["oid"]}"')
        self.send_header("X-Repo-Commit", commit(repository))
        self.send_header("Content-Length", str(len(content) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "GET":
            self._send(path, content, begin)

    def _send(self, path: Path, content: bytes, begin: int) -> None:
        hub, large = self.known, path.suffix in LARGE
        if large and hub.swapped is not None:
            content = hub.swapped + content[len(hub.swapped) :]
        for start in range(begin, len(content), PIECE):
            if large and hub.break_after is not None and start >= hub.break_after:
                hub.break_after = None
                self.close_connection = True
                return
            if large and hub.hold_after is not None and start >= hub.hold_after:
                hub.hold_after = None
                hub.released.wait()
            try:
                self.wfile.write(content[start : start + PIECE])
            except OSError:  # who asked has left
                self.close_connection = True
                return

    def _json(self, value: Any) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(text)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def commit(folder: Path) -> str:
    """The commit that a repository is at: a function of its content."""
    digest = hashlib.sha1()
    for path in _files(folder):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _entry(path: Path, folder: Path) -> dict[str, Any]:
    content = path.read_bytes()
    entry: dict[str, Any] = {"type": "file", "path": path.relative_to(folder).as_posix(), "size": len(content)}
    entry["oid"] = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    if path.suffix in LARGE:
        entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
    return entry


def _described(hub_id: str, folder: Path, gated: bool) -> dict[str, Any]:
    card = folder / "README.md"
    licence = re.search(r"^license: (.+)$", card.read_text(), re.M) if card.exists() else None
    siblings = []
    for path in _files(folder):
        entry = _entry(path, folder)
        sibling = {"rfilename": entry["path"], "size": entry["size"], "blobId": entry["oid"]}
        if "lfs" in entry:
            large = entry["lfs"]
            sibling["lfs"] = {"sha256": large["oid"], "size": large["size"], "pointerSize": large["pointerSize"]}
        siblings.append(sibling)
    return {
        "id": hub_id,
        "modelId": hub_id,
        "sha": commit(folder),
        "private": False,
        "gated": "manual" if gated else False,
        "tags": [],
        "cardData": {"license": licence[1]} if licence else {},
        "siblings": siblings,
    }
