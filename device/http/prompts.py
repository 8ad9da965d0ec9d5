"""Conversion of a validated body to the engine's request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from common.methods.request import Request
from common.model.prompt import Conversation, Query, Turn
from device.http.errors import ApiError
from device.http.schema import ChatBody, ChatMessage, CompletionBody, make_request


def completion_request(body: CompletionBody, defaults: Request) -> Request:
    """A request whose prompt goes to the model as it is, and is also the query to the libraries."""
    if not body.prompt.strip():
        raise ApiError(400, "The prompt is empty.", param="prompt", code="empty_query")
    return _request(body, defaults, body.prompt.strip(), Query(body.prompt))


def chat_request(body: ChatBody, defaults: Request, put: Callable[[Conversation], Query]) -> Request:
    """A request whose question is the last user message; everything before it is history in the prompt."""
    conversation = read_conversation(body.messages)
    try:
        query = put(conversation)
    except ValueError as error:
        text = str(error)
        raise ApiError(400, f"{text[:1].upper()}{text[1:]}.", param="messages", code="unsupported_value") from None
    return _request(body, defaults, conversation.turns[-1].text, query)


def read_conversation(messages: Sequence[ChatMessage]) -> Conversation:
    """System and developer messages as instructions, and the turns; consecutive messages of one role are one turn.

    Raises `ApiError` (400) when the last message is not a question.
    """
    said = [message for message in messages if message.role in ("user", "assistant")]
    if not said or said[-1].role != "user":
        raise ApiError(400, "The last message must have the role 'user'.", param="messages", code="no_question")
    turns = []
    for role, group in groupby(said, key=lambda message: message.role):
        text = "\n".join(filter(None, (message.content.strip() for message in group)))
        turns.append(Turn("user" if role == "user" else "assistant", text))
    if not turns[-1].text:
        raise ApiError(400, "The question is empty.", param="messages", code="empty_query")
    instructions = (message.content.strip() for message in messages if message.role in ("system", "developer"))
    return Conversation(tuple(turns), tuple(filter(None, instructions)))


def _request(body: CompletionBody | ChatBody, defaults: Request, question: str, query: Query) -> Request:
    """Make the request. The race, which has no `top_p`, accepts 1, the clients' default: it truncates nothing."""
    request = make_request(body.options, defaults, question, query)
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
