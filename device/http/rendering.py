"""Rendering of answers as JSON: one implementation for each of OpenAI's formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from device.http.answers import Told
from device.http.errors import ApiError
from device.interface import TokenEvent, Unmatched

DONE = b"data: [DONE]\n\n"
_LINE_ENDINGS = "\x85\u2028\u2029"  # that JSON leaves as they are


class Rendering(Protocol):
    """Makes the JSON of one request's answers: of all at once, or as server-sent events."""

    def whole(self, answers: Sequence[Told]) -> dict[str, Any]:
        """The response without `stream`."""
        ...

    def opening(self) -> Iterable[bytes]:
        """The events before the first token."""
        ...

    def piece(self, index: int, text: str, tokens: Sequence[TokenEvent]) -> Iterable[bytes]:
        """The events of text that became final in the answer `index`, and of the tokens that it took."""
        ...

    def provisional(self, index: int, text: str) -> Iterable[bytes]:
        """The events of text that may follow in the answer `index`, until a piece of it or its end comes."""
        ...

    def waiting(self, index: int) -> Iterable[bytes]:
        """The events of a wait for the cloud in the answer `index`, until a piece of it or its end comes."""
        ...

    def unmatched(self, index: int, told: Unmatched) -> Iterable[bytes]:
        """The events that no document is close to the question of the answer `index`, before its first piece."""
        ...

    def finished(self, index: int, told: Told) -> Iterable[bytes]:
        """The events after the last token of the answer `index`."""
        ...

    def closing(self) -> Iterable[bytes]:
        """The events after the last token of all answers."""
        ...

    def failed(self, failure: ApiError) -> Iterable[bytes]:
        """The last events of a stream that ends by `failure`."""
        ...


def event(value: dict[str, Any], name: str | None = None) -> bytes:
    """A server-sent event, on one line also for clients to whom U+0085, U+2028 and U+2029 end one, as Python's do."""
    head = "" if name is None else f"event: {name}\n"
    data = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not data.isascii():
        for ending in _LINE_ENDINGS:
            data = data.replace(ending, f"\\u{ord(ending):04x}")
    return f"{head}data: {data}\n\n".encode()
