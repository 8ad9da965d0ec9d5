"""Request bodies: OpenAI's fields and the options of this daemon's methods."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import from_json

from common.answer.request import MOST_LOGPROBS
from common.methods.catalog import METHODS
from common.processors.calls import MOST_TOOLS
from device.http.errors import ApiError, unknown
from device.http.fields import notes_of, sift
from device.http.tools import CallBody, Choice, GivenChoice, ToolBody, Toolbox, toolbox

MOST_CHOICES = 128  # answers per prompt, and prompts
MOST_MESSAGES = 1024
MOST_IDS = 2**17  # token ids per prompt
TAG = "<"  # begins the tags of alternatives

# Options that clients may give; the texts come from prompt or messages.
OPTIONS = frozenset(name for method in METHODS.values() for name in method.request.model_fields) - {
    "question",
    "prompt",
    "controls",
    "documents_at",
    "history",
    "keeper",
    "earlier",
    "calls",
}

Model = TypeVar("Model", bound="Body")
TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, max_length=MOST_IDS)]


class Lenient(BaseModel):
    """Takes fields that it doesn't know, which `ignored` names."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    def extras(self) -> Iterator[str]:
        return (name for name, value in (self.model_extra or {}).items() if value not in (None, "", [], {}))


class StreamOptions(Lenient):
    """`stream_options`. What they ask for, a whole answer has in any case."""

    include_usage: bool = False
    include_obfuscation: bool = False  # never done, as the daemon is local


class Body(Lenient):
    """Fields that all bodies have in common. Those beyond are options of the method."""

    model: str = Field("dragon", max_length=1024)
    user: str | None = None  # there is one user

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def ignored(self) -> Iterator[str]:
        """Paths of ignored fields below the body's own."""
        return iter(())


class GenerationBody(Body):
    """A body that asks for answers."""

    stream: bool = False
    stream_options: StreamOptions | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None  # always ignored
    service_tier: str | None = None
    parallel_tool_calls: bool | None = None  # for chats and responses

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def ignored(self) -> Iterator[str]:
        if self.stream_options is not None:
            yield from (f"stream_options.{name}" for name in self.stream_options.extras())


def _prompts(value: Any) -> Any:
    listed = [value] if isinstance(value, str) or _are_ids(value) else value
    few = isinstance(listed, list) and 0 < len(listed) <= MOST_CHOICES
    if not few or not (all(isinstance(each, str) for each in listed) or all(map(_are_ids, listed))):
        raise ValueError(f"expected a text, token ids, or an array of up to {MOST_CHOICES} of either")
    return listed


def _are_ids(value: Any) -> bool:
    known = isinstance(value, list) and 0 < len(value) <= MOST_IDS
    return known and all(type(each) is int and each >= 0 for each in value)


class CompletionBody(GenerationBody):
    """`POST /v1/completions`."""

    prompt: Annotated[
        list[str] | list[list[int]],
        BeforeValidator(_prompts, json_schema_input_type=str | list[str] | TokenIds | list[TokenIds]),
    ]
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    logprobs: Annotated[
        Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None,
        BeforeValidator(lambda value: None if value is False else value),
    ] = None

    @property
    def options(self) -> dict[str, Any]:
        return super().options | ({} if self.logprobs is None else {"top_logprobs": self.logprobs})


class ChatMessage(Lenient):
    """One turn of a conversation; `content` is text, parts of type `text` are joined."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str = ""
    name: str | None = None  # ignored
    tool_calls: list[CallBody] = Field(default_factory=list, max_length=MOST_TOOLS)
    tool_call_id: Annotated[str, Field(max_length=256)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: object) -> object:
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _calls(self) -> ChatMessage:
        if self.tool_calls and self.role != "assistant":
            raise ValueError("only messages of the role 'assistant' have 'tool_calls'")
        if (self.role == "tool") != (self.tool_call_id is not None):
            raise ValueError("messages of the role 'tool', and no others, have a 'tool_call_id'")
        return self

    @field_validator("content", mode="before")
    @classmethod
    def _text_parts(cls, value: object) -> object:
        return joined_text(value, ("text",))


class ChatBody(GenerationBody):
    """`POST /v1/chat/completions`."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=MOST_MESSAGES)
    n: int = Field(1, ge=1, le=MOST_CHOICES)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MOST_LOGPROBS)
    tools: list[ToolBody] = Field(default_factory=list, max_length=MOST_TOOLS)
    tool_choice: GivenChoice = Choice(mode="auto")

    @model_validator(mode="after")
    def _tools(self) -> ChatBody:
        _ = self.toolbox
        return self

    @property
    def toolbox(self) -> Toolbox | None:
        """The functions that the answer may call, or None."""
        return toolbox([tool.function for tool in self.tools], self.tool_choice, self.parallel_tool_calls)

    @model_validator(mode="after")
    def _logprobs(self) -> ChatBody:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("'top_logprobs' needs 'logprobs'")
        return self

    @model_validator(mode="after")
    def _one_token_limit(self) -> ChatBody:
        older = super().options.get("max_tokens")
        if None not in (older, self.max_completion_tokens) and older != self.max_completion_tokens:
            raise ValueError("'max_tokens' and 'max_completion_tokens' differ")
        return self

    @property
    def options(self) -> dict[str, Any]:
        limit = self.max_completion_tokens
        told = {"top_logprobs": self.top_logprobs} if self.logprobs else {}
        return super().options | told | ({} if limit is None else {"max_tokens": limit})

    def ignored(self) -> Iterator[str]:
        yield from super().ignored()
        yield from (f"messages.{name}" for message in self.messages for name in message.extras())


def joined_text(content: object, kinds: tuple[str, ...]) -> object:
    """Joins texts of content parts; returns other `content` unchanged.

    Raises `ValueError` for other parts.
    """
    if not isinstance(content, list):
        return content
    texts: list[str] = []
    for part in content:
        if not (isinstance(part, dict) and part.get("type") in kinds and "text" in part):
            raise ValueError(f"only content parts of type {' or '.join(map(repr, kinds))} are supported")
        if not isinstance(part["text"], str):
            raise ValueError("the text of a content part must be a string")
        texts.append(part["text"])
    return "\n".join(texts)


def parse(kind: type[Model], body: bytes) -> tuple[Model, tuple[str, ...]]:
    """Returns the body and notes on ignored fields. Raises `ApiError` (400) naming the field."""
    options = OPTIONS if issubclass(kind, GenerationBody) else frozenset[str]()
    kept, ignored = sift(json_object(body), options | kind.model_fields.keys())
    parsed = validated(kind, kept)
    # The method decides about options.
    return parsed, notes_of([*(name for name in ignored if name not in options), *parsed.ignored()])


def json_object(body: bytes) -> dict[str, Any]:
    """Raises `ApiError` (400)."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(400, "The body of the request is not valid JSON.", code="invalid_json") from error
    if not isinstance(value, dict):
        raise ApiError(400, "The body of the request must be a JSON object.", code="invalid_json")
    if not _is_finite(value):
        raise ApiError(400, "The body of the request has a number that is too large to read.", code="invalid_json")
    return value


def _is_finite(value: object) -> bool:
    values = [value]
    for each in values:
        if isinstance(each, dict):
            values += each.values()
        elif isinstance(each, list):
            values += each
        elif isinstance(each, float) and isinf(each):
            return False
    return True


AnyModel = TypeVar("AnyModel", bound=BaseModel)


def validated(kind: type[AnyModel], fields: dict[str, Any]) -> AnyModel:
    """Raises `ApiError` (400) with the first violation, without its value."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise _refusal(error) from None


def _refusal(error: ValidationError) -> ApiError:
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    param = _path(first["loc"])
    if first["type"] == "extra_forbidden":
        return unknown(param)
    if first["type"] == "missing":
        return ApiError(400, f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
    reason = first["msg"].removeprefix("Value error, ").rstrip(".")
    if not param:
        return ApiError(400, f"{reason}.", code="invalid_value")
    return ApiError(400, f"Invalid value for '{param}': {reason}.", param=param, code="invalid_value")


def _path(location: tuple[int | str, ...]) -> str:
    """The field's path, without the tags of alternatives."""
    path = ""
    for part in location:
        if isinstance(part, str) and part.startswith(TAG):
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part[:64]}" if path else part[:64]
    return path
