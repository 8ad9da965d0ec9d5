"""The way of one token through the files of both daemons, from the model's output to the stream."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

from device.http.options import HttpOptions
from device.http.server import HttpServer
from scripts.daemons import LOCALLY, ROOT
from tests.cloud.town import Town

FILES = 44  # at most; lower both when the way gets shorter
TYPES = 29
NOW_AND_THEN = {  # made by time, or by chance
    "common.engine.model.exact.Tree",
    "common.estimates.estimators.RoundTrip",
    "proto.messages.Probe",
    "proto.messages.ProbeReply",
}
ANSWERS = 4
BEGUN, ENDED = 2, 8  # pieces of an answer, between which files are counted
PRODUCT = tuple(f"{ROOT}/{folder}/" for folder in ("proto", "common", "device", "cloud"))
BODY = {
    "model": "dragon",
    "messages": [{"role": "user", "content": "Where is my dance class, and where is Delthcine House?"}],
    "stream": True,
    "max_tokens": 40,
    "temperature": 1.8,
    "unmatched": "answer",
}


class Way:
    """Files of the product in which a function is called while `on`, and classes of the product of which objects are
    made, by any thread that began inside the block.
    """

    def __init__(self) -> None:
        self.on = False
        self.files: set[str] = set()
        self.types: set[str] = set()

    def _called(self, frame: FrameType, event: str, argument: object) -> None:
        if not self.on or event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(PRODUCT):
            self.files.add(code.co_filename.removeprefix(f"{ROOT}/"))
        if code.co_name in ("__init__", "__new__") and code.co_argcount:
            made = frame.f_locals[code.co_varnames[0]]
            kind = made if isinstance(made, type) else type(made)
            if kind.__module__.split(".")[0] in ("proto", "common", "device", "cloud"):
                self.types.add(f"{kind.__module__}.{kind.__qualname__}")

    @contextmanager
    def watched(self) -> Iterator[None]:
        before = threading.getprofile()
        threading.setprofile(self._called)
        try:
            yield
        finally:
            threading.setprofile(before)


def stream(url: str, way: Way, seed: int) -> None:
    """Ask, and watch in the middle of the answer."""
    seen = 0
    body: dict[str, Any] = BODY | {"seed": seed}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=120, **LOCALLY) as response:
        for line in response.iter_lines():
            seen += '"content":' in line
            way.on = BEGUN <= seen < ENDED
    assert seen > ENDED + 2, "the window reached the answer's end"


def told_in_the_documents() -> set[str]:
    """The files that the table of docs/architecture.md names; a folder is that of the names that follow it."""
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = page.partition("### One drafted token")[2].partition("\n### ")[0]
    folder, found = "", set[str]()
    for name in re.findall(r"`([\w/]+(?:/|\.py))`", table):
        if name.endswith("/"):
            folder = name
        else:
            found.add(name if (ROOT / name).is_file() else folder + name)
    return found


def test_a_token_crosses_few_files(fresh_data: Callable[[], Path]) -> None:
    way = Way()
    files: list[set[str]] = []
    types: list[set[str]] = []
    with way.watched(), Town(fresh_data()) as town:
        device = town.device("laptop", privacy="strict")
        with HttpServer(HttpOptions(port=0)).serve(device.engine) as server:
            for seed in range(ANSWERS):
                stream(server.url, way, seed)
                files.append(way.files)
                types.append(way.types)
                way.files, way.types = set(), set()
    always = set.intersection(*files)  # without what happens now and then: a tick, a measurement
    assert len(always) <= FILES, sorted(always)
    assert not always - told_in_the_documents(), "docs/architecture.md does not name all of them"
    worn = set.intersection(*types) - NOW_AND_THEN
    assert len(worn) <= TYPES, sorted(worn)
    assert {"proto.messages.Draft", "common.engine.model.packed.Feed"} <= worn
