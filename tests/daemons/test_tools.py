"""Calls of tools by two real daemons: arguments that fit their schema, the same in every mode."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from scripts.daemons import Pair
from tests.common.processors.schemas import CAR

QUESTION = "What is the best-selling game of the kind I like?"
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "weather", "description": "Says how it is.", "parameters": CITY}},
    {"type": "function", "function": {"name": "buy_car", "parameters": CAR}},
]
NAMED: Any = {"type": "function", "function": {"name": "buy_car"}}
MODES: tuple[dict[str, Any], ...] = ({}, {"placement": "cloud"}, {"method": "token-wise"})


@pytest.fixture(scope="module")
def client(fresh_data: Callable[[], Path]) -> Iterator[openai.OpenAI]:
    with (
        Pair(fresh_data(), {"privacy": "balanced", "patience": 60.0}) as pair,
        openai.OpenAI(base_url=f"{pair.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


def ask(client: openai.OpenAI, *messages: Any, **fields: Any) -> Any:
    asked: list[Any] = [{"role": "user", "content": QUESTION}, *messages]
    extra = {name: fields.pop(name) for name in ("placement", "method", "sources") if name in fields}
    fields = {"max_tokens": 96, "tools": TOOLS, "seed": 5} | fields
    return client.chat.completions.create(model="dragon", messages=asked, extra_body=extra, **fields)


def check(call: Any) -> None:
    """The call is one of the tools, with arguments by its schema."""
    arguments = json.loads(call.function.arguments)
    if call.function.name == "weather":
        assert arguments.keys() == {"city", "days"}
        assert len(arguments["city"]) <= 8 and 1 <= arguments["days"] <= 9
    else:
        assert call.function.name == "buy_car"
        assert arguments.keys() == {"name", "electric", "doors"} and arguments["doors"] in (3, 5)


@pytest.mark.parametrize(("choice", "temperature"), [("required", 1.0), (NAMED, 0.0)], ids=["required", "named"])
def test_calls_that_must_be_made_are_valid_and_the_same_in_every_mode(
    client: openai.OpenAI, choice: Any, temperature: float
) -> None:
    answers = [ask(client, tool_choice=choice, temperature=temperature, **mode) for mode in MODES]
    for answer in answers:
        (told,) = answer.choices
        assert told.finish_reason == "tool_calls" and told.message.content is None
        (call,) = told.message.tool_calls
        check(call)
        assert choice == "required" or call.function.name == "buy_car"
    texts = [answer.choices[0].message.tool_calls[0].function for answer in answers]
    assert texts[0] == texts[1] == texts[2]
    assert answers[0].dragon["disagreements"] == 0
