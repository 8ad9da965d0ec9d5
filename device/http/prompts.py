"""From a validated body to what the engine is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from common.runtime.request import Request
from device.http.errors import ApiError
from device.http.schema import ChatBody, ChatMessage, CompletionBody, GenerationBody

# Fields of a body that are fields of the engine's request under the same name.
SHARED_FIELDS = (
    "max_tokens",
    "temperature",
    "seed",
    "privacy",
    "sampler",
    "placement",
    "codec",
    "entries",
    "exact",
    "documents",
    "sources",
    "method",
    "aggregation",
    "trace",
)


def completion_request(body: CompletionBody, defaults: Request) -> Request:
    """The prompt goes to the model as it is, and is also what the libraries are searched for."""
    if not body.prompt.strip():
        raise ApiError(400, "The prompt is empty.", param="prompt", code="empty_query")
    return _with_fields(body, defaults, body.prompt.strip(), body.prompt)


def chat_request(body: ChatBody, defaults: Request, query_format: str) -> Request:
    """The last user message is the question; everything before it is history in the prompt."""
    question, prompt = render_conversation(body.messages, query_format)
    request = _with_fields(body, defaults, question, prompt)
    if body.max_completion_tokens is not None:
        return replace(request, max_tokens=body.max_completion_tokens)
    return request


def render_conversation(messages: Sequence[ChatMessage], query_format: str) -> tuple[str, str]:
    """The question of a conversation and the query part of every row.

    Order: system and developer messages first, then each earlier turn as the query format followed by its
    answer, then the question in the query format. Consecutive user messages are one question.
    Raises `ApiError` (400) when the last message is not a question.
    """
    turns = [message for message in messages if message.role in ("user", "assistant")]
    if not turns or turns[-1].role != "user":
        raise ApiError(400, "The last message must have the role 'user'.", param="messages", code="no_question")
    instructions = [message.content.strip() for message in messages if message.role in ("system", "developer")]
    prompt = "".join(f"\n{text}" for text in instructions if text)
    pending: list[str] = []
    for turn in turns:
        text = turn.content.strip()
        if turn.role == "user":
            pending.append(text)
        elif pending:
            prompt += _query(pending, query_format) + f" {text}"
            pending = []
        else:
            prompt += f"\n{text}"  # an opening line of the assistant
    question = "\n".join(text for text in pending if text)
    if not question:
        raise ApiError(400, "The question is empty.", param="messages", code="empty_query")
    return question, prompt + _query(pending, query_format)


def _query(texts: Sequence[str], query_format: str) -> str:
    return query_format.replace("{question}", "\n".join(text for text in texts if text))


def _with_fields(body: GenerationBody, defaults: Request, question: str, prompt: str) -> Request:
    given: dict[str, Any] = {name: value for name in SHARED_FIELDS if (value := getattr(body, name)) is not None}
    if body.stop is not None:
        given["stop"] = tuple(body.stop)
    if body.top_p is not None:
        given |= _truncation(body.top_p, body.sampler or defaults.sampler)
    return replace(defaults, question=question, prompt=prompt, **given)


def _truncation(top_p: float, sampler: str) -> dict[str, float]:
    if sampler == "paper":
        return {"top_p": top_p}
    if top_p == 1.0:  # what clients send by default, and what the race does
        return {}
    raise ApiError(
        400,
        '\'top_p\' truncates only with "sampler": "paper"; the race samples the whole distribution.',
        param="top_p",
        code="unsupported_value",
    )
