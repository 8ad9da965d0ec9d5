"""Requests and answers by their bodies, without a server."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from common.answer.request import Request
from device.http.options import HttpOptions
from device.http.prompts import RequestBatch, read_chat_request, read_completion_request
from device.http.schema import ChatBody, CompletionBody, parse
from tests.device.table_engine import TableEngine

OPTIONS = HttpOptions(most_tokens=512)
ENGINE = TableEngine()


def ask_completion(**fields: Any) -> RequestBatch:
    """Outcome of a completion; its notes are all those that the client gets."""
    body, notes = parse(CompletionBody, encode({"prompt": "x"} | fields))
    asked = read_completion_request(body, OPTIONS, ENGINE)
    return replace(asked, notes=notes + asked.notes)


def completion(**fields: Any) -> Request:
    """The only request of a completion that is served as it was asked for."""
    asked = ask_completion(**fields)
    (request,) = asked.requests
    assert not asked.notes
    return request


def ask_chat(*messages: Any, **fields: Any) -> RequestBatch:
    body, notes = parse(ChatBody, encode({"messages": list(messages)} | fields))
    asked = read_chat_request(body.messages, body.options, body.n, OPTIONS, ENGINE, body.toolbox)
    return replace(asked, notes=notes + asked.notes)


def chat(*messages: Any, **fields: Any) -> Request:
    (request,) = ask_chat(*messages, **fields).requests
    return request


def encode(fields: dict[str, Any]) -> bytes:
    return json.dumps({"model": "dragon"} | fields).encode()


def turn(role: str, content: Any = "") -> dict[str, Any]:
    return {"role": role, "content": content}
