"""The page's files as they are sent, and as they are kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import httpx
import pytest

from device.http.page import FOLDER, PAGE
from device.http.server import HttpServer
from scripts.vendor_web import CHECKSUMS, MODULES, PACKAGES, checksums, relative
from tests.device.conftest import Serve
from tests.device.table_engine import WAIT

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
OWN = sorted((FOLDER / "modules").glob("*.js"))
VENDORED = FOLDER / "vendor"
MOST_BYTES = 170_000  # of all files together
MOST_LINES = 400
IMPORT = re.compile(r"""\b(?:from|import)\s*\(?["']([^"']+)["']""")


@pytest.fixture
def http(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=WAIT, trust_env=False) as client:
        yield client


class TestResponses:
    @pytest.mark.parametrize("path", PAGE)
    def test_every_file_is_sent_with_its_headers(self, http: httpx.Client, path: str) -> None:
        response = http.get(path)
        kinds = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}
        assert response.status_code == 200
        assert response.headers["content-type"] == kinds.get(path.rpartition(".")[2], "text/html; charset=utf-8")
        assert response.headers["content-security-policy"] == POLICY
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["referrer-policy"] == "no-referrer"
        assert response.headers["cross-origin-opener-policy"] == "same-origin"
        assert response.headers["cache-control"] == "no-cache"
        name = "index.html" if path == "/" else path.removeprefix("/page/")
        assert response.content == (FOLDER / name).read_bytes()

    def test_a_known_one_is_not_sent_again(self, http: httpx.Client) -> None:
        first = http.get("/")
        tag = first.headers["etag"]
        assert tag != http.get("/page/style.css").headers["etag"]
        for condition in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = http.get("/", headers={"if-none-match": condition})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tag
            assert again.headers["content-security-policy"] == POLICY
        assert http.get("/", headers={"if-none-match": '"other"'}).content == first.content

    def test_head_has_no_body(self, http: httpx.Client) -> None:
        whole, head = http.get("/"), http.head("/")
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == str(len(whole.content))

    @pytest.mark.parametrize(
        "path",
        [
            "/page",
            "/page/",
            "/page/index.html",
            "/page/nothing.js",
            "/page/vendor/SHA256SUMS",
            "/page/../http/page.py",
            "/page/%2e%2e/http/page.py",
            "/page/modules/..%2f..%2fhttp%2fpage.py",
            "/page//etc/passwd",
            "/style.css",
        ],
    )
    def test_others_are_unknown(self, http: httpx.Client, path: str) -> None:
        request = http.build_request("GET", "/")
        request.url = request.url.copy_with(raw_path=path.encode())  # as it is written
        response = http.send(request)
        assert (response.status_code, response.json()["error"]["code"]) == (404, "unknown_path")

    def test_nothing_else_can_be_done_with_it(self, http: httpx.Client) -> None:
        for method in ("POST", "PUT", "DELETE"):
            assert http.request(method, "/").status_code == 405

    def test_it_needs_no_key_and_opens_nothing(self, serve: Serve) -> None:
        with httpx.Client(base_url=serve(api_key="right").url, timeout=WAIT, trust_env=False) as http:
            assert {http.get(path).status_code for path in PAGE} == {200}
            assert http.get("/status").status_code == 401

    def test_a_rebound_name_gets_nothing(self, http: httpx.Client) -> None:
        assert http.get("/", headers={"host": "evil.example"}).status_code == 403


class TestSources:
    def test_the_list_is_all_of_them(self) -> None:
        kept = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
        sent = {"index.html"} | {path.removeprefix("/page/") for path in PAGE if path != "/"}
        assert sent == {name for name in kept if name.endswith((".html", ".css", ".js"))}
        assert sum(len(file.content) for file in PAGE.values()) < MOST_BYTES

    def test_vendored_files_are_the_pinned_ones(self) -> None:
        files = {path.name: path.read_bytes() for path in VENDORED.iterdir() if path.name != CHECKSUMS}
        assert files.keys() == {name for package in PACKAGES for name in package.files.values()}
        assert (VENDORED / CHECKSUMS).read_text() == checksums(files)
        assert all(hashlib.sha256(content).hexdigest() in checksums(files) for content in files.values())
        assert all(f"{package.name}.LICENSE.txt" in files for package in PACKAGES)

    def test_every_import_is_of_a_file_beside_it(self) -> None:
        for path in (*OWN, *VENDORED.glob("*.js")):
            for name in IMPORT.findall(path.read_text("utf-8")):
                assert name.startswith("."), f"{path.name} imports {name}"
                assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"

    def test_bare_specifiers_become_relative(self) -> None:
        assert relative('import{options as n}from"preact";') == f'import{{options as n}}from"{MODULES["preact"]}";'
        assert relative('import "./beside.js"') == 'import "./beside.js"'
        with pytest.raises(KeyError):
            relative('import x from "unknown"')

    @pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
    def test_no_module_makes_markup_or_code_of_text(self, path: object) -> None:
        source = next(each for each in OWN if each == path).read_text("utf-8")
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert forbidden not in source
        assert "http://" not in source
        assert source.count("\n") <= MOST_LINES
        assert all(len(line) <= 120 for line in source.splitlines())

    def test_the_document_has_neither_scripts_nor_styles_of_its_own(self) -> None:
        document = PAGE["/"].content.decode()
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", document)
