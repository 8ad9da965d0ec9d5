"""Tools in chats: what bodies come to, what clients get of calls, whole and streamed, and what is refused."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.engine.model.prompt import ToolFormat
from common.processors.calls import MOST_CALLS, CallShape, decode_options, encode_options
from device.http.calls import ArgumentsPiece, CallPiece, CallReader, CallStart, TextPiece
from device.http.errors import ApiError
from device.interface import TokenEvent
from tests.device.http.asking import ENGINE, ask_chat, chat, turn
from tests.device.table_engine import TableEngine
from tests.support.call_shapes import BARE, TAGS, listed

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER: Any = {"type": "function", "function": {"name": "weather", "description": "Says.", "parameters": CITY}}
CLOCK: Any = {"type": "function", "function": {"name": "clock"}}
TOOLS: Any = [WEATHER, CLOCK]
NAMED: Any = {"type": "function", "function": {"name": "clock"}}
MARKER = 101  # of the table engine's second token
LISTED = listed(MARKER)
ROME = '{"city": "Rome \\"}{ \\\\", "n": [1, {"a": {}}]}'
QUESTION = turn("user", "Is it wet in Rome?")
CALL = {"id": "call_7", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}


def written(*calls: tuple[str, str]) -> str:
    return "\n".join(f'<tool_call>\n{{"name": "{name}", "arguments": {args}}}\n</tool_call>' for name, args in calls)


def refusal(*messages: Any, **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        ask_chat(*(messages or (QUESTION,)), **fields)
    assert error.value.status == 400
    return error.value


class TestBodies:
    def test_no_calls_are_asked_for(self) -> None:
        plain = chat(QUESTION)
        asked: list[dict[str, Any]] = [{"tools": []}, {"tools": TOOLS, "tool_choice": "none"}, {"tool_choice": "auto"}]
        for fields in asked:
            assert chat(QUESTION, **fields) == plain
            assert not ask_chat(QUESTION, **fields).notes
        assert plain.calls is None

    def test_choices(self) -> None:
        may, must = chat(QUESTION, tools=TOOLS).calls, chat(QUESTION, tools=TOOLS, tool_choice="required").calls
        assert may is not None and must is not None
        assert (may.must, must.must) == (False, True)
        assert [tool.name for tool in must.tools] == ["weather", "clock"]
        named = chat(QUESTION, tools=TOOLS, tool_choice=NAMED).calls
        assert named is not None and named.must and [tool.name for tool in named.tools] == ["clock"]

    def test_the_request_has_all_that_the_cloud_needs(self) -> None:
        request = chat(QUESTION, tools=TOOLS)
        assert decode_options(encode_options(request)).calls == request.calls
        assert '"city"' in request.prompt and request.question == QUESTION["content"]

    def test_there_are_several_calls_where_the_model_and_the_client_know_several(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def most(**fields: Any) -> int:
            calls = chat(QUESTION, tools=TOOLS, **fields).calls
            return 0 if calls is None else calls.most

        assert most() == 1  # in plain words
        monkeypatch.setattr(ENGINE, "tool_format", ToolFormat(TAGS, trained=True))
        assert [most(), most(parallel_tool_calls=False), most(tool_choice=NAMED)] == [MOST_CALLS, 1, 1]

    def test_a_model_that_is_told_in_plain_words_has_a_note(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "plain words" in ask_chat(QUESTION, tools=TOOLS).notes[0]
        monkeypatch.setattr(ENGINE, "tool_format", ToolFormat(TAGS, trained=True))
        assert not ask_chat(QUESTION, tools=TOOLS).notes

    def test_earlier_calls_and_what_they_returned_are_history(self) -> None:
        messages = [
            QUESTION,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_7", "content": [{"type": "text", "text": "dry"}]},
        ]
        for fields in ({}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}):
            request = chat(*messages, **fields)
            assert request.question == QUESTION["content"]
            assert request.prompt.index("Rome?") < request.prompt.index('"city": "Rome"') < request.prompt.index("dry")

    @pytest.mark.parametrize(
        ("param", "fields"),
        [
            ("tools", {"tools": [{"type": "retrieval"}]}),
            ("tools", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
            ("tools", {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]}),
            ("tools", {"tools": TOOLS * 40}),
            ("tool_choice", {"tools": TOOLS, "tool_choice": "always"}),
            ("tool_choice", {"tools": TOOLS, "tool_choice": {"type": "function"}}),
            (None, {"tools": [*TOOLS, CLOCK]}),
            (None, {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "other"}}}),
            (None, {"tool_choice": "required"}),
            ("messages", {"tools": [WEATHER | {"function": {"name": "f", "description": "x" * 2**18}}]}),
        ],
        ids=["type", "name", "parameters", "many", "choice", "no name", "same", "other", "no tools", "long"],
    )
    def test_what_can_not_be_served_names_its_field(self, param: str | None, fields: dict[str, Any]) -> None:
        found = refusal(**fields)
        assert (found.param or "").split("[")[0].split(".")[0] == (param or "")
        assert param is not None or "tool" in found.message

    def test_calls_of_an_unknown_kind_are_refused_with_the_field(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Unknown(TableEngine):
            @property
            def tools(self) -> ToolFormat:
                raise ValueError("the model's chat template puts calls in a way that this daemon does not know")

        monkeypatch.setattr("tests.device.http.asking.ENGINE", Unknown())
        assert refusal(tools=TOOLS).param == "tools"
        assert chat(QUESTION, tools=TOOLS, tool_choice="none").calls is None

    @pytest.mark.parametrize(
        "messages",
        [
            [QUESTION, {"role": "tool", "tool_call_id": "call_7", "content": "dry"}],
            [QUESTION, {"role": "assistant", "tool_calls": [CALL]}],
            [QUESTION, {"role": "assistant", "tool_calls": [CALL]}, turn("tool", "dry")],
            [QUESTION | {"tool_calls": [CALL]}],
            [QUESTION, {"role": "assistant", "tool_calls": [CALL | {"function": {"name": "f", "arguments": "[]"}}]}],
            [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "call_7", "content": "a"}],
        ],
        ids=["no call", "no result", "no id", "role", "arguments", "no question"],
    )
    def test_conversations_that_can_not_be(self, messages: list[Any]) -> None:
        assert (refusal(*messages).param or "").startswith("messages")

    def test_other_bodies_have_none(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.BadRequestError, match="'tools' is not supported"):
            client.completions.create(model="dragon", prompt="a", extra_body={"tools": TOOLS})


def parts(
    shape: CallShape, pieces: list[str], tokens: dict[int, int] | None = None, formed: bool = False
) -> tuple[CallReader, list[CallPiece]]:
    """Parts that a reader tells of an answer in pieces, some of which are of certain tokens."""
    reader, told = CallReader(shape, formed), list[CallPiece]()
    for at, piece in enumerate(pieces):
        told += reader.read(piece, [TokenEvent(piece, (tokens or {}).get(at, 1), at, False)])
    return reader, told + reader.finish()


class TestReader:
    TEXT = "Let me see <tool.\n\n" + written(("weather", ROME), ("clock", "{}"))

    @given(st.lists(st.integers(0, len(TEXT)), max_size=20))
    def test_however_an_answer_is_cut_its_parts_are_the_same(self, cuts: list[int]) -> None:
        ends = [0, *sorted(cuts), len(self.TEXT)]
        reader, told = parts(TAGS, [self.TEXT[a:b] for a, b in pairwise(ends)])
        assert [(made.name, made.arguments, made.whole) for made in reader.calls] == [
            ("weather", ROME, True),
            ("clock", "{}", True),
        ]
        assert reader.text == "Let me see <tool." == "".join(part.text for part in told if isinstance(part, TextPiece))
        for number, made in enumerate(reader.calls):
            mine = [part for part in told if isinstance(part, CallStart | ArgumentsPiece) and part.number == number]
            assert mine[0] == CallStart(number, made.name)
            assert "".join(part.text for part in mine if isinstance(part, ArgumentsPiece)) == made.arguments
        assert reader.complete

    def test_text_alone_is_told_to_its_end(self) -> None:
        for shape in (TAGS, LISTED, BARE):
            reader, _ = parts(shape, ["It ", "rains {now}. <tool_", "call\n "])
            assert (reader.text, reader.calls, reader.complete) == ("It rains {now}. <tool_call\n ", [], False)

    def test_a_format_may_quote_what_calls_begin_with(self) -> None:
        text = '{"note": "put it in <tool_call> marks"}'
        for pieces in ([text], list(text), ["\n", text]):
            reader, _ = parts(TAGS, pieces, formed=True)
            assert (reader.text, reader.calls) == ("".join(pieces), [])
        call = written(("clock", "{}"))
        for pieces in ([call], list(call), ["\n", call]):
            reader, _ = parts(TAGS, pieces, formed=True)
            assert (reader.text, reader.complete) == ("", True)

    def test_a_token_marks_calls(self) -> None:
        call = ' [{"name": "clock", "arguments": {}}, {"name": "clock", "arguments": {"a": 1}}]'
        reader, _ = parts(LISTED, ["So ", "", call], {1: MARKER})
        assert (reader.text, [made.arguments for made in reader.calls]) == ("So", ["{}", '{"a": 1}'])
        reader, _ = parts(LISTED, ["So", call])
        assert not reader.calls

    def test_without_a_mark_a_call_begins_the_answer(self) -> None:
        reader, _ = parts(BARE, ["{", '"name": "clock", "parameters": {"a"', ": 1}}"])
        assert (reader.text, reader.calls[0].arguments, reader.complete) == ("", '{"a": 1}', True)

    def test_one_that_was_cut_is_not_complete(self) -> None:
        text = written(("weather", ROME))
        for length in range(len(text) - len("}\n</tool_call>")):
            assert not parts(TAGS, [text[:length]])[0].complete
        assert parts(TAGS, [text])[0].complete


class TestAnswers:
    ANSWER = (
        "See",
        "ing:\n<tool",
        "_call>",
        '\n{"name": "weather", "argu',
        'ments": {"city": "Ro',
        'me"}}',
        "\n</tool_call>",
    )

    @pytest.fixture(autouse=True)
    def _answers(self, engine: TableEngine) -> None:
        engine.answers = {"call": self.ANSWER, "text": ("Dry", " <tool"), "only": ("<tool", *self.ANSWER[2:])}
        engine.answers["quote"] = ('{"a": "<tool', "_call>", '{"}')

    def ask(self, client: openai.OpenAI, question: str, **fields: Any) -> Any:
        messages: Any = [{"role": "user", "content": question}]
        return client.chat.completions.create(model="dragon", messages=messages, tools=TOOLS, **fields)

    def test_whole(self, client: openai.OpenAI) -> None:
        answer = self.ask(client, "call")
        (choice,) = answer.choices
        assert (choice.message.content, choice.finish_reason) == ("Seeing:", "tool_calls")
        (call,) = choice.message.tool_calls
        assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Rome"})
        assert call.id.startswith("call_") and len(call.id) <= 40
        assert "".join(answer.dragon["pieces"]) == "".join(self.ANSWER)
        assert answer.dragon["citations"] is not None
        assert self.ask(client, "only").choices[0].message.content is None

    def test_text_alone(self, client: openai.OpenAI) -> None:
        (choice,) = self.ask(client, "text").choices
        assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("Dry <tool", None, "stop")
        chunks = self.ask(client, "text", stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Dry <tool"

    def test_a_format_that_quotes_a_call(self, client: openai.OpenAI) -> None:
        wanted: Any = {"response_format": {"type": "json_object"}}
        (choice,) = self.ask(client, "quote", **wanted).choices
        assert (choice.message.content, choice.message.tool_calls) == ('{"a": "<tool_call>{"}', None)
        chunks = self.ask(client, "quote", stream=True, **wanted)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == '{"a": "<tool_call>{"}'
        answer = client.responses.create(
            model="dragon",
            input="quote",
            tools=[{"type": "function", "name": "clock", "parameters": None, "strict": None}],
            text={"format": {"type": "json_object"}},
        )
        assert answer.output_text == '{"a": "<tool_call>{"}'

    def test_a_call_that_is_cut_is_not_said_to_be_one(self, client: openai.OpenAI) -> None:
        (choice,) = self.ask(client, "call", max_tokens=5).choices
        assert choice.finish_reason == "length"
        assert choice.message.tool_calls[0].function.arguments == '{"city": "Ro'
        (choice,) = self.ask(client, "call", stop=['ome"']).choices  # as an answer that is ended for another reason
        assert choice.finish_reason == "length"

    def test_streamed_by_index(self, client: openai.OpenAI) -> None:
        texts, names, arguments, ids, reasons = ["", ""], ["", ""], ["", ""], set[str](), list[str]()
        for chunk in self.ask(client, "call", n=2, stream=True, temperature=1.0):
            (choice,) = chunk.choices
            texts[choice.index] += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                assert call.index == 0
                names[choice.index] += call.function.name or ""
                arguments[choice.index] += call.function.arguments or ""
                ids |= {call.id} if call.id else set()
            reasons += [choice.finish_reason] if choice.finish_reason else []
        assert (texts, names) == (["Seeing:"] * 2, ["weather"] * 2)
        assert arguments == ['{"city": "Rome"}'] * 2
        assert len(ids) == 2 and reasons == ["tool_calls"] * 2

    def test_the_clients_own_stream_puts_calls_together(self, client: openai.OpenAI) -> None:
        messages: Any = [{"role": "user", "content": "call"}]
        with client.chat.completions.stream(model="dragon", messages=messages, tools=TOOLS) as stream:
            (choice,) = stream.get_final_completion().choices
        assert choice.message.tool_calls is not None and choice.message.content == "Seeing:"
        assert choice.message.tool_calls[0].function.arguments == '{"city": "Rome"}'
