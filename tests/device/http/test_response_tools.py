"""Tools in `/v1/responses`: what its items come to, the items that clients get, and the events of a stream."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types.responses import Response
from pydantic import BaseModel

from common.answer.request import Request
from device.http.answers import FinishedAnswer
from device.http.calls import CallReader
from device.http.errors import ApiError
from device.http.prompts import read_chat_request
from device.http.responses.output import Output
from device.http.responses.schema import ResponsesBody
from device.http.schema import parse
from device.interface import Finished, TokenChance, TokenEvent
from tests.device.http.asking import ENGINE, OPTIONS, chat, encode, turn
from tests.device.http.test_tools import ROME, written
from tests.device.table_engine import TableEngine, report

CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "name": "weather", "description": "Says.", "parameters": CITY, "strict": True}
CLOCK: Any = {"type": "function", "name": "clock", "parameters": None, "strict": None}
TOOLS: Any = [WEATHER, CLOCK]
OF_CHATS: Any = [
    {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}} for tool in TOOLS
]
QUESTION = turn("user", "Is it wet in Rome?")
TWO = written(("weather", ROME), ("clock", "{}"))
ANSWERS = {
    "call": ["See", "ing:\n<tool", written(("weather", '{"city": "Rome"}'))[len("<tool") :]],
    "text": ["Dry", " <tool"],
    "two": [TWO[at : at + 7] for at in range(0, len(TWO), 7)],
}


@pytest.fixture(autouse=True)
def _answers(engine: TableEngine) -> None:
    engine.answers = dict(ANSWERS)


def response(**fields: Any) -> Request:
    """The request that a response's body comes to."""
    body, notes = parse(ResponsesBody, encode(fields))
    assert not notes
    (request,) = read_chat_request(body.messages, body.options, 1, OPTIONS, ENGINE, body.toolbox, "input").requests
    return request


def ask(client: openai.OpenAI, text: Any, **fields: Any) -> Any:
    return client.responses.create(model="dragon", input=text, tools=TOOLS, **fields)


def told(answer: Response) -> list[tuple[str, ...]]:
    """Status, and text or name and arguments, of each item."""
    items: list[Any] = list(answer.output)
    return [
        (item.status, item.content[0].text) if item.type == "message" else (item.status, item.name, item.arguments)
        for item in items
    ]


class TestBodies:
    @pytest.mark.parametrize(
        ("fields", "of_chat"),
        [
            ({}, {}),
            ({"tool_choice": "none"}, {"tool_choice": "none"}),
            ({"tool_choice": "required"}, {"tool_choice": "required"}),
            ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
            (
                {"tool_choice": {"type": "function", "name": "clock"}},
                {"tool_choice": {"type": "function", "function": {"name": "clock"}}},
            ),
        ],
    )
    def test_they_come_to_what_a_chat_comes_to(self, fields: dict[str, Any], of_chat: dict[str, Any]) -> None:
        made = response(input=QUESTION["content"], tools=TOOLS, **fields)
        assert made == chat(QUESTION, tools=OF_CHATS, response_format={"type": "text"}, **of_chat)

    def test_the_items_of_one_answer_are_one_message(self) -> None:
        calls = [("c1", "weather", '{"city": "Rome"}'), ("c2", "clock", "{}")]
        items = [
            {
                "type": "function_call",
                "id": "fc",
                "status": "completed",
                "call_id": key,
                "name": name,
                "arguments": said,
            }
            for key, name, said in calls
        ]
        results: list[Any] = [{"type": "function_call_output", "call_id": key, "output": key} for key, *_ in calls]
        results[1]["output"] = [{"type": "input_text", "text": "c2"}]
        answer = turn("assistant", "Seeing:") | {
            "tool_calls": [{"id": key, "function": {"name": name, "arguments": said}} for key, name, said in calls]
        }
        outputs = [turn("tool", key) | {"tool_call_id": key} for key, *_ in calls]
        made = response(input=[QUESTION, turn("assistant", "Seeing:"), *items, *results], tools=TOOLS)
        assert made == chat(QUESTION, answer, *outputs, tools=OF_CHATS, response_format={"type": "text"})

    def test_an_answer_may_have_had_more_calls_than_a_chat_has_room_for(self) -> None:
        calls = [{"type": "function_call", "call_id": f"c{n}", "name": "clock", "arguments": "{}"} for n in range(70)]
        results = [{"type": "function_call_output", "call_id": f"c{n}", "output": "noon"} for n in range(70)]
        assert response(input=[QUESTION, *calls, *results]).prompt.count("noon") == 70


@pytest.mark.parametrize("kind", ["web_search", "mcp", None])
def test_tools_that_are_no_functions_are_told_so(kind: str | None) -> None:
    with pytest.raises(ApiError, match="a tool is of type 'function'") as refused:
        response(input=[QUESTION], tools=[{"type": kind}])
    assert refused.value.param == "tools[0]"


class TestAnswers:
    def test_whole(self, client: openai.OpenAI) -> None:
        answer = ask(client, "call", parallel_tool_calls=False)
        assert told(answer) == [("completed", "Seeing:"), ("completed", "weather", '{"city": "Rome"}')]
        assert (answer.status, answer.output_text) == ("completed", "Seeing:")
        assert [tool.name for tool in answer.tools] == ["weather", "clock"]
        assert (answer.tool_choice, answer.parallel_tool_calls) == ("auto", False)
        named = ask(client, "two", tool_choice={"type": "function", "name": "clock"})
        assert told(named) == [("completed", "weather", ROME), ("completed", "clock", "{}")]
        assert len({item.call_id for item in named.output} | {item.id for item in named.output}) == 4
        assert named.tool_choice.name == "clock"
        assert told(ask(client, "text")) == [("completed", "Dry <tool")]

    def test_one_that_is_cut_is_incomplete(self, client: openai.OpenAI) -> None:
        for fields in ({"max_output_tokens": 9}, {"extra_body": {"stop": ['"n"']}}):  # as if ended for another reason
            answer = ask(client, "two", **fields)
            assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
            ((status, _, arguments),) = told(answer)
            assert status == "incomplete" and ROME.startswith(arguments) and arguments != ROME

    @pytest.mark.parametrize("question", ["call", "two", "text"])
    def test_a_stream_tells_what_the_whole_answer_has(self, client: openai.OpenAI, question: str) -> None:
        whole = ask(client, question)
        with client.responses.stream(model="dragon", input=question, tools=TOOLS) as stream:
            events: list[Any] = list(stream)
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert told(events[-1].response) == told(whole)
        for index, item in enumerate(whole.output):
            mine = [event for event in events if getattr(event, "output_index", None) == index]
            kinds = [event.type.removeprefix("response.") for event in mine]
            name = "output_text" if item.type == "message" else "function_call_arguments"
            around = ["content_part"] if item.type == "message" else []
            kinds = [kind for at, kind in enumerate(kinds) if kind != f"{name}.delta" or kinds[at - 1] != kind]
            opening, closing = [f"{each}.added" for each in around], [f"{each}.done" for each in around]
            assert kinds == [
                "output_item.added",
                *opening,
                f"{name}.delta",
                f"{name}.done",
                *closing,
                "output_item.done",
            ]
            said = "".join(event.delta for event in mine if event.type.endswith("delta"))
            assert said == (whole.output_text if item.type == "message" else item.arguments)

    def test_the_clients_own_parser_reads_arguments(self, client: openai.OpenAI) -> None:
        class Place(BaseModel):
            city: str

        tool: Any = openai.pydantic_function_tool(Place, name="weather")
        answer = client.responses.parse(model="dragon", input="call", tools=[tool])
        (call,) = (item for item in answer.output if item.type == "function_call")
        assert call.parsed_arguments == Place(city="Rome")

    def test_calls_can_be_sent_back_with_what_they_returned(self, client: openai.OpenAI, engine: TableEngine) -> None:
        first = ask(client, "two")
        outputs = [
            {"type": "function_call_output", "call_id": item.call_id, "output": f"{item.name} says"}
            for item in first.output
        ]
        ask(client, [turn("user", "two"), *first.output, *outputs])
        prompt = engine.generation().request.prompt
        assert prompt.index('"city": "Rome') < prompt.index("weather says") < prompt.index("clock says")


@pytest.mark.parametrize(("answer", "of_text"), [("call", ["See", "ing:\n<tool"]), ("text", ["Dry", " <tool"])])
def test_log_probabilities_are_those_of_tokens_with_text_of_the_message(answer: str, of_text: list[str]) -> None:
    output = Output("1", CallReader(ENGINE.tools.shape, formed=False), 0)
    for at, text in enumerate(ANSWERS[answer]):
        list(output.read(text, [TokenEvent(text, at, at, False, (TokenChance(text, -1.0),))]))
    list(output.finish(FinishedAnswer(Finished("stop", "".join(ANSWERS[answer]), report(chat(QUESTION), 3)), ())))
    assert [each["token"] for each in output.items[0]["content"][0]["logprobs"]] == of_text
