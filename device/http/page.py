"""The web page's files, read once, and their responses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

FOLDER: Final = Path(__file__).resolve().parent.parent / "page"
BELOW: Final = "/page/"  # of every file except the document
KINDS: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}
HEADERS: Final = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    content: bytes
    kind: str  # Content-Type
    etag: str

    def response(self, request: Request) -> Response:
        """Returns the file, or 304 if the client has it."""
        headers = HEADERS | {"etag": self.etag}
        if self._is_known(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers | {"content-type": self.kind})

    def _is_known(self, condition: str) -> bool:
        known = {each.strip().removeprefix("W/") for each in condition.split(",")}
        return bool(known & {self.etag, "*"})


def _files() -> Iterator[tuple[str, PageFile]]:
    yield "/", _read(FOLDER / "index.html", "text/html; charset=utf-8")
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in KINDS:
            yield BELOW + path.relative_to(FOLDER).as_posix(), _read(path, KINDS[path.suffix])


def _read(path: Path, kind: str) -> PageFile:
    content = path.read_bytes()
    return PageFile(content, kind, f'"{hashlib.sha256(content).hexdigest()[:32]}"')


# A client's path never reaches the file system.
PAGE: Final[Mapping[str, PageFile]] = dict(_files())
