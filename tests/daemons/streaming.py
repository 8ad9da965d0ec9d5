"""An answer that a test reads as it comes, to do harm in the middle of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import httpx

from common.answer.report import UNREAD
from scripts.daemons import LOCALLY, Pair

PATIENCE = 60.0  # seconds for what a test waits for; a machine may be busy
POLL = 0.01
TRIES = 5  # of an answer that a machine may be too slow for


def wait_until(happened: Callable[[], bool], what: str, seconds: float = PATIENCE) -> float:
    """Wait until `happened`; the seconds that it took."""
    begun = time.monotonic()
    while not happened():
        assert time.monotonic() - begun < seconds, f"not within {seconds} s: {what}"
        time.sleep(POLL)
    return time.monotonic() - begun


def late(report: dict[str, Any]) -> bool:
    """Whether a busy machine had no time for what documents say of the answer, or the cloud for its part of that."""
    return UNREAD in report["notes"] or report["unattributed"] > 0


def asked_again(ask: Callable[[], dict[str, Any]], unfit: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first completion that `ask` brings whose report is not `unfit`; each of `TRIES` may be."""
    for number in range(TRIES):
        time.sleep(number / 2)  # what else the machine does may take seconds
        response = ask()
        if not unfit(response["dragon"]):
            return response
    report = response["dragon"]
    raise AssertionError(f"{TRIES} times: {report['notes']}, degraded: {report['degraded']}")


def complete_with_shares(pair: Pair, question: str, **fields: Any) -> dict[str, Any]:
    """A completion whose tokens are attributed to documents; asked again where a busy machine had no time for that."""
    return asked_again(lambda: pair.complete(question, **fields), late)


def complete_together(pair: Pair, question: str, **fields: Any) -> dict[str, Any]:
    """A completion in which the cloud takes part from beginning to end, and its documents are attributed.

    Asked again where a busy machine was longer silent than the device's patience: that it can be so is what counts.
    """
    return asked_again(lambda: pair.complete(question, **fields), lambda report: report["degraded"] or late(report))


class Stream:
    """A streamed chat completion at the device daemon at `url`. A context manager; leaving it disconnects."""

    def __init__(self, url: str, question: str, **fields: Any) -> None:
        self.text = ""
        self._body = {
            "model": "dragon",
            "stream": True,
            "messages": [{"role": "user", "content": question}],
        } | fields
        self._client = httpx.Client(base_url=url, timeout=PATIENCE, **LOCALLY)
        self._chunks: Iterator[dict[str, Any]] = self._receive()
        self._report: dict[str, Any] | None = None

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect."""
        self._client.close()

    def read(self, pieces: int) -> None:
        """Wait for the next `pieces` pieces of text."""
        for _ in range(pieces):
            while not self._take(next(self._chunks)):
                pass

    def finish(self) -> dict[str, Any]:
        """Read to the end; the report."""
        for chunk in self._chunks:
            self._take(chunk)
        assert self._report is not None
        return self._report

    def _take(self, chunk: dict[str, Any]) -> bool:
        assert "error" not in chunk, chunk
        self._report = chunk.get("dragon", self._report)
        piece = "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])
        self.text += piece
        return bool(piece)

    def _receive(self) -> Iterator[dict[str, Any]]:
        with self._client.stream("POST", "/v1/chat/completions", json=self._body) as response:
            if response.is_error:
                raise RuntimeError(response.read().decode())
            for line in response.iter_lines():
                data = line.removeprefix("data: ")
                if data.startswith("{"):
                    yield json.loads(data)
