"""The options of a request that change its answer's distribution, as clients give them and as they travel."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo

from common.processors.calls import Calls
from common.processors.members import closed, lean
from proto.limits import LONGEST_PROCESSORS, MOST_BIASES

BIAS = 100.0  # nats, either way
PENALTY = 2.0  # nats, either way
_DECIMAL = re.compile("[0-9]{1,18}")  # 64 bits hold it


def _biases(value: object) -> object:
    if not isinstance(value, Mapping) or len(value) > MOST_BIASES:
        raise ValueError(f"expected an object with up to {MOST_BIASES} token ids and their biases")
    biases: dict[int, object] = {}
    for name, bias in value.items():
        if not (isinstance(name, int) or (isinstance(name, str) and _DECIMAL.fullmatch(name))):
            raise ValueError("a token id is a whole number")
        biases[int(name)] = bias
    return dict(sorted(biases.items()))


def _schema(value: object, info: ValidationInfo) -> object:
    """The JSON schema of an OpenAI `response_format`, written out; None for text. As JSON it travels written out."""
    if value is None or info.mode == "json":
        return value
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "text":
        return None
    if kind not in ("json_object", "json_schema") or not isinstance(value, Mapping):
        raise ValueError("expected an object whose 'type' is 'text', 'json_object' or 'json_schema'")
    # In a chat it lies a level deeper than in /v1/responses; some programs have it beside `json_object`.
    schema = value.get("json_schema", value) if kind == "json_schema" else value
    schema = schema.get("schema") if isinstance(schema, Mapping) else None
    if schema is None and kind == "json_object":
        schema = {"type": "object"}
    if not isinstance(schema, dict):
        raise ValueError(f"a '{kind}' needs a 'schema', which is an object")
    text = json.dumps(closed(lean(schema)), ensure_ascii=False, separators=(",", ":"))
    if len(text.encode(errors="replace")) > LONGEST_PROCESSORS:
        raise ValueError(f"a schema has at most {LONGEST_PROCESSORS} bytes, without what it only tells people")
    return text


class ProcessorOptions(BaseModel):
    """Changes of the mixture of all documents before its temperature. Raises pydantic's `ValidationError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    logit_bias: Annotated[
        dict[Annotated[int, Field(ge=0)], Annotated[float, Field(ge=-BIAS, le=BIAS)]], BeforeValidator(_biases)
    ] = Field(default_factory=dict)  # nats that are added to a token's log-probability
    presence_penalty: float = Field(default=0.0, ge=-PENALTY, le=PENALTY)  # nats off tokens that the answer has
    frequency_penalty: float = Field(default=0.0, ge=-PENALTY, le=PENALTY)  # nats off for each time that it has them
    response_format: Annotated[str | None, BeforeValidator(_schema, json_schema_input_type=dict[str, Any])] = (
        None  # the JSON schema of the answer, written out
    )
    calls: Calls | None = None  # of tools, which the answer may make or must make


class ProcessorError(ValueError):
    """An option that this model can't serve; the text is one sentence for the user."""

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


def travelling(options: ProcessorOptions) -> str:
    """The options that differ from their defaults as a JSON object; empty when none does."""
    names = ProcessorOptions.model_fields.keys()
    given = options.model_dump_json(include=set(names), exclude_defaults=True)
    return "" if given == "{}" else given


def received(text: str) -> ProcessorOptions:
    """Options from `travelling`. Raises `ProcessorError` for what can't be read or is out of its limits."""
    try:
        return ProcessorOptions.model_validate_json(text) if text else ProcessorOptions()
    except ValidationError:
        sentence = "The answer's processors can't be read, or are out of their limits."
        raise ProcessorError(sentence, "processors") from None
