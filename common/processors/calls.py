"""Tool calls as a format of answers: text, calls, or either, by a grammar.

The grammar is a function of the request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from common.processors.trial import SPACING
from proto.messages import LONGEST_PROCESSORS, MOST_BIASES

# --- members
# JSON schemas as constraints: closed to unnamed members, without annotations.

_IN_PLACE: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf"})  # schemas of the value itself, not of its parts
# These make a list of members incomplete, or already restrict others.
_OTHERS: Final = _IN_PLACE | {"additionalProperties", "unevaluatedProperties", "patternProperties", "minProperties"}
_DEFINED: Final = ("$defs", "definitions")
_NAMED: Final = ("properties", *_DEFINED)  # schemas by name
_ANNOTATIONS: Final = ("title", "description", "$comment")
_VALUES: Final = ("enum", "const", "default", "examples", "required", "dependentRequired")  # not schemas
_BY_NAME: Final = (*_NAMED, "patternProperties", "dependentSchemas")
_PARTS: Final = ("items", "anyOf", "oneOf", "prefixItems")  # a schema, or alternatives
_CONTENTS: Final = frozenset({"properties", "patternProperties", "items", "prefixItems"})


def closed(schema: Any) -> Any:
    """Forbids unnamed members in the schema's objects, unless it says so itself.

    Small models invent members without end. Schemas that apply together to an object stay unchanged, because each lists
    only some members. So do definitions that one of them references.
    """
    return _closed(schema, {reference.removeprefix("#/").partition("/")[0] for reference in _references(schema, False)})


def _closed(schema: Any, kept: Set[str]) -> Any:
    """Schemas under the keywords `kept` stay unchanged."""
    if isinstance(schema, list):
        return [_closed(each, kept) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made, together = dict(schema), _hold_together(schema)
    for name in schema.keys() & set(_DEFINED if together else _NAMED) - kept:
        if isinstance(schema[name], dict):
            made[name] = {key: _closed(each, kept) for key, each in schema[name].items()}
    for name in schema.keys() & set(() if together else _PARTS) - kept:
        made[name] = _closed(schema[name], kept)
    if isinstance(schema.get("properties"), dict) and not schema.keys() & _OTHERS and _names_what_it_requires(schema):
        made["additionalProperties"] = False
    return made


def _references(schema: Any, together: bool) -> Iterator[str]:
    """Yields references to schemas combined with others; all if `together`."""
    if isinstance(schema, list):
        for each in schema:
            yield from _references(each, together)
    elif isinstance(schema, dict):
        together = together or _hold_together(schema)
        if together and isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for keyword, each in schema.items():
            yield from _references(each, together and keyword not in _DEFINED)


def _hold_together(schema: dict[str, Any]) -> bool:
    """Whether several parts describe one object or array. A choice's alternatives count as one part."""
    own = any(schema.get(keyword) for keyword in (*_CONTENTS, "required"))
    choices = sum(any(map(_speaks, _listed(schema, keyword))) for keyword in ("anyOf", "oneOf"))
    return own + ("$ref" in schema) + choices + len(_listed(schema, "allOf")) > 1


def _speaks(part: Any) -> bool:
    return isinstance(part, dict) and bool(part.keys() & (_CONTENTS | _IN_PLACE))


def _listed(schema: dict[str, Any], keyword: str) -> list[Any]:
    parts = schema.get(keyword)
    return parts if isinstance(parts, list) else []


def _names_what_it_requires(schema: dict[str, Any]) -> bool:
    required = {name for name in _listed(schema, "required") if isinstance(name, str)}
    return required.issubset(schema["properties"])


def lean(schema: Any) -> Any:
    """Removes annotations, to save bytes to the cloud."""
    if isinstance(schema, list):
        return [lean(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword in _BY_NAME and isinstance(value, dict):
            kept[keyword] = {name: lean(each) for name, each in value.items()}
        elif keyword not in _ANNOTATIONS:
            kept[keyword] = value if keyword in _VALUES else lean(value)
    return kept


# --- calls

MOST_TOOLS: Final = 64  # most tools that an answer may call
MOST_CALLS: Final = 8  # most calls of one answer; a small model may list calls without end
TOOL_NAME: Final = "^[A-Za-z0-9_.-]{1,64}$"
_LONGEST_LITERAL: Final = 256  # characters

# Words around calls: text, and special tokens by their ids.
Literals = Annotated[
    tuple[Annotated[str, Field(max_length=_LONGEST_LITERAL)] | Annotated[int, Field(ge=0)], ...], Field(max_length=8)
]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class CallShape(_Value):
    """The words of a model's calls: `opening {"name": ..., "<arguments>": {...}} closing`."""

    opening: Literals
    arguments: Annotated[str, Field(pattern="^[a-z_]{1,32}$")]  # the name of this member
    closing: Literals
    between: Literals | None = None  # words between two calls; None: at most one call

    @property
    def trigger(self) -> str | int:
        """The text or token that marks a call; empty if calls begin answers."""
        if not self.opening:
            return ""
        first = self.opening[0]
        return first.strip() if isinstance(first, str) else first


class Tool(_Value):
    """A function by name, with the JSON schema of its arguments."""

    name: Annotated[str, Field(pattern=TOOL_NAME)]
    parameters: dict[str, Any]


class Calls(_Value):
    """The calls that an answer may make, or `must` make, at most `most` of them."""

    shape: CallShape
    tools: Annotated[tuple[Tool, ...], Field(min_length=1, max_length=MOST_TOOLS)]
    must: bool = False
    most: Annotated[int, Field(ge=1, le=MOST_CALLS)] = 1

    @field_validator("tools")
    @classmethod
    def _of_different_names(cls, value: tuple[Tool, ...]) -> tuple[Tool, ...]:
        if len({tool.name for tool in value}) < len(value):
            raise ValueError("two tools have the same name")
        return value


def call_grammar(calls: Calls, answer: str | None) -> str:
    """The grammar, in llguidance's Lark, of an answer with `calls` or another answer.

    The other answer is the JSON schema `answer`, or any text for None. Raises `ValueError`, half a sentence, if the two
    can't be distinguished.
    """
    shape, trigger = calls.shape, calls.shape.trigger
    if answer is not None and not calls.must and not trigger:
        raise ValueError("this model's tool calls are JSON, and can't be distinguished from an answer with a format")
    first, *others = shape.opening or ("",)
    behind = () if isinstance(first, int) else (first[first.index(str(trigger)) + len(str(trigger)) :],)
    opened = _literal((trigger,)) if trigger else ""
    more = "" if shape.between is None or calls.most == 1 else f" (more){{0,{calls.most - 1}}}"
    lines = [
        "%llguidance {}",
        f"start: {_start(calls, answer, opened)}",
        f"calls: {_literal((*behind, *others))} call{more} {_literal(shape.closing)}",
        "call: " + " | ".join(f"call_{number}" for number in range(len(calls.tools))),
        *(_call(number, tool, shape.arguments) for number, tool in enumerate(calls.tools)),
        # After the distinction from a call, the whole text is JSON.
        f"text: %json {_spaced(answer)}" if answer is not None else "TEXT: /(.|\\n)*/",
    ]
    if more:
        lines.append(f"more: {_literal(shape.between or ())} call")
    if not calls.must and answer is None:
        if not trigger:
            lines.append("OTHER: /(\\s*[^\\s{](.|\\n)*)?/")
        elif isinstance(trigger, str):
            lines.append(f"opened[lazy]: TEXT {opened}")
    return "\n".join(lines)


def _start(calls: Calls, answer: str | None, opened: str) -> str:
    trigger = calls.shape.trigger
    if calls.must:
        return f"{opened} calls"
    if answer is not None:
        return f"text | {opened} calls"
    if not trigger:
        return "OTHER | calls"
    return "TEXT | opened calls" if isinstance(trigger, str) else f"TEXT | TEXT {opened} calls"


def _call(number: int, tool: Tool, arguments: str) -> str:
    members = closed({"type": "object", "properties": {}} | tool.parameters)
    head = f'{{"name": {json.dumps(tool.name)}, {json.dumps(arguments)}: '
    return f'call_{number}: {json.dumps(head)} %json {_spaced(json.dumps(members))} "}}"'


def _spaced(schema: str) -> str:
    value = json.loads(schema)
    return json.dumps(value | {"x-guidance": dict(SPACING)} if isinstance(value, dict) else value)


def _literal(parts: Sequence[str | int]) -> str:
    return " ".join(json.dumps(part) if isinstance(part, str) else f"<[{part}]>" for part in parts if part != "")


# --- options
# Request options that change the answer's distribution.

BIAS = 100.0  # nats, either way
PENALTY = 2.0  # nats, either way
_DECIMAL = re.compile("[0-9]{1,18}")  # fits 64 bits


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
    """The JSON schema of an OpenAI `response_format` as text; None for text. JSON input has it as text already."""
    if value is None or info.mode == "json":
        return value
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind == "text":
        return None
    if kind not in ("json_object", "json_schema") or not isinstance(value, Mapping):
        raise ValueError("expected an object whose 'type' is 'text', 'json_object' or 'json_schema'")
    # In a chat it is one level deeper than in /v1/responses; some programs put it beside `json_object`.
    schema = value.get("json_schema", value) if kind == "json_schema" else value
    schema = schema.get("schema") if isinstance(schema, Mapping) else None
    if schema is None and kind == "json_object":
        schema = {"type": "object"}
    if not isinstance(schema, dict):
        raise ValueError(f"a '{kind}' needs a 'schema', which is an object")
    text = json.dumps(closed(lean(schema)), ensure_ascii=False, separators=(",", ":"))
    if len(text.encode(errors="replace")) > LONGEST_PROCESSORS:
        raise ValueError(f"a schema has at most {LONGEST_PROCESSORS} bytes, without its descriptions")
    return text


class ProcessorOptions(BaseModel):
    """Changes of the mixture of all documents before its temperature. Raises pydantic's `ValidationError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    logit_bias: Annotated[
        dict[Annotated[int, Field(ge=0)], Annotated[float, Field(ge=-BIAS, le=BIAS)]], BeforeValidator(_biases)
    ] = Field(default_factory=dict)  # nats added to a token's log-probability
    presence_penalty: float = Field(default=0.0, ge=-PENALTY, le=PENALTY)  # nats subtracted from tokens in the answer
    frequency_penalty: float = Field(default=0.0, ge=-PENALTY, le=PENALTY)  # nats subtracted per occurrence
    response_format: Annotated[str | None, BeforeValidator(_schema, json_schema_input_type=dict[str, Any])] = (
        None  # the answer's JSON schema as text
    )
    calls: Calls | None = None  # tool calls that the answer may or must make


class ProcessorError(ValueError):
    """An unsupported option. The text is one sentence for the user."""

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


def encode_options(options: ProcessorOptions) -> str:
    """The options other than defaults as a JSON object; empty without any."""
    names = ProcessorOptions.model_fields.keys()
    given = options.model_dump_json(include=set(names), exclude_defaults=True)
    return "" if given == "{}" else given


def decode_options(text: str) -> ProcessorOptions:
    """Raises `ProcessorError` for unreadable or out-of-range options."""
    try:
        return ProcessorOptions.model_validate_json(text) if text else ProcessorOptions()
    except ValidationError:
        sentence = "The answer's processors can't be read, or are out of their limits."
        raise ProcessorError(sentence, "processors") from None
