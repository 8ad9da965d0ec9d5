"""Tools of a body: callable functions, and earlier calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import from_json

from common.processors.calls import MOST_CALLS, TOOL_NAME, Calls, CallShape, Tool, lean

Name = Annotated[str, Field(pattern=TOOL_NAME)]


class _Part(BaseModel):
    """A part of a body; what else it may have binds nothing."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class Function(_Part):
    """A function that an answer may call; `parameters` is a JSON schema of an object."""

    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None

    @field_validator("parameters")
    @classmethod
    def _of_an_object(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None and value.get("type", "object") != "object":
            raise ValueError("the schema of a function's parameters is of type 'object'")
        return value

    @property
    def told(self) -> str:
        """The function's JSON for the model."""
        value = {"name": self.name, "description": self.description, "parameters": self.parameters or {}}
        return json.dumps({name: item for name, item in value.items() if item is not None}, ensure_ascii=False)


class ToolBody(_Part):
    """One of a chat's `tools`."""

    type: Literal["function"]
    function: Function


class FlatToolBody(Function):
    """One of a response's `tools`."""

    type: Literal["function"]

    @model_validator(mode="before")
    @classmethod
    def _function(cls, value: object) -> object:
        """Refuses other kinds of tools before reporting missing names."""
        if isinstance(value, dict) and value.get("type") != "function":
            raise ValueError("a tool is of type 'function': this daemon has none of its own")
        return value


class CalledFunction(_Part):
    """A function's name and its arguments, an object as JSON text."""

    name: Name
    arguments: str = "{}"

    @field_validator("arguments")
    @classmethod
    def _object(cls, value: str) -> str:
        try:
            members = from_json(value or "{}", allow_inf_nan=False)
        except ValueError:
            members = None
        if not isinstance(members, dict):
            raise ValueError("the arguments of a call are a JSON object, as text")
        return value or "{}"


class CallBody(_Part):
    """One of the `tool_calls` of an earlier answer."""

    id: str = Field(max_length=256)
    type: Literal["function"] = "function"
    function: CalledFunction


class Choice(_Part):
    """OpenAI's `tool_choice`: `none`, `auto` or `required`, and the one function that must be called."""

    mode: Literal["none", "auto", "required"]
    named: str | None = None


def _choice(value: object, flat: bool) -> object:
    if value in ("none", "auto", "required"):
        return {"mode": value}
    named = value if isinstance(value, dict) and value.get("type") == "function" else None
    if named is not None and not flat:
        named = named.get("function")
    if not (isinstance(named, dict) and isinstance(named.get("name"), str)):
        raise ValueError("expected 'none', 'auto', 'required', or an object that names a function")
    return {"mode": "required", "named": named["name"]}


def _given(flat: bool) -> BeforeValidator:
    return BeforeValidator(partial(_choice, flat=flat), json_schema_input_type=str | dict[str, Any])


GivenChoice = Annotated[Choice, _given(flat=False)]
FlatChoice = Annotated[Choice, _given(flat=True)]  # with the name beside the type


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Functions that an answer may call, or `must`."""

    functions: tuple[Function, ...]
    must: bool = False
    named: str | None = None  # the one that it must call
    parallel: bool = True  # several calls

    @property
    def told(self) -> tuple[str, ...]:
        """The functions' JSON for the model."""
        return tuple(function.told for function in self.functions)

    def calls(self, shape: CallShape) -> Calls:
        several = self.parallel and self.named is None and shape.between is not None
        tools = [
            Tool(name=function.name, parameters=lean(function.parameters or {}))
            for function in self.functions
            if self.named in (None, function.name)
        ]
        return Calls(shape=shape, tools=tuple(tools), must=self.must, most=MOST_CALLS if several else 1)


def toolbox(functions: Sequence[Function], choice: Choice, parallel: bool | None) -> Toolbox | None:
    """Combines `tools`, `tool_choice` and `parallel_tool_calls`; None: no calls.

    Raises `ValueError` for a conflict.
    """
    names = [function.name for function in functions]
    if len(set(names)) < len(names):
        raise ValueError("two of 'tools' have the same name")
    if choice.named is not None and choice.named not in names:
        raise ValueError("'tool_choice' names a function that is not among 'tools'")
    if choice.mode == "required" and not functions:
        raise ValueError("'tool_choice' asks for a call, and there are no 'tools'")
    if not functions or choice.mode == "none":
        return None
    return Toolbox(tuple(functions), choice.mode == "required", choice.named, parallel is not False)
