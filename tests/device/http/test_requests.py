"""Conversion of bodies to the engine's request: what is accepted, what is refused, and the prompt that comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.methods.request import Request
from common.model.prompt import text_query
from device.http.errors import ApiError
from device.http.prompts import chat_request, completion_request, read_conversation
from device.http.schema import UNSUPPORTED, ChatMessage, parse_chat, parse_completion

DEFAULTS = Request(question="", prompt="")


def completion(**fields: Any) -> Request:
    return completion_request(parse_completion(encode({"prompt": "x"} | fields)), DEFAULTS)


def chat(*messages: Any, **fields: Any) -> Request:
    return chat_request(parse_chat(encode({"messages": list(messages)} | fields)), DEFAULTS, text_query)


def encode(fields: dict[str, Any]) -> bytes:
    return json.dumps({"model": "dragon"} | fields).encode()


def turn(role: str, content: Any = "") -> dict[str, Any]:
    return {"role": role, "content": content}


def refusal(**fields: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        completion(**fields)
    assert error.value.status == 400
    return error.value


class TestFields:
    def test_nothing_given_is_the_default(self) -> None:
        assert completion() == Request(question="x", prompt="x")

    def test_null_is_not_given(self) -> None:
        names = [
            "max_tokens",
            "temperature",
            "top_p",
            "seed",
            "stop",
            "stream_options",
            "user",
            "privacy",
            "exact",
        ]
        assert completion(**dict.fromkeys(names)) == completion()

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("max_tokens", "5"),
            ("max_tokens", True),
            ("max_tokens", 1.5),
            ("max_tokens", 2**20),
            ("temperature", -0.1),
            ("temperature", 2.1),
            ("temperature", 0.005),
            ("temperature", 4e-38),
            ("temperature", 1e-40),
            ("temperature", "hot"),
            ("top_p", 0.0),
            ("top_p", 1.1),
            ("seed", -1),
            ("seed", 2**64),
            ("stop", ["a", "b", "c", "d", "e"]),
            ("stop", [""]),
            ("stop", ""),
            ("stop", [1]),
            ("stop", {"a": 1}),
            ("stream", "yes"),
            ("stream", 1),
            ("prompt", ["a", "b"]),
            ("prompt", [1, 2]),
            ("prompt", 5),
            ("privacy", "STRICT"),
            ("sampler", "greedy"),
            ("placement", "left"),
            ("codec", "gzip"),
            ("entries", 0),
            ("entries", 4097),
            ("exact", "true"),
            ("documents", -1),
            ("documents", 256),
            ("sources", ["device"]),
            ("method", "drdg"),
            ("aggregation", 0),
            ("user", 7),
        ],
    )
    def test_bad_values_name_their_field(self, name: str, value: Any) -> None:
        error = refusal(**{name: value})
        assert error.param is not None
        assert error.param.split("[")[0] == name
        assert error.code == "invalid_value"

    def test_bad_values_are_not_repeated(self) -> None:
        assert "canary" not in refusal(privacy="canary", prompt="x").message
        assert "canary" not in refusal(stop=[{"canary": 1}]).message

    @pytest.mark.parametrize("name", sorted(UNSUPPORTED))
    def test_unsupported_fields_are_refused_unless_they_ask_for_nothing(self, name: str) -> None:
        for neutral in (None, *UNSUPPORTED[name]):
            assert completion(**{name: neutral}) == completion()
        error = refusal(**{name: {"something": "else"}})
        assert (error.param, error.code) == (name, "unsupported_parameter")
        assert "not supported" in error.message

    @pytest.mark.parametrize(("name", "value"), [("logprobs", 0), ("n", True), ("n", 1.0), ("echo", 0)])
    def test_neutral_values_are_compared_by_type_too(self, name: str, value: Any) -> None:
        assert refusal(**{name: value}).code == "unsupported_parameter"

    def test_unknown_and_missing_fields(self) -> None:
        assert refusal(temprature=1).message == "Unrecognized request argument supplied: 'temprature'."
        assert refusal(prompt=None).message == "Missing required parameter: 'prompt'."
        assert refusal(messages=[turn("user", "x")]).param == "messages"
        assert len(refusal(**{"y" * 1000: 1}).message) < 200

    def test_stream_options_need_stream(self) -> None:
        assert "stream_options" in refusal(stream_options={"include_usage": True}).message
        assert parse_completion(encode({"prompt": "x", "stream": True, "stream_options": {}})).include_usage is False

    def test_top_p_is_for_the_paper_sampler(self) -> None:
        assert completion(top_p=1.0) == completion()
        assert completion(top_p=0.3, sampler="paper").top_p == 0.3
        assert refusal(top_p=0.3).param == "top_p"
        paper = Request(question="", prompt="", sampler="paper")
        assert completion_request(parse_completion(encode({"prompt": "x", "top_p": 0.3})), paper).top_p == 0.3

    def test_two_token_limits_must_agree(self) -> None:
        message = turn("user", "x")
        assert chat(message, max_tokens=3, max_completion_tokens=3).max_tokens == 3
        with pytest.raises(ApiError, match="differ"):
            chat(message, max_tokens=3, max_completion_tokens=4)

    def test_a_lone_surrogate_is_refused(self) -> None:
        with pytest.raises(ApiError) as error:
            parse_completion(b'{"model": "dragon", "prompt": "\\ud800"}')
        assert error.value.status == 400

    @given(
        st.binary(max_size=60)
        | st.recursive(
            st.none() | st.booleans() | st.floats() | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["model", "messages", "prompt", "role", "content", "stop", "x"]),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        ).map(lambda value: json.dumps(value).encode())
    )
    def test_any_body_is_accepted_or_refused_with_400(self, body: bytes) -> None:
        for parse in (parse_completion, parse_chat):
            status = 200
            try:
                parse(body)
            except ApiError as error:
                status = error.status
            assert status in (200, 400)


class TestConversation:
    def test_one_question(self) -> None:
        request = chat(turn("user", " Who? "))
        assert (request.question, request.prompt) == ("Who?", "\nQuestion: Who?\nAnswer:")

    def test_braces_in_a_question_are_text(self) -> None:
        request = chat(turn("user", "{question} {0} {"))
        assert request.prompt == "\nQuestion: {question} {0} {\nAnswer:"

    def test_so_are_other_braces_of_the_query_format(self) -> None:
        message = ChatMessage(role="user", content="a")
        assert text_query(read_conversation([message]), '{"q": {question}}{}').text == '{"q": a}{}'

    def test_system_and_developer_messages_come_first(self) -> None:
        request = chat(turn("user", "a"), turn("assistant", "b"), turn("developer", "D"), turn("user", "c"))
        assert request.prompt == "\nD\nQuestion: a\nAnswer: b\nQuestion: c\nAnswer:"
        assert request.question == "c"

    def test_an_opening_line_of_the_assistant_is_kept(self) -> None:
        assert chat(turn("assistant", "Hi!"), turn("user", "a")).prompt == "\nHi!\nQuestion: a\nAnswer:"

    def test_consecutive_user_messages_are_one_question(self) -> None:
        request = chat(turn("user", "a"), turn("user", "b"))
        assert (request.question, request.prompt) == ("a\nb", "\nQuestion: a\nb\nAnswer:")

    def test_text_parts_are_joined(self) -> None:
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        assert chat(turn("user", parts)).question == "a\nb"

    @pytest.mark.parametrize(
        "messages",
        [
            [],
            [turn("system", "x")],
            [turn("user", "x"), turn("assistant", "y")],
            [turn("user", "")],
            [turn("user", " \n\t")],
            [turn("user", [])],
            [turn("tool", "x")],
            [turn("user", [{"type": "image_url", "image_url": {"url": "x"}}])],
            [turn("user", [{"type": "text", "text": 5}])],
            [turn("user", [{"type": "text"}])],
            [turn("user", 5)],
            [turn("user", "x") | {"tool_calls": []}],
            ["x"],
        ],
    )
    def test_no_question_is_refused(self, messages: list[Any]) -> None:
        with pytest.raises(ApiError) as error:
            chat(*messages)
        assert error.value.status == 400
        assert error.value.param is not None
        assert error.value.param.startswith("messages")

    @given(
        st.lists(st.tuples(st.text("ab ", min_size=1), st.text("cd ")), max_size=4).filter(
            lambda turns: all(asked.strip() for asked, _ in turns)
        ),
        st.text("xy", min_size=1),
    )
    def test_every_turn_is_in_the_prompt_in_order(self, turns: list[tuple[str, str]], question: str) -> None:
        messages = [
            message
            for asked, answered in turns
            for message in (
                ChatMessage(role="user", content=asked),
                ChatMessage(role="assistant", content=answered),
            )
        ]
        conversation = read_conversation([*messages, ChatMessage(role="user", content=question)])
        assert conversation.turns[-1].text == question
        earlier = "".join(f"[{asked.strip()}] {answered.strip()}" for asked, answered in turns)
        assert text_query(conversation, "[{question}]").text == f"{earlier}[{question}]"
