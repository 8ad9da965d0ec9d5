"""Rendering of answers as JSON: one implementation for each of OpenAI's formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from device.http.answers import Told
from device.http.errors import ApiError
from device.interface import Provisional, TokenChance, TokenEvent, Unmatched, Waiting

DONE = b"data: [DONE]\n\n"
REPLACEMENT = "�"  # stands for bytes that are not a character by themselves
_LINE_ENDINGS = "\x85\u2028\u2029"  # that JSON leaves as they are


Aside = Provisional | Waiting | Unmatched


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

    def aside(self, index: int, told: Aside) -> Iterable[bytes]:
        """The events of what is no text of the answer `index`; the next piece of it, or its end, takes it back."""
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


def aside_json(told: Aside) -> dict[str, Any]:
    """The extra field `dragon` of an event without text."""
    match told:
        case Provisional(text):
            return {"provisional": text}
        case Waiting():
            return {"waiting": True}
        case Unmatched():
            return {"doubt": asdict(told)}


def event(value: dict[str, Any], name: str | None = None) -> bytes:
    """A server-sent event, on one line also for clients to whom U+0085, U+2028 and U+2029 end one, as Python's do."""
    head = "" if name is None else f"event: {name}\n"
    data = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not data.isascii():
        for ending in _LINE_ENDINGS:
            data = data.replace(ending, f"\\u{ord(ending):04x}")
    return f"{head}data: {data}\n\n".encode()


def chat_entries(events: Iterable[TokenEvent], count: int) -> list[dict[str, Any]]:
    """An entry for each token with its `count` most probable alternatives, for chats and responses."""
    return [
        _entry(event.chances[0]) | {"top_logprobs": [_entry(chance) for chance in event.chances[1 : count + 1]]}
        for event in events
        if event.chances
    ]


def completion_lists(events: Sequence[TokenEvent], count: int, offset: int) -> dict[str, Any]:
    """Lists with an item for each token, the first of which begins `offset` characters after the answer does."""
    told = [event for event in events if event.chances]
    offsets = []
    for event in events:
        if event.chances:
            offsets.append(offset)
        offset += len(event.text)
    return {
        "tokens": [event.chances[0].text for event in told],
        "token_logprobs": [event.chances[0].logprob for event in told],
        "top_logprobs": [
            {chance.text: chance.logprob for chance in reversed(event.chances[1 : count + 1])} for event in told
        ],
        "text_offset": offsets,
    }


def _entry(chance: TokenChance) -> dict[str, Any]:
    whole = REPLACEMENT not in chance.text
    return {
        "token": chance.text,
        "logprob": chance.logprob,
        "bytes": list(chance.text.encode()) if whole else None,
    }
