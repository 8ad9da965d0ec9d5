"""Bodies that are as large as there may be, and made to cost: each is answered soon, in one sentence."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from device.http.embeddings import EmbeddingsBody
from device.http.errors import ApiError
from device.http.options import HttpOptions
from device.http.prompts import read_chat_request, read_completion_request
from device.http.responses.schema import ResponsesBody
from device.http.schema import Body, ChatBody, CompletionBody, parse
from device.http.tokens import DetokenizeBody
from tests.device.http.asking import ENGINE, OPTIONS, turn

LIMIT = HttpOptions().body_limit
LONG = 2.0  # seconds of processor time, generously; what has no limit takes many more
CHAT: dict[str, Any] = {"messages": [turn("user", "x")]}


def filled(item: Any, most: int = LIMIT) -> list[Any]:
    """As many of `item` as a body has room for, up to `most`."""
    return [item] * min(most, (LIMIT - 200) // (len(json.dumps(item)) + 2))


@pytest.mark.parametrize(
    ("kind", "fields", "param"),
    [
        (ChatBody, {"messages": filled(turn("user", "x"))}, "messages"),
        (ChatBody, {"messages": filled({})}, "messages"),
        (ChatBody, {"messages": filled(1)}, "messages"),
        (ChatBody, {"messages": [turn("user", "x "), *filled(turn("assistant", "y" * 1000), 900)]}, "messages"),
        (ChatBody, {"messages": [turn("system", "x" * 1_000_000), turn("user", "x")]}, "messages"),
        (ChatBody, {"messages": [turn("user", filled({"type": "text", "text": "x"}))]}, "messages"),
        (ChatBody, {"messages": [turn("user", "x") | {"tool_calls": filled(1)}]}, "messages[0].tool_calls"),
        (ChatBody, CHAT | {"logit_bias": {str(n): 1 for n in range(90_000)}}, "logit_bias"),
        (ChatBody, CHAT | {"logit_bias": {"9" * 1_000_000: 1}}, "logit_bias"),
        (ChatBody, CHAT | {"logit_bias": {"5": 10**400}}, "logit_bias[5]"),
        (ChatBody, CHAT | {"stop": filled("x")}, "stop"),
        (ChatBody, CHAT | {"stop": "x" * 1_000_000}, "stop"),
        (ChatBody, CHAT | {"seed": 10**4000}, "seed"),
        (
            ChatBody,
            CHAT | {"response_format": {"type": "json_schema", "schema": {"enum": filled([])}}},
            "response_format",
        ),
        (ChatBody, CHAT | {f"x{n}": 1 for n in range(90_000)}, None),
        (CompletionBody, {"prompt": filled("x")}, "prompt"),
        (CompletionBody, {"prompt": filled([1])}, "prompt"),
        (CompletionBody, {"prompt": [filled(9, 100_000), filled(9, 100_000)]}, "prompt"),
        (ResponsesBody, {"input": filled({"type": "message"})}, "input"),
        (ResponsesBody, {"input": "x" * 1_000_000}, "input"),
        (ResponsesBody, {"input": "x", "instructions": "x" * 1_000_000}, "input"),
        (ResponsesBody, {"input": "x", "include": filled("x")}, "include"),
        (ResponsesBody, {"input": filled({"type": "function_call", "call_id": "c", "name": "f"}, 1000)}, "input"),
        (EmbeddingsBody, {"input": filled("x")}, "input"),
        (EmbeddingsBody, {"input": filled([1])}, "input"),
        (DetokenizeBody, {"tokens": filled("x", 130_000)}, "tokens[0]"),
        (DetokenizeBody, {"tokens": filled(1)}, "tokens"),
    ],
)
def test_it_is_refused_soon_and_in_one_sentence(kind: type[Body], fields: dict[str, Any], param: str | None) -> None:
    data = json.dumps(fields).encode()
    assert len(data) < 1.2 * LIMIT
    began = time.process_time()
    with pytest.raises(ApiError) as refused:
        body, _ = parse(kind, data)
        match body:
            case ChatBody():
                read_chat_request(body.messages, body.options, body.n, OPTIONS, ENGINE)
            case ResponsesBody():
                read_chat_request(body.messages, body.options, 1, OPTIONS, ENGINE, body.toolbox, "input")
            case CompletionBody():
                read_completion_request(body, OPTIONS, ENGINE)
    assert time.process_time() - began < LONG
    error = refused.value
    assert (error.status, error.param) == (400, param)
    assert len(error.message) < 250 and error.message.endswith(".") and "\n" not in error.message
