"""Converts a validated body into the engine's requests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from common.answer.request import Request
from common.engine.model.prompt import Call, Conversation, Query, ToolFormat, Turn
from common.methods.catalog import METHODS
from common.methods.interface import Method
from common.processors.calls import CallShape
from device.http.errors import ApiError, prompt_too_long, sentence_of
from device.http.fields import find_foreign_options, notes_of
from device.http.options import HttpOptions
from device.http.schema import ChatMessage, CompletionBody, validated
from device.http.tools import Toolbox
from device.interface import Engine
from proto.messages import DRAWN_SEEDS, LONGEST_PROMPT, LONGEST_QUESTION, MOST_CONTROLS, SEEDS, Control

FOLLOWED = 2  # earlier questions to follow up on
LONGEST_FOLLOWED = 4096  # bytes of them, from their end
UNTRAINED: Final = (
    "This model's prompts have no format for tools: they are described in plain words, and the model may call them "
    "badly."
)


@dataclass(frozen=True, slots=True)
class RequestBatch:
    """The requests of one body, a prompt's answers adjacent, and notes."""

    requests: tuple[Request, ...]
    notes: tuple[str, ...]
    per_prompt: int = 1
    continued: bool = False  # the answer continues a client's text, space included
    shape: CallShape | None = None  # of possible tool calls


@dataclass(frozen=True, slots=True)
class _Question:
    """A question for libraries, and the query for the model."""

    text: str
    query: Query
    earlier: str = ""  # to follow up on
    history: int = 0  # bytes from earlier turns


def read_completion_request(body: CompletionBody, options: HttpOptions, engine: Engine) -> RequestBatch:
    """Returns requests whose prompts go unchanged to model and libraries."""
    queries = [_prompt(prompt, engine) for prompt in body.prompt]
    return _asked(queries, body.options, options, body.n, continued=True)


def read_chat_request(
    messages: Sequence[ChatMessage],
    fields: dict[str, Any],
    n: int,
    options: HttpOptions,
    engine: Engine,
    tools: Toolbox | None = None,
    given: str = "messages",
) -> RequestBatch:
    """Returns requests whose question is the last user message; the rest is history.

    Answers may call `tools`. `given` is the messages' field.
    """
    conversation = read_conversation(messages, given)
    notes: tuple[str, ...] = ()
    shape = None
    if tools is not None:
        told = _tool_format(engine)
        shape, notes = told.shape, () if told.trained else (UNTRAINED,)
        conversation = replace(conversation, tools=tools.told)
        fields = fields | {"calls": tools.calls(shape)}
    if sum(map(len, _texts(conversation))) > LONGEST_PROMPT:  # a byte each, at least
        raise prompt_too_long(given, LONGEST_PROMPT, conversation=len(conversation.turns) > 1)
    last = conversation.asked
    if len(conversation.turns[last].text.encode()) > LONGEST_QUESTION:
        raise prompt_too_long(given, LONGEST_QUESTION)
    try:
        query = engine.put(conversation)
        alone = engine.put(replace(conversation, turns=conversation.turns[last:])) if last else query
    except ValueError as error:
        raise ApiError(400, sentence_of(error), param=given, code="unsupported_value") from None
    *before, question = [turn.text for turn in conversation.turns if turn.role == "user"]
    earlier = "\n".join(before[-FOLLOWED:]).encode()[-LONGEST_FOLLOWED:].decode(errors="ignore")
    history = max(0, len(query.text.encode()) - len(alone.text.encode()))
    continued = bool(conversation.begun) and not messages[-1].content[-1:].isspace()
    asked = _asked([_Question(question, query, earlier, history)], fields, options, n, continued)
    return replace(asked, notes=notes + asked.notes, shape=shape)


def _tool_format(engine: Engine) -> ToolFormat:
    try:
        return engine.tools
    except ValueError as error:
        raise ApiError(400, sentence_of(error), param="tools", code="unsupported_value") from None


def _texts(conversation: Conversation) -> Iterator[str]:
    yield from (*conversation.instructions, *conversation.tools, conversation.begun)
    for turn in conversation.turns:
        yield from (turn.text, *(call.arguments for call in turn.calls))


def read_conversation(messages: Sequence[ChatMessage], given: str = "messages") -> Conversation:
    """Returns system and developer messages as instructions, and the turns.

    Consecutive messages of a role are one turn, except tool calls and results. A last assistant turn begins the
    answer. Raises `ApiError` (400) without a question.
    """
    turns = _turns(messages)
    if turns and turns[-1].calls and turns[-1].role == "assistant":
        raise ApiError(
            400, "The last message calls tools, and no message has their results.", param=given, code="invalid_value"
        )
    begun = turns.pop().text if turns and turns[-1].role == "assistant" else ""
    questions = [turn.text for turn in turns if turn.role == "user"]
    if not questions:
        raise ApiError(400, "There must be a message with the role 'user'.", param=given, code="no_question")
    if not questions[-1]:
        raise ApiError(400, "The question is empty.", param=given, code="empty_query")
    instructions = (message.content.strip() for message in messages if message.role in ("system", "developer"))
    return Conversation(tuple(turns), tuple(filter(None, instructions)), begun)


def _turns(messages: Sequence[ChatMessage]) -> list[Turn]:
    turns: list[Turn] = []
    calls: dict[str, Call] = {}  # by the client's ids
    made = 0
    for index, message in enumerate(messages):
        text = message.content.strip()
        if message.role == "tool":
            call = calls.get(message.tool_call_id or "")
            if call is None:
                raise ApiError(
                    400,
                    f"'messages[{index}].tool_call_id' names no call of a message before it.",
                    param=f"messages[{index}].tool_call_id",
                    code="invalid_value",
                )
            turns.append(Turn("tool", message.content, (call,)))
        elif message.tool_calls:
            named = [(each.id, each.function) for each in message.tool_calls]
            own = [Call(made + n, each.name, each.arguments) for n, (_, each) in enumerate(named)]
            made += len(named)
            calls |= {key: call for (key, _), call in zip(named, own, strict=True)}
            turns.append(Turn("assistant", text, tuple(own)))
        elif message.role in ("user", "assistant"):
            role: Literal["user", "assistant"] = "user" if message.role == "user" else "assistant"
            if turns and turns[-1].role == role and not turns[-1].calls:
                text = "\n".join(filter(None, (turns.pop().text, text)))
            turns.append(Turn(role, text))
    return turns


def make_request(
    fields: dict[str, Any], defaults: Request, question: str, query: Query, earlier: str = "", history: int = 0
) -> Request:
    """Makes a request of the method in `fields` or `defaults`. Raises `ApiError` (400) naming the field."""
    method = named_method(fields, defaults)
    texts: dict[str, Any] = {"question": question, "earlier": earlier, "history": history}
    texts |= {"prompt": query.text, "controls": query.controls, "documents_at": query.documents_at}
    shared = {key: value for key, value in defaults.model_dump().items() if _shared(key, method.request)}
    if fields.get("privacy") in ("strict", "secret"):
        shared["placement"] = "device"  # these allow no other
    return validated(method.request, shared | fields | texts)


def named_method(fields: dict[str, Any], defaults: Request) -> Method:
    """Raises `ApiError` (400)."""
    name = fields.get("method", defaults.method)
    method = METHODS.get(name) if isinstance(name, str) else None
    if method is None:
        known = ", ".join(f"'{each}'" for each in METHODS)
        raise ApiError(400, f"Invalid value for 'method': it is one of {known}.", param="method", code="invalid_value")
    return method


def _shared(name: str, kind: type[Request]) -> bool:
    return bool(kind.model_fields[name].default == Request.model_fields[name].default)


def derived_seed(seed: int, index: int) -> int:
    """Returns the seed of the answer `index`; index 0 has `seed` itself."""
    if index == 0:
        return seed
    return int.from_bytes(hashlib.blake2b(f"{seed} {index}".encode(), digest_size=8).digest(), "big") % DRAWN_SEEDS


def _asked(
    questions: Iterable[_Question], fields: dict[str, Any], options: HttpOptions, n: int, continued: bool
) -> RequestBatch:
    method = named_method(fields, options.defaults)
    ignored = find_foreign_options(fields, method.request.model_fields, method.name)
    fields = {name: value for name, value in fields.items() if name in method.request.model_fields}
    fields, notes = _within_limits(fields, options)
    notes = (*notes_of(ignored), *notes)
    listed = list(questions)
    if fields.get("files") and n * len(listed) > 1:
        raise ApiError(
            400, "Files go with one answer: ask for one, to one prompt.", param="files", code="invalid_value"
        )
    requests = [
        make_request(fields, options.defaults, each.text, each.query, each.earlier, each.history) for each in listed
    ]
    if n > 1 and requests[0].temperature == 0:
        notes = (*notes, "At temperature 0 all answers to a prompt are the same.")
    each = [_numbered(request, index) for request in requests for index in range(n)]
    return RequestBatch(tuple(each), notes, n, continued)


def _numbered(request: Request, index: int) -> Request:
    if request.seed is None or index == 0:
        return request
    return request.model_copy(update={"seed": derived_seed(request.seed, index)})


def _within_limits(fields: dict[str, Any], options: HttpOptions) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Makes the seed non-negative and limits the tokens, with a note on these."""
    changed: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    seed, limit = fields.get("seed"), fields.get("max_tokens")
    if type(seed) is int and -SEEDS // 2 <= seed < 0:
        changed["seed"] = seed % SEEDS
    if type(limit) is int and limit > options.most_tokens:
        changed["max_tokens"] = options.most_tokens
        notes = (f"The request asks for more tokens than this device's answers may have: {options.most_tokens}.",)
    return fields | changed, notes


def _prompt(prompt: str | list[int], engine: Engine) -> _Question:
    """Keeps token ids that their text would not encode to."""
    if isinstance(prompt, str):
        text, query = prompt, Query(prompt)
    else:
        try:
            text = engine.decode(prompt)
        except ValueError as error:
            raise ApiError(400, sentence_of(error), param="prompt", code="invalid_value") from None
        if len(text) > LONGEST_QUESTION:
            raise prompt_too_long("prompt", LONGEST_QUESTION)
        query = Query(text)
        if engine.encode(text) != prompt:
            if len(prompt) > MOST_CONTROLS:
                raise ApiError(
                    400,
                    f"More than {MOST_CONTROLS} token ids without text are not supported.",
                    param="prompt",
                    code="unsupported_value",
                )
            query = Query("", tuple(Control(0, token) for token in prompt))
    if not text.strip():
        raise ApiError(400, "The prompt is empty.", param="prompt", code="empty_query")
    return _Question(text.strip(), query)
