"""Conversion of a validated body to the engine's request."""

from __future__ import annotations

from collections.abc import Sequence

from common.methods.request import Request
from device.http.errors import ApiError
from device.http.schema import ChatBody, ChatMessage, CompletionBody, make_request


def completion_request(body: CompletionBody, defaults: Request) -> Request:
    """A request whose prompt goes to the model as it is, and is also the query to the libraries."""
    if not body.prompt.strip():
        raise ApiError(400, "The prompt is empty.", param="prompt", code="empty_query")
    return _request(body, defaults, body.prompt.strip(), body.prompt)


def chat_request(body: ChatBody, defaults: Request, query_format: str) -> Request:
    """A request whose question is the last user message; everything before it is history in the prompt."""
    question, prompt = render_conversation(body.messages, query_format)
    return _request(body, defaults, question, prompt)


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


def _request(body: CompletionBody | ChatBody, defaults: Request, question: str, prompt: str) -> Request:
    """Make the request. The race, which has no `top_p`, accepts 1, the clients' default: it truncates nothing."""
    request = make_request(body.options, defaults, question, prompt)
    if "top_p" not in body.options or request.sampler == "paper":
        return request
    if request.top_p != 1.0:
        raise ApiError(
            400,
            '\'top_p\' truncates only with "sampler": "paper"; the race samples the whole distribution.',
            param="top_p",
            code="unsupported_value",
        )
    return request.model_copy(update={"top_p": defaults.top_p})
