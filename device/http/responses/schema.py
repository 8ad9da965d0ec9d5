"""The body of `POST /v1/responses`, and the conversation in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from device.http.schema import MOST_MESSAGES, ChatMessage, GenerationBody, Lenient, joined_text

LOGPROBS = "message.output_text.logprobs"  # in `include`


class TextOptions(Lenient):
    """`text`: how the answer is put."""

    format: dict[str, Any] = Field(default_factory=lambda: {"type": "text"})


class Item(ChatMessage):
    """A message of the conversation; items of other types are not supported."""

    @model_validator(mode="before")
    @classmethod
    def _message(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        if value.get("type", "message") != "message":
            raise ValueError("only items of type 'message' are supported")
        # What the answer's own items say about themselves, which comes back in the history, is left out.
        kept = {key: item for key, item in value.items() if key not in ("type", "id", "status", "phase")}
        if "content" in kept:
            kept["content"] = joined_text(kept["content"], ("input_text", "output_text", "text"))
        return kept


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

    @property
    def options(self) -> dict[str, Any]:
        limit = self.max_output_tokens
        options = super().options | {"response_format": self.text.format}
        if LOGPROBS in self.include:
            options = {"top_logprobs": 0} | options
        return options | ({} if limit is None else {"max_tokens": limit})

    @property
    def messages(self) -> list[ChatMessage]:
        """Instructions and input as the messages of a chat."""
        first = [] if self.instructions is None else [ChatMessage(role="system", content=self.instructions)]
        return [*first, *self.input]

    def ignored(self) -> Iterator[str]:
        yield from super().ignored()
        yield from (f"include.{name}" for name in self.include if name != LOGPROBS)
        yield from (f"text.{name}" for name in self.text.extras())
        yield from (f"input.{name}" for item in self.input for name in item.extras())
