"""Log-probabilities of an answer's tokens in OpenAI's formats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from device.interface import TokenChance, TokenEvent

REPLACEMENT = "�"  # stands for bytes that are not a character by themselves


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
