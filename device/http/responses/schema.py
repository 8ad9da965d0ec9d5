"""The body of `POST /v1/responses`, and the conversation in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from common.processors.calls import MOST_TOOLS
from device.http.schema import MOST_MESSAGES, TAG, ChatMessage, GenerationBody, Lenient, joined_text
from device.http.tools import CallBody, CalledFunction, Choice, FlatChoice, FlatToolBody, Toolbox, toolbox

LOGPROBS = "message.output_text.logprobs"  # in `include`
_KINDS = ("message", "function_call", "function_call_output")

CallId = Annotated[str, Field(max_length=256)]


class TextOptions(Lenient):
    """`text`: how the answer is put."""

    format: dict[str, Any] | None = None


class MessageItem(ChatMessage):
    """A message of the conversation."""

    @model_validator(mode="before")
    @classmethod
    def _message(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        if value.get("role") == "tool" or value.get("tool_calls"):
            raise ValueError("calls are items of type 'function_call', and their results 'function_call_output'")
        # Drops fields of the answer's items, which return in the history.
        kept = {key: item for key, item in value.items() if key not in ("type", "id", "status", "phase")}
        if "content" in kept:
            kept["content"] = joined_text(kept["content"], ("input_text", "output_text", "text"))
        return kept


class CallItem(CalledFunction):
    """A call of a tool in an earlier answer."""

    type: Literal["function_call"]
    call_id: CallId


class ResultItem(BaseModel):
    """Result of a call of a tool."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Literal["function_call_output"]
    call_id: CallId
    output: Annotated[
        str,
        BeforeValidator(
            lambda value: joined_text(value, ("input_text", "output_text", "text")),
            json_schema_input_type=str | list[dict[str, Any]],
        ),
    ]


def _kind(value: object) -> str | None:
    kind = value.get("type", "message") if isinstance(value, dict) else "message"
    return f"{TAG}{kind}" if kind in _KINDS else None


Item = Annotated[
    Annotated[MessageItem, Tag(f"{TAG}message")]
    | Annotated[CallItem, Tag(f"{TAG}function_call")]
    | Annotated[ResultItem, Tag(f"{TAG}function_call_output")],
    Discriminator(
        _kind,
        custom_error_type="unsupported_item",
        custom_error_message=f"only items of type {', '.join(map(repr, _KINDS))} are supported",
    ),
]


def _items(value: object) -> object:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class ResponsesBody(GenerationBody):
    """`POST /v1/responses`."""

    input: Annotated[
        list[Item],
        Field(min_length=1, max_length=MOST_MESSAGES),
        BeforeValidator(_items, json_schema_input_type=str | list[Item]),
    ]
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    text: TextOptions = Field(default_factory=TextOptions)
    include: list[str] = Field(default_factory=list, max_length=64)
    tools: list[FlatToolBody] = Field(default_factory=list, max_length=MOST_TOOLS)
    tool_choice: FlatChoice = Choice(mode="auto")

    @field_validator("input")
    @classmethod
    def _returned_what_was_called(cls, items: list[Item]) -> list[Item]:
        called = set[str]()
        for index, item in enumerate(items):
            if isinstance(item, CallItem):
                called.add(item.call_id)
            elif isinstance(item, ResultItem) and item.call_id not in called:
                raise ValueError(f"the 'call_id' of item {index} is that of no call before it")
        return items

    @model_validator(mode="after")
    def _one_format(self) -> ResponsesBody:
        older = super().options.get("response_format")
        if None not in (older, self.text.format) and older != self.text.format:
            raise ValueError("'text.format' and 'response_format' differ")
        return self

    @model_validator(mode="after")
    def _tools(self) -> ResponsesBody:
        _ = self.toolbox
        return self

    @property
    def toolbox(self) -> Toolbox | None:
        """The functions that the answer may call, or None."""
        return toolbox(self.tools, self.tool_choice, self.parallel_tool_calls)

    @property
    def format(self) -> Any:
        """The answer's format, also given under the chats' name."""
        if self.text.format is not None:
            return self.text.format
        return super().options.get("response_format", {"type": "text"})

    @property
    def options(self) -> dict[str, Any]:
        limit = self.max_output_tokens
        options = super().options | {"response_format": self.format}
        if LOGPROBS in self.include:
            options = {"top_logprobs": 0} | options
        elif options.get("top_logprobs") == 0:  # clients that want none
            del options["top_logprobs"]
        return options | ({} if limit is None else {"max_tokens": limit})

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation as chat messages; one answer's calls and text are one message."""
        messages = [] if self.instructions is None else [ChatMessage(role="system", content=self.instructions)]
        for item in self.input:
            if isinstance(item, CallItem):
                told = CallBody(id=item.call_id, function=CalledFunction(name=item.name, arguments=item.arguments))
                open_answer = (
                    messages and messages[-1].role == "assistant" and len(messages[-1].tool_calls) < MOST_TOOLS
                )
                last = messages.pop() if open_answer else ChatMessage(role="assistant")
                messages.append(last.model_copy(update={"tool_calls": [*last.tool_calls, told]}))
            elif isinstance(item, ResultItem):
                messages.append(ChatMessage(role="tool", tool_call_id=item.call_id, content=item.output))
            else:
                messages.append(item)
        return messages

    def ignored(self) -> Iterator[str]:
        yield from super().ignored()
        yield from (f"include.{name}" for name in self.include if name != LOGPROBS)
        yield from (f"text.{name}" for name in self.text.extras())
        messages = (item for item in self.input if isinstance(item, MessageItem))
        yield from (f"input.{name}" for item in messages for name in item.extras())
