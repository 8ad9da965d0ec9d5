"""The request bodies that are accepted: OpenAI's fields, the documented extras, and nothing else."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import from_json

from common.methods.catalog import METHODS
from common.methods.request import Request
from common.model.prompt import Query
from device.http.errors import ApiError
from proto.limits import MOST_TOKENS

# Fields of OpenAI's API that are not implemented, with the values that ask for nothing (null always does).
UNSUPPORTED: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "logprobs": (False,),
    "top_logprobs": (),
    "logit_bias": ({},),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "prediction": (),
    "reasoning_effort": (),
    "verbosity": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "metadata": ({},),
    "web_search_options": (),
    "moderation": (),
}

Model = TypeVar("Model", bound=BaseModel)


class StreamOptions(BaseModel):
    """`stream_options`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    include_usage: bool = False
    include_obfuscation: bool = False  # accepted, never done: the daemon is local


class GenerationBody(BaseModel):
    """A body of either generation endpoint: OpenAI's own fields; all others are options of the method."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    model: str = Field(max_length=1024)
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None  # ignored: there is one user

    @property
    def options(self) -> dict[str, Any]:
        """The method's options that the body gives."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _stream_options_need_stream(self) -> GenerationBody:
        if self.stream_options is not None and not self.stream:
            raise ValueError("'stream_options' is only allowed with 'stream': true")
        return self

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(GenerationBody):
    """`POST /v1/completions`."""

    prompt: str

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_text(cls, value: object) -> object:
        if isinstance(value, list):
            if len(value) != 1 or not isinstance(value[0], str):
                raise ValueError("one text is supported; several prompts and token ids are not")
            return value[0]
        return value


class ChatMessage(BaseModel):
    """One turn of a conversation; `content` is text, parts of type `text` are joined."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str = ""
    name: str | None = None  # ignored

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        return _drop_nulls(value) if isinstance(value, dict) else value

    @field_validator("content", mode="before")
    @classmethod
    def _text_parts(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        texts: list[str] = []
        for part in value:
            if not (isinstance(part, dict) and part.get("type") == "text" and part.keys() == {"type", "text"}):
                raise ValueError("only content parts of type 'text' are supported")
            if not isinstance(part["text"], str):
                raise ValueError("the text of a content part must be a string")
            texts.append(part["text"])
        return "\n".join(texts)


class ChatBody(GenerationBody):
    """`POST /v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=1024)
    max_completion_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)

    @model_validator(mode="after")
    def _one_token_limit(self) -> ChatBody:
        limits = {super().options.get("max_tokens"), self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise ValueError("'max_tokens' and 'max_completion_tokens' differ")
        return self

    @property
    def options(self) -> dict[str, Any]:
        limit = self.max_completion_tokens
        return super().options | ({} if limit is None else {"max_tokens": limit})


def parse_completion(body: bytes) -> CompletionBody:
    """Validate a completion request. Raises `ApiError` (400) naming the field."""
    return _validate(CompletionBody, _json_object(body))


def parse_chat(body: bytes) -> ChatBody:
    """Validate a chat request. Raises `ApiError` (400) naming the field."""
    return _validate(ChatBody, _json_object(body))


def make_request(options: dict[str, Any], defaults: Request, question: str, query: Query) -> Request:
    """A request of the method that `options` name, or else `defaults`. Raises `ApiError` (400) naming the field."""
    name = options.get("method", defaults.method)
    method = METHODS.get(name) if isinstance(name, str) else None
    if method is None:
        known = ", ".join(f"'{each}'" for each in METHODS)
        raise ApiError(400, f"Invalid value for 'method': it is one of {known}.", param="method", code="invalid_value")
    texts = {"question": question, "prompt": query.text, "controls": query.controls}
    for reserved in texts:
        if reserved in options:
            raise _unknown(reserved)
    try:
        return method.request.model_validate(defaults.model_dump() | options | texts)
    except ValidationError as error:
        raise _refusal(error) from None


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, "The body of the request is not valid JSON.", code="invalid_json") from error
    if not isinstance(value, dict):
        raise ApiError(400, "The body of the request must be a JSON object.", code="invalid_json")
    return _drop_nulls(value)


def _drop_nulls(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item is not None}


def _validate(model: type[Model], body: dict[str, Any]) -> Model:
    for name, neutral in UNSUPPORTED.items():
        if name in body and not _is_one_of(body.pop(name), neutral):
            raise ApiError(400, f"'{name}' is not supported.", param=name, code="unsupported_parameter")
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise _refusal(error) from None


def _is_one_of(value: object, values: tuple[object, ...]) -> bool:
    # By type too: in Python `False == 0`, but `"logprobs": 0` asks for log probabilities.
    return any(type(value) is type(other) and value == other for other in values)


def _refusal(error: ValidationError) -> ApiError:
    """The first violation, without the offending value."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    param = _path(first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown(param)
    if first["type"] == "missing":
        return ApiError(400, f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
    reason = first["msg"].removeprefix("Value error, ").rstrip(".")
    if not param:
        return ApiError(400, f"{reason}.", code="invalid_value")
    return ApiError(400, f"Invalid value for '{param}': {reason}.", param=param, code="invalid_value")


def _unknown(param: str) -> ApiError:
    return ApiError(400, f"Unrecognized request argument supplied: '{param}'.", param=param, code="unknown_parameter")


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part[:64]}" if path else part[:64]
    return path
